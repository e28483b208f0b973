T0=$(date +%s)
R=/tmp/r; mkdir -p $R; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
{
. .peer/build.sh lab; set +e
export FLASHINFER_WORKSPACE_BASE=/tmp PYTHONPATH=/tmp/fi:$PYTHONPATH
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times" | cut -c1-140; }
at() { echo "at $(( $(date +%s)-T0 ))"; }
P=--peers=cuDNN,FlashAttention-3,FlashAttention-4,FlashInfer
step timeout 110 $L time 81 --regime paged $P --json $R/h200-paged.json 2>&1 | q; save; at
step timeout 110 $L time 82,83 --regime prefix $P --json $R/h200-prefix.json 2>&1 | q; save; at
step timeout 100 $L time 81 --regime pages $P --json $R/h200-pages.json 2>&1 | tail -40 | q; save; at
step timeout 80 $L time 62,96 --regime columns --json $R/h200-columns.json 2>&1 | tail -34 | q; save; at
step timeout 60 $L time 63,95 --regime tiles --peers=flex --json $R/h200-hopper-tiles.json 2>&1 | grep -E "^peer|^95|rc" | cut -c1-120; save; at
} > $OUT/log.txt 2>&1
save; tail -c 11800 $OUT/log.txt
