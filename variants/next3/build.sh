export PATH=$PATH:/usr/local/cuda/bin LADDER_BUILD=/tmp/ladder
export FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1
export LADDER_COMMIT=$(cat .peer/commit)
mkdir -p $LADDER_BUILD
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
t0=$(date +%s)
{ cmake -S . -B $LADDER_BUILD -G Ninja -DCMAKE_BUILD_TYPE=Release > /tmp/cfg.log 2>&1 || tail -20 /tmp/cfg.log; cmake --build $LADDER_BUILD --parallel 16 --target ${1:-lab} > /tmp/build.log 2>&1 || tail -40 /tmp/build.log; }
t1=$(date +%s); echo "build $((t1-t0)) s"
if ls .whl/*.whl > /dev/null 2>&1; then python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl; fi
if [ -e .whl4b/part.ab ] && [ -e /tmp/p/part.aa ] && [ ! -d /tmp/fa4 ]; then mkdir -p /tmp/fa4; cat /tmp/p/part.aa .whl4b/part.ab | xz -dc -T16 | tar -C /tmp/fa4 -xf -; fi
export PYTHONPATH=/tmp/site:/tmp/fa4:/tmp/fa4/nvidia_cutlass_dsl:/tmp/fa4/nvidia_cutlass_dsl/dsl_packages
L=$LADDER_BUILD/lab
step() { s=$(date +%s); echo "== $*"; "$@"; r=$?; echo "== rc $r, $(( $(date +%s)-s )) s"; }
