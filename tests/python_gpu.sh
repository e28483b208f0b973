#!/bin/sh
# What of the Python package needs a GPU, in one call of 360 seconds at most: builds it, trains, measures, tests.
#
#     tests/python_gpu.sh OUT [BUILD [STEP]...]       build compile train measure tests, or these steps; also triton,
#                                                     which verifies and times examples/triton: OUT/triton.json; and
#                                                     ring, on all GPUs of a host: the tests of ring attention, a
#                                                     training that divides its context, and times: OUT/ring.json;
#                                                     it needs LIMIT=590 and what `compile` has compiled; and fp8, a
#                                                     prefill in 8 bits: OUT/fp8-prefill.json; append,
#                                                     what new rows of a cache cost: OUT/append.json; and torch, before a change
#                                                     is merged: all tests with arrays on the GPU, and once more with
#                                                     arrays in the CPU's memory; it needs LIMIT=590. Or the name of one
#                                                     step as the log has it: ring-times
#
# The Python is $PYTHON, or the first on PATH that has PyTorch. nanobind's wheel, if that Python has not nanobind, is
# looked for in $WHEELS, and so are pytest's. Writes to the folder OUT: log.txt, and python.json, the record for
# docs/results: the training of stages from the naive ones to the last rungs, the overhead of a call, tokens per second of
# a Llama. A step that fails, or takes too long, does not keep the others from running, as long as some of $LIMIT [360]
# seconds is left. Exits with 1 if one did. With the same BUILD a second call begins where the first one ended. LADDER_COMMIT
# names the commit. LENGTHS=65536 times rings of these tokens alone; OUT/ring.json keeps its other lengths.
set -u

if [ $# -lt 1 ]; then
    echo "usage: $0 OUT [BUILD [STEP]...]" >&2
    exit 2
fi
until=$(($(date +%s) + ${LIMIT:-360}))
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
mkdir -p "$1" "${2:-$root/build-gpu-python}" || exit 2
out=$(readlink -f -- "$1")
build=$(readlink -f -- "${2:-$root/build-gpu-python}")
if [ $# -gt 2 ]; then shift 2; wanted=" $* "; else wanted=' build compile train measure tests '; fi
PATH=$PATH:/usr/local/cuda/bin
python=${PYTHON:-$("$root/tests/find_python.sh" torch)} || { echo "no Python here has PyTorch" >&2; exit 3; }
# Wheels of pure Python can be imported from a folder.
mkdir -p "$build/wheels"
for wheel in "${WHEELS:-$root/build-wheels}"/*.whl; do
    [ -e "$wheel" ] && "$python" -m zipfile -e "$wheel" "$build/wheels"
done
export XLA_PYTHON_CLIENT_PREALLOCATE=false  # JAX would take most of the GPU's memory from PyTorch
export LADDER_BUILD="$build" FLASH_LADDER_CACHE="$build/python-kernels" HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$build/python:$build/wheels${PYTHONPATH:+:$PYTHONPATH}"
# shellcheck source=tests/steps.sh
. "$root/tests/steps.sh"

# A step, if it is wanted, by its name or its group's
wanted_step() {
    case $wanted in *" ${1%%-*} "* | *" $1 "*) step "$@" ;; esac
}

generator=
if command -v ninja > /dev/null; then generator='-G Ninja'; fi
# shellcheck disable=SC2086  # no word or two
wanted_step build-configure 20 cmake -S "$root" -B "$build" $generator -DLADDER_LAB=OFF \
    -DLADDER_PYTHON=ON "-DPython_EXECUTABLE=$python"
wanted_step build 80 cmake --build "$build" --parallel "$(nproc)" --target python_package
wanted_step compile 60 "$python" "$root/tests/python/measure.py" --compile
set -- "$out/train.json" "$out/train-5.json"
wanted_step train 40 "$python" "$root/examples/train_gpt.py" --steps 200 --json "$out/train.json"
wanted_step train-5 40 "$python" "$root/examples/train_gpt.py" --steps 200 --stage 5 --backward-stage 43 \
    --json "$out/train-5.json"
# Where the time of a step shows the stage: the last rungs, the last ones of mma.sync, down to standard attention
for pair in 36:55 26:46 5:43 4:41 0:40; do
    stage=${pair%:*}
    wanted_step "train-long-$stage" 30 "$python" "$root/examples/train_gpt.py" --context 2048 --batch 16 --steps 5 \
        --stage "$stage" --backward-stage "${pair#*:}" --json "$out/train-long-$stage.json"
    set -- "$@" "$out/train-long-$stage.json"
done
wanted_step measure 80 "$python" "$root/tests/python/measure.py" "$out/python.json" "$@"
wanted_step triton 420 "$python" "$root/examples/triton/time_triton.py" --json "$out/triton.json"
wanted_step fp8-prefill 240 "$python" "$root/examples/fp8_prefill.py" --json "$out/fp8-prefill.json"
wanted_step append 180 "$python" "$root/tests/python/measure_append.py" "$out/append.json"
set -- "$python" -m torch.distributed.run --standalone --nproc-per-node
export NCCL_NVLS_ENABLE=0
wanted_step ring-tests 240 "$python" -m pytest -q -rs -p no:cacheprovider "$root/tests/python/test_distributed.py"
wanted_step ring-train 60 "$@" 2 "$root/examples/train_gpt.py" --context-parallel 2 --steps 200 --json "$out/ring-train.json"
wanted_step ring-times 420 "$@" gpu "$root/tests/python/measure_ring.py" --json "$out/ring.json" \
    ${LENGTHS:+--lengths "$LENGTHS"}
wanted_step tests 80 "$python" -m pytest -q -rs -p no:cacheprovider "$root/tests/python"
# What was run stands in the log: versions and devices, each test that was skipped and why, and how many passed.
wanted_step torch-versions 60 "$python" -c 'import platform, torch, transformers; print(
    platform.python_version(), "PyTorch", torch.__version__, "transformers", transformers.__version__,
    *(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())))'
parallel=
if "$python" -c 'import xdist' 2> /dev/null; then parallel="-n $(nproc)"; fi
# shellcheck disable=SC2086  # no word or two
wanted_step torch-gpu 240 "$python" -m pytest $parallel -q -rs -p no:cacheprovider "$root/tests/python"
# shellcheck disable=SC2086
wanted_step torch-cpu 400 env CUDA_VISIBLE_DEVICES= "$python" -m pytest $parallel -q -rs -p no:cacheprovider "$root/tests/python"

finish_steps
