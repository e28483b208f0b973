# Two GPUs, 300 s. carry .peer .pyw
T0=$(date +%s); R=/tmp/r; mkdir -p $R; exec > $OUT/log.txt 2>&1
save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }; at() { echo "#### $1 at $(( $(date +%s)-T0 ))"; }
left() { [ $(( $(date +%s)-T0+$1 )) -lt ${END:-305} ]; }
export NCCL_NVLS_ENABLE=0 LADDER_COMMIT=$(cat .peer/commit)
( unset LADDER_BUILD; LIMIT=200 WHEELS=$PWD/.pyw sh tests/python_gpu.sh $R/py /tmp/pyb build compile > $R/pyb.txt 2>&1; touch /tmp/pyb.done ) &
. .peer/build.sh lab; set +e
export LD_LIBRARY_PATH=$(ls -d /opt/torch/.venv/lib/python3*/site-packages/nvidia/nccl/lib 2>/dev/null | head -1):$LD_LIBRARY_PATH
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times|^Over|^commit|^peers" | cut -c1-130; }
C=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | grep -oE 'H[12]00' | tr H h)
at built
timeout 40 $L time 89 --ranks 2 --shape 1,32,8,1,1048576,128 --json $R/$C-x2-1m.json 2>&1 | q; at 1M-2
CUDA_VISIBLE_DEVICES=0 timeout 40 $L time 17 --shape 1,32,8,1,1048576,128 --json $R/$C-x1-1m.json 2>&1 | q; save; at 1M-1
while [ ! -e /tmp/pyb.done ]; do sleep 1; done; at pyb
P=$(sh tests/find_python.sh torch)
ring() { timeout $2 env LADDER_BUILD=/tmp/pyb PYTHONPATH=/tmp/pyb/python:/tmp/pyb/wheels FLASH_LADDER_CACHE=/tmp/pyb/python-kernels $P -m torch.distributed.run --standalone --nproc-per-node 2 tests/python/measure_ring.py --lengths $1 --repeats $3 --json $R/$C-ring.json 2>&1 | grep -E "^N|^  [a-zA-Z]|Error" | cut -c1-170; save; at "ring $1"; }
ring 262144 150 3
left 30 && ring 65536 45 3
left 25 && ring 16384 30 5
left 20 && timeout 50 compute-sanitizer --tool memcheck --report-api-errors no $L verify 89 --backend gpu --ranks 2 --shape 1,8,2,4,3001,128 --causal > $R/san89.txt 2>&1; grep "ERROR SUM" $R/san89.txt; tail -3 $R/san89.txt | cut -c1-150; at memcheck
save; at end
