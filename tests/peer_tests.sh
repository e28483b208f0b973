#!/bin/sh
# The FlashAttention project's own tests, run against the package: those of problems that a stage takes.
#
#     tests/peer_tests.sh CHECKOUT --count
#     tests/peer_tests.sh CHECKOUT [--json FILE] [--sample N] [--seconds N] [PYTEST ARGUMENT]...
#
# CHECKOUT is a copy of https://github.com/Dao-AILab/flash-attention; of it tests/test_flash_attn.py and three files of
# flash_attn are read, and nothing is built. --count says how many of the tests a stage takes, how many skip themselves, and
# why the others are left out; without a GPU, as for one of compute capability 9.0. --sample draws N of the tests, always
# the same ones; --seconds starts none after that time. With pytest-xdist `-n 12` runs them in 12 processes, which take the
# host's GPUs in turns. --json writes the record for docs/results. Exit code 1 if a test failed, 3 without a GPU, PyTorch,
# pytest and einops, or without the package: installed, or in $LADDER_BUILD [build-gpu-python], where tests/python_gpu.sh
# builds it. $LADDER_PYTHON names the Python; of copies that are no repositories, LADDER_COMMIT and PEER_COMMIT name the
# commits.
set -u

usage() {
    echo "usage: $0 CHECKOUT [--count] [--json FILE] [--sample N] [--seconds N] [PYTEST ARGUMENT]..." >&2
    exit 2
}
cannot_run() {
    echo "peer_tests.sh: $*" >&2
    exit 3
}

case ${1:-} in '' | -*) usage ;; esac
checkout=$1 count='' json='' sample='' seconds=''
shift
while [ $# -gt 0 ]; do
    case $1 in
        --count) count=1 && shift && continue ;;
        --json | --sample | --seconds) [ $# -ge 2 ] || usage ;;
        *) break ;;
    esac
    case $1 in
        --json) json=$2 ;;
        --sample) sample=$2 ;;
        --seconds) seconds=$2 ;;
    esac
    shift 2
done
case $sample$seconds in *[!0-9]*) usage ;; esac
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
files='tests/test_flash_attn.py flash_attn/bert_padding.py flash_attn/layers/rotary.py flash_attn/ops/triton/rotary.py'
for file in $files; do
    if [ ! -f "$checkout/$file" ]; then
        echo "peer_tests.sh: there is no $checkout/$file: CHECKOUT is a copy of github.com/Dao-AILab/flash-attention" >&2
        exit 2
    fi
done
if [ -n "$json" ] && ! : >> "$json"; then exit 2; fi

build=$(readlink -f -- "${LADDER_BUILD:-$root/build-gpu-python}")
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$build/python:$build/wheels" PYTHONDONTWRITEBYTECODE=1
python=$("$root/tests/find_python.sh" torch pytest einops) || cannot_run "no Python here has PyTorch, pytest and einops"
[ -n "$count" ] || "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
    cannot_run "PyTorch finds no GPU here"
"$python" -c 'import flash_ladder' 2> /dev/null ||
    cannot_run "no package flash_ladder: pip install ./python, or tests/python_gpu.sh OUT"

folder=$(mktemp -d) || exit 3
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
cp -R "$root/tests/peer_tests/." "$folder"
mkdir -p "$folder/flash_attn/layers" "$folder/flash_attn/ops/triton"
for file in $files; do cp "$checkout/$file" "$folder/${file#tests/}"; done
commit() {  # a copy may lie in another repository
    if [ ! -e "$1/.git" ] || ! git -C "$1" rev-parse HEAD 2> /dev/null; then echo unknown; fi
}
export PEER_TESTS_JSON="${json:+$(readlink -f -- "$json")}" PEER_TESTS_SECONDS="$seconds"
PEER_COMMIT=${PEER_COMMIT:-$(commit "$checkout")} LADDER_COMMIT=${LADDER_COMMIT:-$(commit "$root")}
export PEER_COMMIT LADDER_COMMIT
cd "$folder" || exit 3
if [ -n "$count" ]; then
    "$python" choose.py
    exit
fi
export PEER_TESTS_PLAN="$folder/plan.json"
# shellcheck disable=SC2086  # a number or nothing
"$python" choose.py "$PEER_TESTS_PLAN" $sample || exit
"$python" -m pytest -q -p no:cacheprovider "$@" test_flash_attn.py
