# bash .peer/masks.sh [STEP]...: masks next to the libraries, `windows` and `documents`, and the FlashAttention tests with dropout.
# Needs in the tree: .peer/build.sh .peer/commit .peer/masks.sh .peer/check_masks.py (of /work/keep/fa4), .whl, .whl4b, .pyw, .fa;
# before it, on the same machine, one call `mkdir -p /tmp/p; cp .whl4/part.aa /tmp/p/` with carry .whl4.
# Two calls of 600 s on one warm machine do it all: the second skips what the first has done (/tmp/r/done.*) and does the rest.
# Seconds expected, with the timeout that ends a step (what does not fit before 590 s is left for the next call):
#   build lab 45, beside it the Python package 60 and its kernels 60         no timeout of its own; package LIMIT=200
#   check       95 (150)  FlashAttention-4 against fp32: 16 kernels of 4 s, 8 short ones; then 5 more for times at N = 8192
#   tiles       75 (130)  4 problems, 63 and 95, FlashAttention-4: 2 kernels, compiled by `check`; flex: 4 of 10 s
#   columns     90 (150)  12 problems, 62 and 96 (65 in an earlier run), FlashAttention-4: 4 kernels of 5 s
#   btiles      95 (170)  4 problems, 98; FlashAttention-4: 4 kernels of 5 s and 3 short ones; flex: 4 of 15 s, forward and backward
#   documents   75 (140)  14 problems, 67, FlashAttention-4 (varlen, about 5 kernels of 6 s) and -3
#   windows    180 (290)  22 problems, 65 (40), FlashAttention-4 (about 4 kernels of 6 s), flex (22 of 5 s)
#   dropout    220 (280)  collecting 500,000 tests 60, then those of a draw of 1,500 that have dropout, about 0.1 s each
# In sum 835 after the builds: the first call ends after `btiles`, the second has documents, windows and dropout.
T0=${T0:-$(date +%s)}
R=/tmp/r; mkdir -p $R; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
at() { echo "at $(( $(date +%s)-T0 ))"; }
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^ceil|^Times|^Over|^commit|^peers" | cut -c1-150; }
want=" ${*:-check tiles columns btiles documents windows dropout} "
do_step() {  # NAME SECONDS COMMAND...: once, if it is wanted and there is time
    name=$1 limit=$2; shift 2
    case $want in *" $name "*) ;; *) return ;; esac
    if [ -e $R/done.$name ]; then echo "-- $name: done before"; return; fi
    if [ $(( $(date +%s)-T0+limit )) -gt 590 ]; then echo "-- $name: left for the next call"; return; fi
    step timeout -s INT -k 5 $limit "$@" > $R/$name.txt 2>&1
    tail -1 $R/$name.txt | grep -q "rc 0" && touch $R/done.$name
    q < $R/$name.txt | tail -${LINES_OF:-12}; save; at
}
{
if false; then  # beside the build of lab
    ( unset LADDER_BUILD; [ -d .bst ] && export Boost_ROOT=$PWD/.bst; export LADDER_COMMIT=$(cat .peer/commit)
      PYTHONPATH= LIMIT=200 WHEELS=$PWD/.pyw sh tests/python_gpu.sh $R/py /tmp/pyb build compile > $R/pyb.txt 2>&1 && touch /tmp/pyb/built ) &
    package=$!
fi
. .peer/build.sh lab; set +e
python3 -c "import flash_attn.cute, torch; print('torch', torch.__version__)" 2>&1 | tail -1
if [ -n "${package:-}" ]; then wait $package; tail -2 $R/pyb.txt | cut -c1-150; fi  # nothing else runs while times are taken
at
C=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | grep -oE 'H[12]00' | tr H h)
LINES_OF=40 do_step check 150 python3 .peer/check_masks.py
do_step tiles 130 $L time 63,95 --regime tiles --peers=FlashAttention-4,flex --json $R/$C-tiles.json
LINES_OF=20 do_step columns 150 $L time 62,96 --regime columns --peers=FlashAttention-4 --json $R/$C-columns.json
do_step btiles 170 $L time 98 --regime backward-tiles --peers=FlashAttention-4,flex --json $R/$C-backward-tiles.json
LINES_OF=22 do_step documents 140 $L time 67 --regime documents --peers=FlashAttention-4,FlashAttention-3 --json $R/$C-documents.json
LINES_OF=40 do_step windows 170 $L time 65 --regime windows --peers=FlashAttention-4,FlashAttention-3 --json $R/$C-windows.json
# The draw comes before -k: of 1,500 tests that a stage takes those with dropout run. INT lets pytest write its record.
P=$(PYTHONPATH= sh tests/find_python.sh torch)
do_step dropout 280 env LADDER_BUILD=/tmp/pyb FLASH_LADDER_CACHE=/tmp/pyb/python-kernels PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/tmp/pyb/python:/tmp/pyb/wheels PYTHON=$P LADDER_PYTHON=$P PEER_COMMIT=$(cat .fa/commit) \
    sh tests/peer_tests.sh .fa --sample 1500 --json $R/$C-peer-tests-dropout.json -k 0.17
} > $OUT/log.txt 2>&1
save; tail -c 11800 $OUT/log.txt
