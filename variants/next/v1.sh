T0=$(date +%s); export T0
R=/tmp/r; mkdir -p $R; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
{
. .peer/build.sh lab; set +e
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times|^Over|^commit|^peers" | cut -c1-120; }
at() { echo "at $(( $(date +%s)-T0 ))"; }
D=.peer/var/drop F=.peer/var/few
step timeout 60 $L time 36 99 $D/99_arrive/ $D/99_regs/ $D/99_two_warps/ $D/99_four_warps/ $D/99_group_arrive/ $D/99_two_groups_arrive/ --regime dropout --json $R/v99.json 2>&1 | q; save; at
step timeout 30 $L time 36 99 $D/99_probe/ $D/99_group_arrive/ --shape 2,16,16,8192,8192,128 --json $R/v99n.json 2>&1 | q; save
step timeout 40 $L time 97 $D/97_carries/ $D/97_pairs/ --regime backward-dropout --json $R/v97.json 2>&1 | q; save; at
V="$F/38_fetch_128/ $F/38_whole_rows_128/ $F/38_boxes_of_16/ $F/38_evict_first/ $F/38_last_wave/ $F/38_early_queries/ $F/38_all/"
n=0; for s in 16,64,8,16,16384,128 16,64,8,16,16384,64 64,64,8,16,2048,128 64,8,8,4,2048,128 4,64,8,16,65536,128; do n=$((n+1)); step timeout 60 $L time 17 37 38 $V --shape $s --peers=FlashAttention-3,FlashAttention-4 --json $R/v38-$n.json 2>&1 | q; save; done; at
for p in 16 1; do
step timeout 30 $L time 81 $F/81_ahead/ $F/81_ahead_offsets/ --shape 4,32,8,1,65536,128 --page-size $p --json $R/v81-a$p.json 2>&1 | q
step timeout 30 $L time 81 $F/81_ahead/ $F/81_ahead_offsets/ --shape 64,32,8,1,32768,128 --lengths 7268 --page-size $p --json $R/v81-b$p.json 2>&1 | q; save; done
step timeout 30 $L time 81 $F/81_ahead/ $F/81_ahead_offsets/ --shape 4,32,8,1,65536,128 --json $R/v81-n.json 2>&1 | q; at
step timeout 40 $L time 82 83 $F/82_ahead_offsets/ $F/83_ahead_offsets/ $F/83_ahead_offsets_again/ --regime prefix --json $R/v83.json 2>&1 | q; save; at
} > $OUT/log.txt 2>&1
save; tail -c 9000 $OUT/log.txt
[ $(( $(date +%s)-T0 )) -lt 430 ] && { mv $OUT/log.txt $OUT/log1.txt; bash .peer/masks.sh check > $OUT/masks.txt 2>&1; tail -c 3000 $OUT/masks.txt; }
