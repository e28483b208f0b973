#!/bin/sh
# Everything that only a GPU can tell, in one call: builds, verifies, tests, sanitizes and times.
#
#     tests/gpu.sh OUT [BUILD]
#     tests/gpu.sh --peers PREFILL DECODE OUT [BUILD]
#
# Writes to the folder OUT: log.txt with the output of every step and a summary at its end, verify.json,
# sanitizer.json, profile.json, and the measurements time.json (all regimes), time-8k.json and time-8k-causal.json
# (B = 2, 16 heads of 128, N = 8k), and standard.json and standard-bytes.json (01 and 05 against standard attention).
# With --peers it times only, in turn with PyTorch's attention and, where installed, FlashAttention-3 and -4:
# time.json, and the sweeps prefill.json and prefill-fp16.json of the stages PREFILL, serving.json and
# serving-odd.json of the stages DECODE ("26", "13,14,17"), prefill-stages.json of the stages for long queries without
# the peers, prefill-hopper.json of the 30s, prefill-odd.json of the last rungs for long queries, few-rows.json of
# those that the default stage is chosen from, gradients.json of 46 and the 50s, gradients-odd.json, rising.json and
# causal-small.json, leave-one-out.json (05 without one change each), and papers.json, a part of the first of these
# sweeps with a few stages and all peers; compiling flex attention takes most of its minutes. FlashAttention-4 is
# compiled in each step, which takes a minute or two; with FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1 it keeps what it
# compiled.
# A step that fails does not keep the others from running. Exits with 1 if one did. The build is incremental: a second
# call with the same BUILD is quick to start.
set -u

prefill=
if [ "${1:-}" = --peers ] && [ $# -ge 4 ]; then
    prefill=$2 decode=$3
    shift 3
fi
if [ $# -lt 1 ] || [ "$1" = --peers ]; then
    echo "usage: $0 [--peers PREFILL DECODE] OUT [BUILD]" >&2
    exit 2
fi
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
mkdir -p "$1" "${2:-$root/build-gpu}" || exit 2
out=$(readlink -f -- "$1")
build=$(readlink -f -- "${2:-$root/build-gpu}")
PATH=$PATH:/usr/local/cuda/bin
lab=$build/lab
# shellcheck source=tests/steps.sh
. "$root/tests/steps.sh"

generator=
if command -v ninja > /dev/null; then generator='-G Ninja'; fi
# shellcheck disable=SC2086  # no word or two
step configure 60 cmake -S "$root" -B "$build" $generator -DCMAKE_BUILD_TYPE=Release
step build 300 cmake --build "$build" --parallel "$(nproc)"
step doctor 30 "$lab" doctor
if [ -n "$prefill" ]; then
    step time 480 "$lab" time all --peers --json "$out/time.json"
    step prefill 240 "$lab" time "$prefill" --regime prefill --peers --json "$out/prefill.json"
    step prefill-fp16 240 "$lab" time "$prefill" --regime prefill --peers --dtype fp16 --json "$out/prefill-fp16.json"
    step prefill-stages 120 "$lab" time 20-26 --regime prefill --json "$out/prefill-stages.json"
    step prefill-hopper 300 "$lab" time 26,30-36 --regime prefill --peers --json "$out/prefill-hopper.json"
    step prefill-odd 150 "$lab" time 26,36 --regime prefill-odd --peers --json "$out/prefill-odd.json"
    step serving 180 "$lab" time "$decode" --regime serving --peers --json "$out/serving.json"
    step serving-odd 180 "$lab" time "$decode" --regime serving-odd --peers --json "$out/serving-odd.json"
    step few-rows 300 "$lab" time 10,16,17,26,36-38 --regime few-rows --json "$out/few-rows.json"
    step draft 480 "$lab" time 17,36-38 --regime draft --json "$out/draft.json"
    step caches 240 "$lab" time 80,81,83,84 --regime caches --json "$out/caches.json"
    step caches-wide 240 "$lab" time 80,81,84,85 --regime caches-wide --json "$out/caches-wide.json"
    step caches-between 120 "$lab" time 80,81,84,85 --regime caches-between --json "$out/caches-between.json"
    step cache-scores 30 "$lab" time 85 --regime cache-scores --json "$out/cache-scores.json"
    step cache-trees 30 "$lab" time 85 --regime cache-trees --json "$out/cache-trees.json"
    step paged-e4m3 30 "$lab" time 81,82 --regime paged-e4m3 --json "$out/paged-e4m3.json"
    step e4m3-scales 30 "$lab" time 82 --regime e4m3-scales --json "$out/e4m3-scales.json"
    step rising 40 "$lab" time 22,23,26 --regime rising --json "$out/rising.json"
    step scores 60 "$lab" time 36,65,96 --regime scores --peers --json "$out/scores.json"
    step causal-small 40 "$lab" time 4-5 --regime causal-small --json "$out/causal-small.json"
    step gradients 480 "$lab" time 46,50-59 --regime gradients --peers --json "$out/gradients.json"
    step gradients-odd 240 "$lab" time 51,55,57-59 --regime gradients-odd --peers --json "$out/gradients-odd.json"
    step backward-scores 60 "$lab" time 55,66,97,99 --regime backward-scores --peers --json "$out/backward-scores.json"
    step leave-one-out 90 "$lab" time 0-5,90-93 --all --json "$out/leave-one-out.json"
    step papers 480 "$lab" time 0,1,5,26 --regime papers --peers=all --json "$out/papers.json"
else
    step verify 90 "$lab" verify --backend gpu --json "$out/verify.json"
    step time 240 "$lab" time all --json "$out/time.json"
    step time-8k 60 "$lab" time all --shape 2,16,16,8192,8192,128 --json "$out/time-8k.json"
    step time-8k-causal 60 "$lab" time all --shape 2,16,16,8192,8192,128 --causal --json "$out/time-8k-causal.json"
    step standard 120 "$lab" time 0,1,5 --regime standard --json "$out/standard.json"
    step standard-bytes 180 "$lab" profile 0,1,5 --regime standard --bytes --limit 175 --json "$out/standard-bytes.json"
    step profile 240 "$lab" profile --limit 235 --json "$out/profile.json"
    step sanitize 480 "$root/tests/sanitize.py" "$lab" "$out/sanitizer.json"
    step tests 120 ctest --test-dir "$build" -L quick --output-on-failure --no-tests=error --parallel 4
fi

finish_steps
