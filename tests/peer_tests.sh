#!/bin/sh
# The FlashAttention project's own tests, run against the package: those of problems that a stage takes.
#
#     tests/peer_tests.sh CHECKOUT [--json FILE] [--sample N] [PYTEST ARGUMENT]...
#
# CHECKOUT is a copy of https://github.com/Dao-AILab/flash-attention; its tests/test_flash_attn.py and
# flash_attn/bert_padding.py are read, and nothing of it is built. --sample draws N of the tests, always the same ones.
# --json writes the record for docs/results. Says how many passed, and what was left out, by reason. Exit code 1 if a test
# failed, 3 without a GPU, PyTorch, pytest and einops, or without the package: installed, or in $LADDER_BUILD
# [build-gpu-python], where tests/python_gpu.sh builds it. $LADDER_PYTHON names the Python; of copies that are no
# repositories, LADDER_COMMIT and PEER_COMMIT name the commits.
set -u

usage() {
    echo "usage: $0 CHECKOUT [--json FILE] [--sample N] [PYTEST ARGUMENT]..." >&2
    exit 2
}
cannot_run() {
    echo "peer_tests.sh: $*" >&2
    exit 3
}

case ${1:-} in '' | -*) usage ;; esac
checkout=$1 json='' sample=''
shift
while [ $# -gt 0 ]; do
    case $1 in
        --json) [ $# -ge 2 ] || usage; json=$2 ;;
        --sample) [ $# -ge 2 ] || usage; sample=$2 ;;
        *) break ;;
    esac
    shift 2
done
case $sample in *[!0-9]*) usage ;; esac
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
tests=$checkout/tests/test_flash_attn.py padding=$checkout/flash_attn/bert_padding.py
for file in "$tests" "$padding"; do
    if [ ! -f "$file" ]; then
        echo "peer_tests.sh: there is no $file: CHECKOUT is a copy of github.com/Dao-AILab/flash-attention" >&2
        exit 2
    fi
done
if [ -n "$json" ] && ! : >> "$json"; then exit 2; fi

build=$(readlink -f -- "${LADDER_BUILD:-$root/build-gpu-python}")
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$build/python:$build/wheels" PYTHONDONTWRITEBYTECODE=1
python=$("$root/tests/find_python.sh" torch pytest einops) || cannot_run "no Python here has PyTorch, pytest and einops"
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || cannot_run "PyTorch finds no GPU here"
"$python" -c 'import flash_ladder' 2> /dev/null ||
    cannot_run "no package flash_ladder: pip install ./python, or tests/python_gpu.sh OUT"

folder=$(mktemp -d) || exit 3
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
cp -R "$root/tests/peer_tests/." "$folder"
cp "$tests" "$folder"
cp "$padding" "$folder/flash_attn"
commit() {  # a copy may lie in another repository
    if [ ! -e "$1/.git" ] || ! git -C "$1" rev-parse HEAD 2> /dev/null; then echo unknown; fi
}
export PEER_TESTS_JSON="${json:+$(readlink -f -- "$json")}" PEER_TESTS_SAMPLE="$sample"
PEER_COMMIT=${PEER_COMMIT:-$(commit "$checkout")} LADDER_COMMIT=${LADDER_COMMIT:-$(commit "$root")}
export PEER_COMMIT LADDER_COMMIT
cd "$folder" || exit 3
"$python" -m pytest -q -p no:cacheprovider "$@" test_flash_attn.py
