# One GPU, about 520 s: what 2026-11-28 left. Uploads before it on the same machine: (.peer .whl4) mkdir -p /tmp/p; cp .whl4/part.aa /tmp/p/;
# (.peer .whl .fi) mkdir -p /tmp/fi; cp -r .whl /tmp/whl; tar xf .fi/flashinfer.tar.xz -C /tmp/fi; then carry .peer .whl4b .pyw .fa with this.
T0=$(date +%s); export T0
R=/tmp/r; mkdir -p $R .whl; cp -n /tmp/whl/* .whl/ 2>/dev/null; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
at() { echo "#### $1 at $(( $(date +%s)-T0 ))"; }
left() { [ $(( $(date +%s)-T0+$1 )) -lt 585 ]; }
exec > $OUT/log.txt 2>&1
( unset LADDER_BUILD; export LADDER_COMMIT=$(cat .peer/commit); PYTHONPATH= LIMIT=200 WHEELS=$PWD/.pyw sh tests/python_gpu.sh $R/py /tmp/pyb build > $R/pyb.txt 2>&1; touch /tmp/pyb.done ) &
. .peer/build.sh lab; set +e
export FLASHINFER_WORKSPACE_BASE=/tmp PYTHONPATH=/tmp/fi:$PYTHONPATH
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times|^Over|^commit|^peers" | cut -c1-130; }
C=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | grep -oE 'H[12]00' | tr H h)
P=$(PYTHONPATH= sh tests/find_python.sh torch)
PYE="env LADDER_BUILD=/tmp/pyb FLASH_LADDER_CACHE=/tmp/pyb/python-kernels PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/tmp/pyb/python:/tmp/pyb/wheels HF_HUB_OFFLINE=1"
( while [ ! -e /tmp/pyb.done ]; do sleep 1; done; timeout 150 $PYE $P -c "import flash_ladder; flash_ladder.prepare(['17','26','36','37','38','39','55','57','61','65','66','67','68','60','64','97','99','80','81','5','43'], 'gpu')"; echo "prepared $? at $(( $(date +%s)-T0 ))"; touch /tmp/prepared ) &
at built
PS=--peers=FlashAttention-4,FlashInfer
step timeout 110 $L time 81 --regime pages $PS --json $R/$C-pages.json 2>&1 | tail -40 | q; save; at pages
step timeout 120 $L time 98 --regime backward-tiles --peers=FlashAttention-4,flex --json $R/$C-backward-tiles.json 2>&1 | q; save; at btiles
for g in train long narrow wide; do step timeout 35 $L time 36 70 72 75 77 --regime $g --peers=FlashAttention-3-FP8,FlashAttention-3 --json $R/$C-fp8-$g.json 2>&1 | q; save; done; at fp8
while [ ! -e /tmp/prepared ]; do sleep 1; done
left 150 && { timeout -s INT 200 env LADDER_COMMIT=$(cat .peer/commit) PEER_COMMIT=$(cat .fa/commit) PYTHON=$P LADDER_PYTHON=$P $PYE sh tests/peer_tests.sh .fa --sample 2000 --json $R/$C-peer-tests.json -k 0.17 > $R/fa.txt 2>&1; tail -9 $R/fa.txt | cut -c1-160; save; at fatests; }
left 40 && step timeout 60 $L profile 37-39,97,99 --regime draft 2>&1 | tail -5
save; at end
