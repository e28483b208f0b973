# after c1.sh, on the same machine
T0=$(date +%s); export T0
R=/tmp/r; mkdir -p $R .whl; cp -n /tmp/whl/* .whl/ 2>/dev/null; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
at() { echo "#### $1 at $(( $(date +%s)-T0 ))"; }
left() { [ $(( $(date +%s)-T0+$1 )) -lt ${END:-420} ]; }
exec > $OUT/log.txt 2>&1
. .peer/build.sh lab; set +e
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times|^Over|^commit|^peers" | cut -c1-150; }
C=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | grep -oE 'H[12]00' | tr H h)
at built
step timeout 90 $L verify 70-73,75-77 --backend gpu 2>&1 | tail -9 | cut -c1-150; at verify
step timeout 40 $L time 71 .peer/fp8groups/71_*/ --regime train --json $R/71-train.json 2>&1 | q
step timeout 40 $L time 71 .peer/fp8groups/71_*/ --regime long --json $R/71-long.json 2>&1 | q
step timeout 40 $L time 71 .peer/fp8groups/71_*/ --regime narrow --json $R/71-narrow.json 2>&1 | q; save; at 71
step timeout 40 $L time 70 77 .peer/fp8groups/77_three_slots/ --regime train --json $R/77-train.json 2>&1 | q
P=--peers=FlashAttention-3-FP8,FlashAttention-3
for g in train:-2k long: narrow:-narrow wide:-wide; do step timeout 60 $L time 36,70-73,75-77 --regime ${g%:*} $P --json $R/$C-fp8-peers${g#*:}.json 2>&1 | q; save; done; at peers
for s in 2,16,16,8192,8192,128 8,16,16,2048,2048,128 4,16,16,8192,8192,64 2,8,8,8192,8192,256; do step timeout 45 $L time 36,70,72,77 --shape $s --causal $P --json $R/causal-$s.json 2>&1 | q; save; done; at causal
step timeout 60 $L profile 70,71,72 --regime long --json $R/p2.json 2>&1 | tail -1 | cut -c1-100
step timeout 60 $L profile 70,77 --regime train --json $R/p3.json 2>&1 | tail -1 | cut -c1-100
step timeout 60 $L profile 70,77 --regime wide --json $R/p4.json 2>&1 | tail -1 | cut -c1-100
step timeout 60 $L profile 70,75 --regime narrow --json $R/p5.json 2>&1 | tail -1 | cut -c1-100; save; at profile
for t in memcheck racecheck synccheck initcheck; do left 30 && timeout 40 compute-sanitizer --tool $t $L verify 70-73,75-77 --backend gpu --shape 3,6,2,219,777,128 --causal 2>&1 | grep -E "ERROR SUM|RACECHECK|rror|of 1" | tail -9 | cut -c1-120; done; at sanitized
save; at end
