T0=$(date +%s)
R=/tmp/r; mkdir -p $R; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
{
. .peer/build.sh lab; set +e
export FLASHINFER_WORKSPACE_BASE=/tmp PYTHONPATH=/tmp/fi:$PYTHONPATH
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times" | cut -c1-140; }
at() { echo "at $(( $(date +%s)-T0 ))"; }
P=--peers=cuDNN,FlashAttention-3,FlashAttention-4,FlashInfer
at
step timeout 100 $L time 80,81 --regime ragged $P --json $R/h200-ragged.json 2>&1 | q; save; at
step timeout 400 $L time 17,36 --regime draft $P --json $R/h200-draft.json > $R/draft.txt 2>&1; tail -12 $R/draft.txt | cut -c1-150; save; at
} > $OUT/log.txt 2>&1
save; tail -c 11800 $OUT/log.txt
