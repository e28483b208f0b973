T0=$(date +%s)
R=/tmp/r; mkdir -p $R; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
{
. .peer/build.sh lab; set +e
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times" | cut -c1-140; }
at() { echo "at $(( $(date +%s)-T0 ))"; }
( timeout 100 $L verify 37,38 --backend gpu > $R/verify37.txt 2>&1; tail -3 $R/verify37.txt > $R/v37 ) & 
wait; cut -c1-110 $R/v37
step timeout 150 $L time 17,36,37,38 --regime draft --json $R/draft4.json > $R/draft4.txt 2>&1; grep -E "^d=128|^all" $R/draft4.txt | cut -c1-125; save; at
} > $OUT/log.txt 2>&1
save; tail -c 11800 $OUT/log.txt
