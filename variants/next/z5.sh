T0=$(date +%s)
R=/tmp/r; mkdir -p $R; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
{
. .peer/build.sh lab; set +e
export FLASHINFER_WORKSPACE_BASE=/tmp PYTHONPATH=/tmp/fi:$PYTHONPATH
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times" | cut -c1-140; }
at() { echo "at $(( $(date +%s)-T0 ))"; }
P=--peers=cuDNN,FlashAttention-3,FlashAttention-4,FlashInfer
cat > /tmp/san.txt <<X
37,38 --shape 1,8,2,3,300,128
37,38 --shape 3,8,2,40,2000,128 --causal
37,38 --shape 2,6,2,77,333,64 --causal
X
for t in racecheck memcheck synccheck initcheck; do while read l; do echo "$t $l"; done < /tmp/san.txt; done > /tmp/jobs.txt
( xargs -P 12 -I{} sh -c 'set -- {}; t=$1; shift; timeout 60 compute-sanitizer --tool $t '$L' verify "$@" --backend gpu 2>&1 | grep -E "ERROR SUMMARY|RACECHECK SUM|of 1 case|lab:" | tail -4 | cut -c1-60 | tr "\n" "|" | sed "s/^/$t $* : /"; echo' < /tmp/jobs.txt > $R/san37.txt 2>&1 ) &
( timeout 60 $L verify 37,38 --backend gpu --random 60 --seed 3 > $R/rand37.txt 2>&1 ) &
( timeout 60 $L verify 37,38 --backend gpu --json $R/verify37.json > /dev/null 2>&1 ) &
wait; cut -c1-170 $R/san37.txt; tail -2 $R/rand37.txt | cut -c1-100; at
step timeout 160 $L time 17,36-38 --regime draft $P --json $R/h100-draft.json > $R/draft5.txt 2>&1; tail -9 $R/draft5.txt | cut -c1-400; save; at
step timeout 230 $L time 10,16,17,26,36-38 --regime few-rows --json $R/h100-few-rows.json > $R/few.txt 2>&1; tail -5 $R/few.txt | cut -c1-200; save; at
} > $OUT/log.txt 2>&1
save; tail -c 11800 $OUT/log.txt
