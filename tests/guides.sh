#!/usr/bin/env bash
# Follows the guides of docs/course as a newcomer would: every command in them, in order.
#
#     tests/guides.sh BUILD           the instructor's guide in this tree, the student's in the hand-out that comes of it
#
# In a guide, commands are indented by four spaces and start with ./lab. Hidden comments say what a reader does by hand:
#     <!-- expect 1 -->      the next command exits with 1
#     <!-- then: COMMAND --> is run
#     <!-- needs gpu -->     the next command is skipped where there is none
set -euo pipefail

build=$(readlink -f -- "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/ladder-guides.XXXXXX")
trap 'rm -rf "$work"' EXIT
export work
export solution=$root/stages/02_deferred_normalization/kernel.cu
export parent=$root/stages/01_flash_attention_1/kernel.cu

commands=0
# follow GUIDE: here, with the build folder that LADDER_BUILD names
follow() {
    local line expected=0 needs_gpu=no status
    while IFS= read -r line; do
        case $line in
            '<!-- expect '*) expected=${line#<!-- expect }; expected=${expected%% *} ;;
            '<!-- needs gpu -->') needs_gpu=yes ;;
            '<!-- then: '*) line=${line#<!-- then: }; eval "${line% -->}" ;;
            '    ./lab '*)
                if [ $needs_gpu = no ] || nvidia-smi > /dev/null 2>&1; then
                    echo "$ ${line#    }"
                    status=0
                    eval "${line#    }" || status=$?
                    if [ "$status" != "$expected" ]; then echo "exited with $status instead of $expected"; exit 1; fi
                    commands=$((commands + 1))
                fi
                expected=0 needs_gpu=no
                ;;
        esac
    done < "$1"
}

# fill_class N: adds students until the class has N. Their kernels are refused when they are read: no compiler runs.
fill_class() {
    local n
    for n in $(seq -w $(($(find "$work/class" -mindepth 1 -maxdepth 1 | wc -l) + 1)) "$1"); do
        mkdir "$work/class/student$n"
        { echo '#include <cstdio>'; cat "$parent"; } > "$work/class/student$n/kernel.cu"
    done
}

cd "$root"
export LADDER_BUILD=$build
follow docs/course/instructors.md
follow docs/course/gpu.md
# Gradescope's two files, in folders like its own. setup.sh gets a ladder that is nothing but a lab: it would build the
# real one all over again.
mkdir -p "$work/stub" "$work/gradescope/source" "$work/gradescope/results"
export AUTOGRADER=$work/gradescope
cat > "$work/stub/lab" << 'end'
#!/bin/sh
echo "$@" >> "$0.called"
end
chmod +x "$work/stub/lab"
tar -czf "$AUTOGRADER/source/ladder.tar.gz" -C "$work/stub" lab
bash docs/course/gradescope/setup.sh
[ "$(tr '\n' ' ' < "$AUTOGRADER/source/ladder/lab.called")" = 'doctor grade --help ' ]
rm -r "$AUTOGRADER/source/ladder"
ln -s "$root" "$AUTOGRADER/source/ladder"
cp "$work/rubric.json" "$AUTOGRADER/source"
cp -r "$work/class/ada" "$AUTOGRADER/submission"
docs/course/gradescope/run_autograder
cmp "$AUTOGRADER/results/results.json" "$work/ada.json"

# The solution got all points, the parent's kernel, which declares another stage, none.
grep -q '^"ada",.*,100,100,[-0-9T:]*Z$' "$work/grades/grades.csv"
grep -q '^"bob",.*,0,100,[-0-9T:]*Z$' "$work/grades/grades.csv"
# The table has a line for each of the thirty, and each has a report.
[ "$(wc -l < "$work/grades/grades.csv")" -eq 31 ]
for kind in json md; do
    [ "$(find "$work/grades" -name "*.$kind" | wc -l)" -eq 30 ]
done

cd "$work/lab1"
unset LADDER_BUILD
export CMAKE_CXX_COMPILER_LAUNCHER="$root/tests/same_objects.py;$root;$build"
follow STUDENTS.md
[ "$commands" -gt 15 ]

# What a hand-out names it has: commands, in its pages, its task and its help ...
for command in $({
    grep -rhoE '(\./|`)lab [a-z]+' --include=*.md . | sed 's/.*lab //'
    ./lab help | sed -n 's/^  \([a-z]*\) .*/\1/p'
} | sort -u); do
    ./lab "$command" --help > /dev/null || { echo "a hand-out has no lab $command"; exit 1; }
done
# ... and files, unless the paragraph says that the whole ladder has them.
find . -name '*.md' -not -path './build/*' -exec awk -v RS= '!/whole[[:space:]]+ladder/' {} + |
    grep -oE '\<(course|docs|examples|harness|notebooks|python|reference|simt|stages|tests)/[A-Za-z0-9_./-]*[A-Za-z0-9_]' | sort -u |
    while read -r file; do
        [ -e "$file" ] || { echo "a hand-out names $file and does not have it"; exit 1; }
    done
echo "$commands commands"
