#!/bin/sh
# Everything of the Python package that needs a GPU, in one call: builds it, tests it, trains and measures.
#
#     tests/python_gpu.sh OUT [BUILD]
#
# The Python is $PYTHON, or the first on PATH that has PyTorch. nanobind's wheel, if that Python has not nanobind, is
# looked for in $WHEELS, and so are pytest's. Writes to the folder OUT: log.txt, and python.json, the record for
# docs/results: the overhead of a call, tokens per second of a Llama, and the training of the last rungs, of 05 and 40,
# and of 26 and 42. A step that fails does not keep the others from running. Exits with 1 if one did. LADDER_COMMIT names the commit.
set -u

if [ $# -lt 1 ]; then
    echo "usage: $0 OUT [BUILD]" >&2
    exit 2
fi
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
mkdir -p "$1" "${2:-$root/build-gpu}" || exit 2
out=$(readlink -f -- "$1")
build=$(readlink -f -- "${2:-$root/build-gpu}")
PATH=$PATH:/usr/local/cuda/bin
python=${PYTHON:-$("$root/tests/find_python.sh" torch)} || { echo "no Python here has PyTorch" >&2; exit 3; }
# Wheels of pure Python can be imported from a folder.
mkdir -p "$build/wheels"
for wheel in "${WHEELS:-$root/build-wheels}"/*.whl; do
    [ -e "$wheel" ] && "$python" -m zipfile -e "$wheel" "$build/wheels"
done
export LADDER_BUILD="$build" FLASH_LADDER_CACHE="$build/python-kernels" HF_HUB_OFFLINE=1
export PYTHONPATH="$build/python:$build/wheels${PYTHONPATH:+:$PYTHONPATH}"
failed=0
summary=
: > "$out/log.txt"

# step NAME SECONDS COMMAND...: runs the command for so long at most
step() {
    name=$1 limit=$2
    shift 2
    printf '\n=== %s: %s\n' "$name" "$*" | tee -a "$out/log.txt"
    began=$(date +%s)
    timeout "$limit" "$@" > "$out/step.txt" 2>&1
    status=$?
    cat "$out/step.txt" >> "$out/log.txt"
    tail -n 40 "$out/step.txt"
    rm -f "$out/step.txt"
    outcome=ok
    if [ $status = 124 ]; then outcome="stopped after $limit s"; elif [ $status != 0 ]; then outcome="exit code $status"; fi
    if [ $status != 0 ]; then failed=1; fi
    summary=$summary$(printf '%-14s %4d s  %s' "$name" $(($(date +%s) - began)) "$outcome")'
'
}

generator=
if command -v ninja > /dev/null; then generator='-G Ninja'; fi
# shellcheck disable=SC2086  # no word or two
step configure 60 cmake -S "$root" -B "$build" $generator -DLADDER_PYTHON=ON "-DPython_EXECUTABLE=$python"
step build 300 cmake --build "$build" --parallel "$(nproc)" --target python_package
step train 150 "$python" "$root/examples/train_gpt.py" --json "$out/train.json"
trained=$out/train.json
for pair in 5:40 26:42; do
    file=$out/train-$pair.json
    step "train-$pair" 80 "$python" "$root/examples/train_gpt.py" --stage "${pair%:*}" --backward-stage "${pair#*:}" \
        --json "$file"
    trained="$trained $file"
done
# shellcheck disable=SC2086  # a list of files
step measure 180 "$python" "$root/tests/python/measure.py" "$out/python.json" $trained
step tests 300 "$python" -m pytest -q -rs -p no:cacheprovider "$root/tests/python"

printf '\n%s' "$summary" | tee -a "$out/log.txt"
exit $failed
