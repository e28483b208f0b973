# carry .peer .whl4b, after a0.sh with (.peer .whl4) and with (.peer .whl .fi)
T0=$(date +%s); export T0
R=/tmp/r; mkdir -p $R .whl; cp -n /tmp/whl/* .whl/ 2>/dev/null; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
at() { echo "#### $1 at $(( $(date +%s)-T0 ))"; }
left() { [ $(( $(date +%s)-T0+$1 )) -lt ${END:-470} ]; }
exec > $OUT/log.txt 2>&1
. .peer/build.sh lab; set +e
export FLASHINFER_WORKSPACE_BASE=/tmp PYTHONPATH=/tmp/fi:$PYTHONPATH
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times|^Over|^commit|^peers" | cut -c1-130; }
C=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | grep -oE 'H[12]00' | tr H h)
at built
step timeout 130 $L time 17,36-39 --regime draft --peers=cuDNN,FlashAttention-3,FlashAttention-4,FlashInfer --json $R/$C-draft.json 2>&1 | tail -8 | q; save; at draft
step timeout 100 $L time 10,16,17,26,36-39 --regime few-rows --json $R/$C-few-rows.json 2>&1 | tail -4 | q; save; at few-rows
step timeout 60 $L verify 37-39 --backend gpu 2>&1 | tail -4 | cut -c1-150; at verify
cp -r .peer/pairs /tmp/pairs; cp stages/hopper.cuh /tmp/hopper.keep; cp /tmp/pairs/hopper.cuh stages/hopper.cuh; V=/tmp/pairs
step timeout 40 $L time 36 70 $V/36_pairs/ $V/70_pairs/ --regime train --json $R/pairs-train.json 2>&1 | q
step timeout 40 $L time 36 $V/36_pairs/ --regime narrow --json $R/pairs-narrow.json 2>&1 | q
step timeout 40 $L time 36 70 $V/36_pairs/ $V/70_pairs/ --regime wide --json $R/pairs-wide.json 2>&1 | q
step timeout 40 $L time 55 57 $V/55_pairs/ $V/57_pairs/ --regime backward --json $R/pairs-backward.json 2>&1 | q
step timeout 40 $L time 65 $V/65_pairs/ --regime window --json $R/pairs-window.json 2>&1 | q
step timeout 40 $L time 99 $V/99_pairs/ --regime dropout --json $R/pairs-dropout.json 2>&1 | q
step timeout 40 $L time 95 $V/95_pairs/ --regime tiles --json $R/pairs-tiles.json 2>&1 | q; save; at pairs
step timeout 40 $L profile 38 $V/38_pairs/ --shape 16,64,8,16,16384,128 --json $R/$C-pairs-profile.json 2>&1 | grep -vE "^$" | head -8 | cut -c1-200; save; at profile38
cp /tmp/hopper.keep stages/hopper.cuh
step timeout 40 $L profile 70,75 --regime narrow --json $R/$C-narrow-profile.json 2>&1 | tail -1 | cut -c1-100
step timeout 40 $L profile 70,71,72 --regime long --json $R/$C-long-profile.json 2>&1 | tail -1 | cut -c1-100; save; at profiles
for t in memcheck racecheck synccheck initcheck; do left 30 && timeout 30 compute-sanitizer --tool $t $L verify 37-39 --backend gpu --shape 3,6,2,7,1111,128 --causal 2>&1 | grep -E "ERROR SUM|RACECHECK|passed|of " | tail -2 | cut -c1-110; done; at sanitized
save; at end
