T0=$(date +%s)
R=/tmp/r; mkdir -p $R; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
{
. .peer/build.sh lab; set +e
export FLASHINFER_WORKSPACE_BASE=/tmp PYTHONPATH=/tmp/fi:$PYTHONPATH
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times|^Over|^commit|^peers" | cut -c1-110; }
at() { echo "at $(( $(date +%s)-T0 ))"; }
P=--peers=cuDNN,FlashAttention-3,FlashAttention-4,FlashInfer
cat > /tmp/san.txt <<X
37,38 --shape 3,8,2,40,2000,128 --causal
37,38 --shape 2,6,2,77,333,64 --causal
77 --shape 1,4,2,333,517,128 --causal
77 --shape 1,2,1,400,277,64
77 --shape 1,2,2,200,300,256
98 --shape 1,4,2,333,517,128 --tiles random
98 --shape 1,2,1,400,400,64 --tiles quarter
99 --shape 1,4,2,333,277,128 --dropout 0.1,7 --causal
99 --shape 1,2,1,200,300,64 --dropout 0.3,9
X
for t in racecheck memcheck synccheck initcheck; do while read l; do echo "$t $l"; done < /tmp/san.txt; done > /tmp/jobs.txt
( xargs -P 8 -I{} sh -c 'set -- {}; t=$1; shift; timeout 80 compute-sanitizer --tool $t '$L' verify "$@" --backend gpu 2>&1 | grep -E "ERROR SUMMARY|RACECHECK SUM|of 1 case|lab:" | cut -c1-70 | tr "\n" "|" | sed "s/^/$t $* : /"; echo' < /tmp/jobs.txt > $R/san6.txt 2>&1 ) &
( timeout 100 $L verify 37,38,77,98,99 --backend gpu --json $R/verify6.json > $R/verify6.txt 2>&1; echo "rc $?" >> $R/verify6.txt ) &
( timeout 100 $L verify 77,98,99 --backend gpu --random 25 --seed 5 > $R/rand6.txt 2>&1 ) &
( cmake --build $LADDER_BUILD --parallel 6 --target tests > /tmp/bt.log 2>&1; echo "tests built $?" >> $R/bt ) &
wait; at; grep -vE "0 errors|0 hazards" $R/san6.txt | cut -c1-200 | head; grep -cE "0 errors|0 hazards" $R/san6.txt; tail -7 $R/verify6.txt | cut -c1-110; tail -4 $R/rand6.txt | cut -c1-110; cat $R/bt; save
cp tests/golden/primitives.json $R/golden-before.json; LADDER_GOLDEN=$R/golden.json timeout 30 $LADDER_BUILD/tests/tests "[.record]" 2>&1 | tail -3
step timeout 130 $L time 17,36-38 --regime draft $P --json $R/draft.json > $R/draft6.txt 2>&1; tail -9 $R/draft6.txt | cut -c1-300; save; at
for g in train long narrow wide; do step timeout 25 $L time 70 77 --regime $g --json $R/t77-$g.json 2>&1 | q; done; save
step timeout 25 $L time 64,99 --regime dropout --peers=FlashAttention-2,cuDNN --json $R/dropout.json 2>&1 | q
step timeout 15 $L time 36 --shape 2,16,16,8192,8192,128 --peers=cuDNN --json $R/t36.json 2>&1 | q
step timeout 30 $L time 98 --regime backward-tiles --json $R/btiles.json 2>&1 | q; save; at
step timeout 110 $L time 10,16,17,26,36-38 --regime few-rows --json $R/few-rows.json > $R/few6.txt 2>&1; tail -3 $R/few6.txt | cut -c1-150; save; at
step timeout 70 $L time 62,96 --regime columns --json $R/columns.json 2>&1 | tail -18 | q; save; at
[ $(( $(date +%s)-T0 )) -lt 480 ] && step timeout 90 $L time 63,95 --regime tiles --peers=flex --json $R/tiles.json 2>&1 | grep -E "^peer|^95|rc" | cut -c1-120; save; at
} > $OUT/log.txt 2>&1
save; tail -c 11800 $OUT/log.txt
