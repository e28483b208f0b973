# Two GPUs, about 300 s: ring at 256k, 1M keys on one and two, memcheck of 89. carry .peer .pyw
T0=$(date +%s); R=/tmp/r; mkdir -p $R; exec > $OUT/log.txt 2>&1
save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }; at() { echo "#### $1 at $(( $(date +%s)-T0 ))"; }
export NCCL_NVLS_ENABLE=0 LADDER_COMMIT=$(cat .peer/commit)
( unset LADDER_BUILD; LIMIT=200 WHEELS=$PWD/.pyw sh tests/python_gpu.sh $R/py /tmp/pyb build compile > $R/pyb.txt 2>&1; touch /tmp/pyb.done ) &
. .peer/build.sh lab; set +e
export LD_LIBRARY_PATH=$(ls -d /opt/torch/.venv/lib/python3*/site-packages/nvidia/nccl/lib 2>/dev/null | head -1):$LD_LIBRARY_PATH
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times|^Over|^commit|^peers" | cut -c1-130; }
timeout 60 $L time 89 --ranks 2 --shape 1,32,8,1,1048576,128 --json $R/h200-x2-1m.json 2>&1 | q
CUDA_VISIBLE_DEVICES=0 timeout 60 $L time 17 --shape 1,32,8,1,1048576,128 --json $R/h200-x1-1m.json 2>&1 | q; save; at 1M
timeout 60 compute-sanitizer --tool memcheck --report-api-errors no $L verify 89 --backend gpu --ranks 2 --shape 1,8,2,4,3001,128 --causal > $R/san89.txt 2>&1; grep "ERROR SUM" $R/san89.txt; at memcheck
while [ ! -e /tmp/pyb.done ]; do sleep 1; done
P=$(sh tests/find_python.sh torch); cp docs/results/h200-ring.json $R/h200-ring.json  # only if the commit is the same; else record 16384,65536 again
for n in 16384 65536 262144; do timeout 200 env LADDER_BUILD=/tmp/pyb PYTHONPATH=/tmp/pyb/python:/tmp/pyb/wheels FLASH_LADDER_CACHE=/tmp/pyb/python-kernels $P -m torch.distributed.run --standalone --nproc-per-node 2 tests/python/measure_ring.py --lengths $n --repeats 3 --json $R/ring.json 2>&1 | grep -E "^N|^  [a-zA-Z]|Error" | cut -c1-170; save; at "ring $n"; done
for s in 85,87 ; do timeout 60 $L time $s --ranks 2 --shape 1,32,8,262144,262144,128 --causal --json $R/h200-x2-256k-causal.json 2>&1 | q; done
save; at end
