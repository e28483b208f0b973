#!/usr/bin/env bash
# What `lab test` runs once BUILD is up to date: the test suite and, unless --quick, everything around it.
#
#     all.sh BUILD [--quick | --all | --only GROUP,...]
#
# A stage whose cases, orders or mutants passed before is not run again if nothing has changed since that its verdict was
# made of (harness/verify/kept.h); --all forgets these verdicts first, and draws the seed at which mutants are graded.
# Prints one line per step as it ends, with the seconds that passed and those that processors worked, and ends with "N passed, N
# failed, N skipped", which counts steps and tests alike, and with what was not tested and why.
# BUILD/test-logs/seconds.txt keeps the seconds.
set -uo pipefail

build=$1
mode=${2:-}
groups=,${3:-tests,mutants,python,sanitizers,stages,guides,pages,nvcc},
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$build/test-logs
kept=$build/kernels/kept.txt
jobs=2
passed=0 failed=0 skipped=0
mkdir -p "$logs" "$build/kernels"
: > "$logs/seconds.txt"
: > "$logs/not_tested.txt"
: > "$kept"
cd "$root" || exit 3
unset LADDER_COMMAND  # tests compare messages, whatever the name by which lab was called here
if [ "$mode" = --all ]; then
    find "$build/kernels" -name '*.passed' -delete
    rm -rf "$build/kernels/answers"
    export GRADER_SEED=drawn
fi

have() { command -v "$1" > /dev/null 2>&1; }

. tests/shown.sh
side=  # of two functions that run at the same time, which one

# timed COMMAND...: notes what the command takes, which end OUTCOME [TEXT] says
end() {
    local wall cpu
    read -r wall cpu < "$logs/time$side.txt"
    finish "$1 ($wall s, $cpu s of processors)" "${2:-}"
    printf '%6d %6d  %s\n' "$wall" "$cpu" "$title" >> "$logs/seconds.txt"
}
timed() {
    local status=0 TIMEFORMAT='%R %U %S'
    { time "$@" 2>&3; } 3>&2 2> "$logs/raw$side.txt" || status=$?
    awk '{ printf "%d %d\n", $1 + 0.5, $2 + $3 + 0.5 }' "$logs/raw$side.txt" > "$logs/time$side.txt"
    return $status
}

