# after a1.sh on the same machine; carry .peer .pyw .fa
T0=$(date +%s); export T0
R=/tmp/r; mkdir -p $R; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
at() { echo "#### $1 at $(( $(date +%s)-T0 ))"; }
left() { [ $(( $(date +%s)-T0+$1 )) -lt ${END:-588} ]; }
exec > $OUT/log.txt 2>&1
rm -f .whl/*.whl; . .peer/build.sh lab; set +e
export PYTHONPATH=/tmp/fi:$PYTHONPATH
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times|^Over|^commit|^peers" | cut -c1-130; }
C=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | grep -oE 'H[12]00' | tr H h)
P=$(PYTHONPATH= sh tests/find_python.sh torch)
PYE="env LADDER_BUILD=/tmp/pyb FLASH_LADDER_CACHE=/tmp/pyb/python-kernels PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/tmp/pyb/python:/tmp/pyb/wheels HF_HUB_OFFLINE=1"
step timeout 140 $L time 98 --regime backward-tiles --peers=FlashAttention-4,flex --json $R/$C-backward-tiles.json 2>&1 | q; save; at btiles

timeout -s INT 260 env LADDER_COMMIT=$(cat .peer/commit) PEER_COMMIT=$(cat .fa/commit) PYTHON=$P LADDER_PYTHON=$P $PYE sh tests/peer_tests.sh .fa --sample 2000 --json $R/$C-peer-tests.json > $R/fa.txt 2>&1; tail -9 $R/fa.txt | cut -c1-160; save; at fatests
left 130 && step timeout 170 $L profile 38,39,70,75,77,82,83,97,99 --json $R/$C-parts-profile.json --limit 160 2>&1 | tail -5 | q; save; at profile
step timeout 60 $L verify 75,76 --backend gpu 2>&1 | tail -4 | cut -c1-150; save; at end
