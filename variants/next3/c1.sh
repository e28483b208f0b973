# carry .peer .whl4b, after a0.sh with (.peer .whl4) and with (.peer .whl .fi)
T0=$(date +%s); export T0
R=/tmp/r; mkdir -p $R .whl; cp -n /tmp/whl/* .whl/ 2>/dev/null; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
at() { echo "#### $1 at $(( $(date +%s)-T0 ))"; }
left() { [ $(( $(date +%s)-T0+$1 )) -lt ${END:-400} ]; }
exec > $OUT/log.txt 2>&1
. .peer/build.sh lab; set +e
export FLASHINFER_WORKSPACE_BASE=/tmp PYTHONPATH=/tmp/fi:$PYTHONPATH
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times|^Over|^commit|^peers" | cut -c1-170; }
C=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | grep -oE 'H[12]00' | tr H h)
at built
P=FlashAttention-3,FlashAttention-4,FlashInfer
step timeout 90 $L time 82,83 --regime prefix --peers=$P --json $R/$C-prefix.json 2>&1 | q; save; at prefix
step timeout 60 $L time 80,81,83 --regime paged --peers=$P --json $R/$C-paged.json 2>&1 | q; save; at paged
step timeout 60 $L time 80,81,83 --regime ragged --peers=$P --json $R/$C-ragged.json 2>&1 | q; save; at ragged
step timeout 110 $L time 81,83 --regime pages --peers=FlashAttention-4,FlashInfer --json $R/$C-pages.json 2>&1 | q; save; at pages
step timeout 50 $L verify 83 --backend gpu 2>&1 | tail -2 | cut -c1-150
for t in memcheck racecheck synccheck initcheck; do timeout 40 compute-sanitizer --tool $t $L verify 83 --backend gpu --shape 37,9,3,2,777,128 --lengths 777,130,399 --causal --page-size 8 --prefix 128 2>&1 | grep -E "ERROR SUM|RACECHECK|rror|of 1" | tail -3 | cut -c1-150; done; at sanitized
step timeout 40 $L time 81 83 --shape 64,32,8,16,4096,128 --page-size 16 --json $R/rows.json 2>&1 | q
step timeout 60 $L profile 82,83 --regime prefix --json $R/p1.json 2>&1 | tail -1 | cut -c1-100; save; at end
