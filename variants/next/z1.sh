T0=$(date +%s)
R=/tmp/r; mkdir -p $R; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
{
. .peer/build.sh lab; set +e
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times" | cut -c1-125; }
at() { echo "at $(( $(date +%s)-T0 ))"; }
at
( timeout 150 $L time 95 --regime tiles --peers=flex > $R/pre1.txt 2>&1 ) &
( timeout 150 $L time 96 --regime column-bounds --peers=flex > $R/pre2.txt 2>&1 ) &
( timeout 140 $L verify 95,96,97,80-83 --backend gpu --json $R/verify.json > $R/verify.txt 2>&1; echo rc $? >> $R/verify.txt ) &
cat > /tmp/san.txt <<X
95 --shape 1,4,2,333,517,128 --tiles random
95 --shape 1,2,1,400,400,64 --tiles quarter
96 --shape 1,4,2,333,517,128 --columns random
96 --shape 1,2,1,400,400,64 --columns prefix --causal
97 --shape 1,2,1,333,277,64 --dropout 0.1,7
97 --shape 1,2,2,200,300,128 --dropout 0.3,9 --causal
80 --shape 3,8,2,3,517,128 --lengths 1,0,517
81 --shape 3,8,2,1,517,64 --lengths 5,0,517 --page-size 16
82 --shape 3,8,2,1,517,128 --page-size 16 --prefix 128
83 --shape 3,8,2,1,517,128 --page-size 16 --prefix 128
X
for t in racecheck memcheck synccheck initcheck; do while read l; do echo "$t $l"; done < /tmp/san.txt; done > /tmp/jobs.txt
( xargs -P 9 -I{} sh -c 'set -- {}; t=$1; shift; timeout 100 compute-sanitizer --tool $t '$L' verify "$@" --backend gpu 2>&1 | grep -E "ERROR SUMMARY|RACECHECK|refus|error|passed|Race|lab:" | tail -4 | tr "\n" "|" | sed "s/^/$t $* : /"; echo' < /tmp/jobs.txt > $R/san.txt 2>&1 ) &
wait; at
cut -c1-170 $R/san.txt | grep -v " 0 errors" | head -20; grep -c " 0 errors\|0 hazards" $R/san.txt; tail -3 $R/verify.txt; grep -i flex $R/pre1.txt $R/pre2.txt | head -4
save
step timeout 90 $L time 63,95 --regime tiles --peers=flex --json $R/h200-hopper-tiles.json 2>&1 | q
step timeout 70 $L time 62,96 --regime column-bounds --peers=flex --json $R/h200-hopper-columns.json 2>&1 | q
save
step timeout 20 $L time 36,95 --regime causal --json $R/h200-hopper-tiles-causal.json 2>&1 | q
step timeout 20 $L time 36,95 --regime long --json $R/h200-hopper-tiles-long.json 2>&1 | q
step timeout 60 $L time 97 --regime backward-dropout --peers=FlashAttention-2,cuDNN --json $R/h200-backward-dropout.json 2>&1 | q
step timeout 15 $L time 55 --shape 2,16,16,8192,8192,128 --json $R/b55a.json 2>&1 | q
step timeout 15 $L time 55 --shape 1,16,16,16384,16384,128 --causal --json $R/b55b.json 2>&1 | q
save; at
step timeout 45 $L time 62,96 --regime columns --json $R/h200-columns.json 2>&1 | tail -30 | q
at
} > $OUT/log.txt 2>&1
cp $R/san.txt $OUT/; save; tail -c 11800 $OUT/log.txt
