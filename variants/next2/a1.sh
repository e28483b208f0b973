# carry .peer .whl4b .pyw .fa, after a0.sh with (.peer .whl4) and with (.peer .whl .fi)
T0=$(date +%s); export T0
R=/tmp/r; mkdir -p $R .whl; cp -n /tmp/whl/* .whl/ 2>/dev/null; save() { tar -C /tmp -cJf $OUT/r.tar.xz r; }
at() { echo "#### $1 at $(( $(date +%s)-T0 ))"; }
left() { [ $(( $(date +%s)-T0+$1 )) -lt 588 ]; }
exec > $OUT/log.txt 2>&1
rm -rf .ring && mkdir -p /tmp/few && cp -r .peer/few/* /tmp/few/
( unset LADDER_BUILD; export LADDER_COMMIT=$(cat .peer/commit); PYTHONPATH= LIMIT=200 WHEELS=$PWD/.pyw sh tests/python_gpu.sh $R/py /tmp/pyb build > $R/pyb.txt 2>&1; touch /tmp/pyb.done ) &
. .peer/build.sh lab; set +e
export FLASHINFER_WORKSPACE_BASE=/tmp PYTHONPATH=/tmp/fi:$PYTHONPATH
q() { grep -vE "^lab: |^$|^driver|^toolkit|^date|^GPU|^ceil|^Times|^Over|^commit|^peers" | cut -c1-130; }
C=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | grep -oE 'H[12]00' | tr H h)
P=$(PYTHONPATH= sh tests/find_python.sh torch)
PYE="env LADDER_BUILD=/tmp/pyb FLASH_LADDER_CACHE=/tmp/pyb/python-kernels PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/tmp/pyb/python:/tmp/pyb/wheels HF_HUB_OFFLINE=1"
( while [ ! -e /tmp/pyb.done ]; do sleep 1; done; nice timeout 200 $PYE $P -c "import flash_ladder; flash_ladder.prepare(['17','26','36','37','38','39','55','57','61','65','66','67','68','60','64','97','99','80','81','5','43'], 'gpu')" > $R/prep.txt 2>&1; echo "prepared $? at $(( $(date +%s)-T0 ))"; touch /tmp/prepared ) &
at built
python3 -c "import flash_attn.cute, flashinfer, fa3_fwd_interface, torch; print('peers', torch.__version__)" 2>&1 | tail -1
cp stages/hopper.cuh /tmp/hopper.keep; cp /tmp/few/hopper.cuh stages/hopper.cuh
V=$(ls -d /tmp/few/38_*/ | tr '\n' ' ')
[ $C = h100 ] && V="/tmp/few/38_whole_rows_128/ /tmp/few/38_all_sms/"
step timeout 140 $L time 17 38 $V --shape 16,64,8,16,16384,128 --peers=FlashAttention-3,FlashAttention-4 --json $R/few1.json 2>&1 | q; save; at few1
step timeout 60 $L time 17 38 $V --shape 64,8,8,4,16384,128 --json $R/few2.json 2>&1 | q; save; at few2
step timeout 60 $L time 17 38 $V --shape 1,64,8,16,65536,128 --json $R/few3.json 2>&1 | q; save; at few3
cp /tmp/hopper.keep stages/hopper.cuh
PS=--peers=FlashAttention-4,FlashInfer
step timeout 110 $L time 81 --regime pages $PS --json $R/$C-pages.json 2>&1 | tail -40 | q; save; at pages
for g in train long narrow wide; do step timeout 45 $L time 36,70-72,75-77 --regime $g --peers=FlashAttention-3-FP8,FlashAttention-3 --json $R/$C-fp8-$g.json 2>&1 | q; save; done; at fp8
left 50 && step timeout 80 $L time 82 83 .peer/two/83_early/ .peer/two/83_again/ .peer/two/83_both/ --regime prefix --peers=FlashInfer --json $R/two.json 2>&1 | q; save; at prefix
left 100 && step timeout 130 $L profile 37-39,60-67,70-77,80-84,95-99 --json $R/$C-parts-profile.json --limit 125 2>&1 | tail -5 | q
save; at end