# step TITLE COMMAND...: one check that passes if the command does
step() {
    local title=$1 log
    shift
    log=$logs/${title//[^a-zA-Z0-9.+]/_}.log
    begin "$title" "$log"
    if timed "$@" > "$log" 2>&1; then
        passed=$((passed + 1))
        end passed
    else
        failed=$((failed + 1))
        end FAILED "$(tail -n 40 "$log" | sed 's/^/    /')
    all of it is in $log"
        return 1
    fi
}

skip() {
    skipped=$((skipped + 1)) title=$1
    finish "skipped: $2"
    not_tested "$1: $2"
}
not_tested() { printf '%s\n' "$1" >> "$logs/not_tested.txt"; }

# unless_kept NAME PATH... -- COMMAND...: the command, unless it has passed before with the same files; pages are no sources
unless_kept() {
    local name=$1 key paths=() before=$failed
    local passed_file=$build/kernels/${name//[^a-zA-Z0-9.+]/_}.passed
    shift
    while [ "$1" != -- ]; do paths+=("$1"); shift; done
    shift
    key=$(find "${paths[@]}" -type f ! -name README.md ! -name '*.svg' -exec sha256sum {} + | sort | sha256sum)
    if [ "$(cat "$passed_file" 2> /dev/null)" = "$key" ]; then
        title=$name
        finish 'passed before'
        printf '%s\n' "$name" >> "$kept"
        return
    fi
    "$@"
    if [ "$failed" = "$before" ]; then printf '%s\n' "$key" > "$passed_file"; fi
}

# suite TITLE BUILD [CTEST ARGUMENTS]: the tests of a build, each counted
suite() {
    local title=$1 folder=$2 log report n_tests n_failed n_skipped failures=
    shift 2
    log=$logs/${title//[^a-zA-Z0-9.+]/_}.log report=${folder}/ctest.xml
    rm -f "$report"
    begin "$title" "$log"
    timed ctest --test-dir "$folder" -j "$jobs" --output-on-failure --no-tests=error --output-junit "$report" "$@" > "$log" 2>&1
    n_tests=$(attribute tests "$report")
    n_failed=$(attribute failures "$report")
    n_skipped=$(($(attribute skipped "$report") + $(attribute disabled "$report")))
    if [ "$n_tests" = 0 ]; then n_failed=1 n_tests=1; fi
    passed=$((passed + n_tests - n_failed - n_skipped))
    failed=$((failed + n_failed))
    skipped=$((skipped + n_skipped))
    sed -n 's/^SKIPPED: //p' "$folder/Testing/Temporary/LastTest.log" | sort | uniq -c |
        while read -r times why; do not_tested "$times of $title: $why"; done
    if [ "$n_failed" != 0 ]; then
        failures=$(awk '/ Test +#[0-9]+: / { show = !/ (Passed|\*\*\*Skipped) / } show && !/^ *Start /' "$log" | head -n 100 | sed 's/^/    /')
        failures+=$'\n'"    all of it is in $log"
    fi
    end "$((n_tests - n_failed - n_skipped)) passed, $n_failed failed, $n_skipped skipped" "$failures"
}

# side_by_side FUNCTION FUNCTION: the steps of both at once, since some of them keep one processor alone. Those of the
# first are shown when they end. Each is a shell of its own, whose `time` sees its own children only.
side_by_side() {
    local passed_there failed_there skipped_there function beside
    set -m  # a group of processes of its own, which an interrupt can end
    watched=no counted "$1" < /dev/null &
    beside=$!
    set +m
    trap 'kill -- -$beside; exit 130' INT TERM
    (counted "$2")
    wait $beside
    trap - INT TERM
    for function in "$@"; do
        read -r passed_there failed_there skipped_there < "$logs/$function.counts"
        passed=$((passed + passed_there)) failed=$((failed + failed_there)) skipped=$((skipped + skipped_there))
    done
}
# The steps of a function, and how many passed, failed and were skipped.
counted() {
    passed=0 failed=0 skipped=0 side=.$1
    echo '0 1 0' > "$logs/$1.counts"  # if it does not come to its end
    "$1"
    echo "$passed $failed $skipped" > "$logs/$1.counts"
}

# A number in the head of CTest's report; 0 if there is no report.
attribute() {
    local value
    value=$(sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$2" 2> /dev/null | head -n 1)
    echo "${value:-0}"
}

# cpu_build NAME TARGET CMAKE ARGUMENTS...: builds a target of the CPU side in a folder of its own
cpu_build() {
    local folder=$build/$1 target=$2
    shift 2
    local generator=()
    if have ninja; then generator=(-G Ninja); fi
    cmake -S "$root" -B "$folder" "${generator[@]}" -DLADDER_GPU=OFF "$@" &&
        cmake --build "$folder" --parallel "$jobs" --target "$target"
}

has_cpu() { grep -q '^LADDER_CPU:BOOL=\(ON\|TRUE\|1\)' "$build/CMakeCache.txt"; }

# nvcc_unit UNIT EFFORT [ARCHITECTURE]...: compiles $logs/UNIT.cu, which has stages, for what a GPU is that times them, and
# for these, in a folder that has nothing of the repository but stages/. The algorithm's stages must not spill registers anywhere. With the effort `least` code is checked and hardly
# optimized.
nvcc_unit() {
    local log stage architecture unit=$logs/$1
    local architectures=('-gencode=arch=compute_90a,code=sm_90a')
    if [ "$2" = least ] && [ "$has_fast_compile" = yes ]; then architectures+=(--Ofast-compile=max); fi
    for architecture in "${@:3}"; do
        architectures+=("-gencode=arch=compute_$architecture,code=sm_$architecture")
    done
    log=$("$nvcc" -std=c++20 -Werror=all-warnings -DLADDER_BACKEND=gpu -I "$alone" -Xptxas -v \
        "${architectures[@]}" -c -o "$unit.o" "$unit.cu" 2>&1) || { echo "$log"; return 1; }
    rm -f "$unit.o"
    while read -r stage; do
        grep -A 2 "Compiling entry function.*$stage" <<< "$log" | grep 'bytes spill' > /dev/null ||
            { echo "$stage: ptxas said nothing of registers"; return 1; }
    done < <(sed -n 's/^namespace \(.*\) {$/\1/p' "$unit.cu")
    ! echo "$log" | awk '/Compiling entry function/ { kernel = $0 }
        kernel ~ /stage_0/ && / [1-9][0-9]* bytes (stack frame|spill)/ { print kernel; print }' | grep .
}
# nvcc_line STAGE: runs the line that ends the stage's lesson, as it stands there, in the same folder
nvcc_line() {
    local line
    line=$(sed -n '/^<!-- generated: nvcc -->$/,/^<!-- end -->$/{/^nvcc /p;/^    /p}' "$root/stages/$1/README.md")
    [ -n "$line" ] || { echo "$1: its lesson has no line that compiles the kernel"; return 1; }
    (cd "$alone" && PATH=$(dirname "$nvcc"):$PATH bash -c "$line" 2>&1) | grep -A 2 'Compiling entry function' | grep 'bytes spill' ||
        { echo "$1: ptxas said nothing of registers"; return 1; }
}
export -f nvcc_unit
# What optimization shows is asked where something reads it: spills of the algorithm's stages, ptxas's warnings on wgmma
# in those of Hopper alone; and the last stage of a part is compiled in full, too. Of the others it would show nothing.
# The algorithm's stages, and the last one of each part, which has every instruction of it, are compiled for the oldest,
# too, unless they run on one architecture alone: between these ends no code differs, and those that take a change away
# have no instruction that the algorithm has not. The algorithm's also for the middle.
# Stages that are compiled alike are one unit, each in a namespace of its own: most of what nvcc does for one of them is
# to read CUDA's headers.
nvcc_stages() {
    rm -rf "$alone"
    mkdir -p "$alone"
    ln -s "$root/stages" "$alone/stages"
    nvcc_line 07_scalar && "$build/lab" list --json "$logs/list.json" > "$logs/list.txt" &&
        python3 - "$logs/list.json" "$logs" > "$logs/nvcc.txt" << 'END' &&
import json, sys

units = {}
for row in json.load(open(sys.argv[1]))["properties"]:
    core, anywhere = row["stage"].startswith("0"), row["compute_capability"] is None
    older = ["75", "80"] if core else ["75"] if row["last_of_part"] and anywhere else []
    effort = "full" if core or row["last_of_part"] or not anywhere else "least"
    header = "device.cuh" if anywhere else "hopper.cuh"
    units.setdefault((header, effort, *older), []).append(row["stage"])
for header, *how in sorted(units, reverse=True):  # those of Hopper take longest
    unit = "_".join(["nvcc", header.removesuffix(".cuh"), *how])
    with open(f"{sys.argv[2]}/{unit}.cu", "w") as source:
        # ring.h, too, which otherwise would be read within a stage's namespace
        print(f'#include "stages/{header}"\n#include "stages/ring.h"', file=source)
        for stage in units[header, *how]:
            print(f'namespace stage_{stage} {{\n#include "stages/{stage}/kernel.cu"\n}}', file=source)
    print(unit, *how)
END
        xargs -P "$jobs" -L 1 bash -c 'nvcc_unit "$@"' nvcc_unit < "$logs/nvcc.txt"
}

summary() {
    sed 's/^/not tested: /' "$logs/not_tested.txt"
    printf '%d passed, %d failed, %d skipped' $passed $failed $skipped
    if [ -s "$kept" ]; then
        printf '; %d verdicts are those of an earlier run, of the same sources (--all runs everything)' "$(wc -l < "$kept")"
    fi
    printf '\n'
    [ $failed = 0 ]
}

# --- The suite, in groups ------------------------------------------------------------------------------------------

if [ "$mode" = --quick ]; then
    suite 'quick tests' "$build" -L quick
    summary
    exit
fi

all_tests() {
    suite 'tests, and what the pages are made of' "$build" -L 'quick|pages'
    unless_kept 'claims, traces and the course' "$build/tests/tests" "$build/lab" "$build/lab-course" "$build/runner" \
        "$build/kernels.json" stages tests/submissions -- suite 'claims, traces and the course' "$build" -L slow -LE mutants
    step 'lines: no source file is too long' tests/lines.py && tests/lines.py
}
all_mutants() { suite 'mutants' "$build" -L mutants; }

# --- The same tree under another compiler, with checkers of its own, and every stage on its cases ------------------

# What the sanitizers are to see: no grader expects one in a kernel, and what kernels count is the same under one; so is
# what every stage's claims say, which would have to be compiled, and what scripts and Python's programs do.
not_for_sanitizers='^(course|profile|claims|trace|tables|plots|quiz|compare|layers|lessons|words|triton|kept): '
not_for_sanitizers+='|^lab: the script|^schedule: blocks per multiprocessor |^ranks: the parts of a case '
not_for_sanitizers+='|^mask types: (gradients|column)' # the first of them, a rule of two, has each kind of type
with_clang() {
    local all_tests=OFF
    if [ "$mode" = --all ]; then all_tests=ON; fi  # once a night clang++ compiles those that it does not run
    if ! have clang++; then
        skip 'lab under clang++, address and undefined sanitizers' 'there is no clang++'
    elif step 'build under clang++, address and undefined sanitizers' cpu_build with-clang tests \
        -DCMAKE_CXX_COMPILER=clang++ -DLADDER_SANITIZE=address,undefined -DLADDER_ALL_TESTS="$all_tests"; then
        # A fiber that is given up takes what it holds along.
        export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ASAN_OPTIONS=detect_leaks=0
        unless_kept 'under clang++ and sanitizers' "$build/with-clang/tests/tests" "$build/with-clang/lab" \
            "$build/with-clang/kernels.json" stages tests docs/results lab -- under_sanitizers
    fi
}
under_sanitizers() {
    suite 'quick tests, clang++ and sanitizers' "$build/with-clang" -L quick -E "$not_for_sanitizers"
    step 'the algorithm, quick cases, clang++ and sanitizers' "$build/with-clang/lab" verify 0-7 --quick --backend cpu
}
# It configures the build anew, which clang++'s, in a folder of its own, does not need.
python_package() {
    local package_python
    if package_python=$(tests/python_env.sh "$build" 2> "$logs/python_env.log"); then
        step 'the Python package' tests/python.sh "$build" "$package_python"
        sed -n 's/^SKIPPED \[[0-9]*\] //p' "$logs/the_Python_package.log" | sort -u |
            while read -r what; do not_tested "of the Python package: $what"; done
    else
        skip 'the Python package' "nanobind, numpy or pytest is missing: $logs/python_env.log"
    fi
    sed -n 's/^python_env.sh: //p' "$logs/python_env.log" | while read -r what; do not_tested "of the Python package: $what"; done
}
# The kernels are libraries of their own, so those that the race checker watches run beside the others.
in_all_orders() {
    step 'every stage, quick cases, race-checked, in all orders' "$build/lab" verify --kept --quick --backend checked --orders
}
# Every two levels of the cases meet, and all corners; --all has them at each head dimension (tests/README.md, The cases).
cases() {
    if [ "$mode" = --all ]; then
        step 'every stage, all cases' "$build/lab" verify --kept --backend cpu
    else
        step 'every stage, all pairs' "$build/lab" verify --kept --pairs --backend cpu
        step 'every stage, offsets past 2^31' "$build/lab" verify --kept --layout far --backend cpu
    fi
}

# --- The sources, the notebooks and the pages; and the course, as a newcomer follows it ------------------------------

pages() {
    mapfile -t sources < <(find course harness python reference simt stages tests \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) | sort)
    # Releases of clang-format differ in details, so one of them decides: Debian 12's.
    if clang-format --version 2> /dev/null | grep -q 'version 14\.'; then
        step 'clang-format' clang-format --dry-run -Werror "${sources[@]}"
    else
        skip 'clang-format' 'there is no clang-format 14'
    fi
    mapfile -t scripts < <(find lab .ci/run notebooks tests docs/course -name '*.sh' -o -path lab -o -path .ci/run -o -name run_autograder | sort)
    if have shellcheck; then
        step 'shellcheck' shellcheck "${scripts[@]}"
    else
        skip 'shellcheck' 'there is no shellcheck'
    fi

    if has_cpu && notebooks/find_python.sh > /dev/null; then
        step 'notebooks' tests/notebooks.sh "$build"
    else
        skip 'notebooks' 'ipykernel, matplotlib, nbclient, nbformat or numpy is missing'
    fi

    if ! have doxygen || [ ! -d /usr/share/javascript/katex ]; then
        skip 'site' 'there is no doxygen or no KaTeX'
    elif ! site_python=$(tests/find_python.sh markdown_it mdit_py_plugins pygments); then
        skip 'site' 'markdown-it, mdit-py-plugins or Pygments is missing'
    else
        step 'site: its parts' "$site_python" tests/test_site.py
        step 'site: no warning, and every link leads somewhere' \
            "$site_python" docs/site/build.py "$build/lab" "$build/docs/html"
    fi

    if has_cpu && have chromium && have chromedriver && browser_python=$(tests/find_python.sh selenium); then
        site=()
        if [ -e "$build/docs/html/search_index.js" ]; then site=(--site "$build/docs/html"); fi
        step 'the schedule explorer and the site in Chromium' "$browser_python" tests/explorer.py "$build/lab" "${site[@]}"
    else
        skip 'the schedule explorer and the site in Chromium' 'chromium, chromium-driver or python3-selenium is missing'
    fi
}
guides() { step 'guides and a hand-out of their own' tests/guides.sh "$build"; }

# --- The kernels under nvcc ----------------------------------------------------------------------------------------

under_nvcc() {
    nvcc=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
    if ! have "$nvcc"; then
        skip 'every stage under nvcc' 'there is no nvcc'
        return
    fi
    has_fast_compile=no
    if "$nvcc" --help | grep -q -e --Ofast-compile; then has_fast_compile=yes; fi  # older ones have not
    alone=$logs/alone
    export nvcc logs root alone has_fast_compile
    unless_kept 'every stage under nvcc' "$(readlink -f "$nvcc")" stages simt/hopper.h simt/cuda.h tests/all.sh "$build/lab" -- \
        step 'every stage under nvcc' nvcc_stages
}

# --- Those that were asked for, two at a time where each keeps one processor ------------------------------------------

wanted() { [[ $groups = *,$1,* ]]; }
# pair GROUP FUNCTION GROUP FUNCTION: both, if both groups are wanted, at the same time
pair() {
    if wanted "$1" && wanted "$3"; then
        side_by_side "$2" "$4"
    else
        if wanted "$1"; then "$2"; fi
        if wanted "$3"; then "$4"; fi
    fi
}

if ! has_cpu; then
    for group in mutants python sanitizers stages guides; do
        if wanted $group; then skip "$group" 'Boost.Context is not installed'; fi
        groups=${groups/,$group,/,}
    done
fi
if wanted tests; then all_tests; fi
if wanted mutants; then all_mutants; fi
pair python python_package sanitizers with_clang
pair stages cases stages in_all_orders
pair guides guides pages pages
if wanted nvcc; then under_nvcc; fi
summary
