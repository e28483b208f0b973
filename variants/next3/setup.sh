# On a new workplace machine: everything that the device calls carry, about 6 minutes beside a build. Run with bash.
set -e
apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq ccache libboost-context-dev libeigen3-dev catch2 libcli11-dev nlohmann-json3-dev libfmt-dev libseccomp-dev cmake g++ ninja-build clang clang-format shellcheck doxygen python3-markdown-it python3-mdit-py-plugins python3-pygments libjs-katex python3-dev python3-venv chromium chromium-driver python3-selenium python3-matplotlib python3-ipykernel python3-nbclient python3-nbformat python3-numpy doxygen-awesome-css gdb xz-utils > /tmp/apt.log 2>&1
M=/work/main; mkdir -p /work/keep/dl $M/.git/info; cd /work/keep/dl; mkdir -p fa3 fa4 fi
for d in .fa .peer .whl .whl4 .whl4b .fi .pyw; do grep -qx "/$d/" $M/.git/info/exclude 2>/dev/null || echo "/$d/" >> $M/.git/info/exclude; mkdir -p $M/$d; done
( python3 -m venv /work/keep/tenv && /work/keep/tenv/bin/pip install -q torch==2.11.0 numpy pytest transformers einops ml_dtypes nanobind apache-tvm-ffi packaging requests tabulate tqdm click ninja nvidia-ml-py cuda-python > /tmp/tenv.log 2>&1 ) &
tenv=$!
dl() { python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp $(for n in 28 27 24 17 31 34 35; do echo --platform manylinux_2_${n}_x86_64; done) --platform manylinux2014_x86_64 --platform linux_x86_64 --platform manylinux1_x86_64 "$@"; }
dl -d fa3 fa3-fwd==0.0.3; dl -d fa4 flash-attn-4==4.0.0b36; dl -d fi flashinfer-python==0.7.2.post1
for p in quack-kernels==0.6.5 apache-tvm-ffi==0.1.15.post2 torch-c-dlpack-ext==0.1.5 nvidia-cutlass-dsl==4.8.1 nvidia-cutlass-dsl-libs-base==4.8.1 nvidia-cutlass-dsl-libs-core==4.8.1 nvidia-cutlass-dsl-libs-cu13==4.8.1; do dl -d fa4 $p; done
rm -rf fa4x fix; mkdir fa4x fix; for w in fa4/flash_attn_4* fa4/quack* fa4/apache* fa4/torch_c* fa4/nvidia_cutlass_dsl-4* fa4/*libs_base* fa4/*libs_core* fa4/*libs_cu13*; do unzip -q -o $w -d fa4x; done
tar -C fa4x -cf - . | xz -T2 -6 > fa4.tar.xz; split -b 38M fa4.tar.xz part.; cp part.aa $M/.whl4/; cp part.ab $M/.whl4b/; cp fa3/*.whl $M/.whl/
python3 -m pip download -q --no-deps -d $M/.pyw --only-binary=:all: --python-version 3.12 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 nanobind pytest pluggy iniconfig einops
unzip -q -o fi/flashinfer*.whl -d fix; wait $tenv
HERE=$(dirname "$(readlink -f "$0")"); mkdir -p /tmp/fibuild
MAX_JOBS=2 FLASHINFER_CUDA_ARCH_LIST=9.0a FLASHINFER_WORKSPACE_BASE=/tmp/fibuild PYTHONPATH=$PWD/fix PATH=$PATH:/usr/local/cuda/bin /work/keep/tenv/bin/python $HERE/fi_build.py build
rm -rf /tmp/fipack; mkdir /tmp/fipack; cd fix
tar -cf - --exclude='flashinfer/data/csrc/*/*' --exclude=flashinfer/data/cccl --exclude=flashinfer/data/cutlass --exclude=flashinfer/data/include --exclude=flashinfer/data/spdlog --exclude=flashinfer/experimental flashinfer flashinfer_python*dist-info build_utils.py | tar -C /tmp/fipack -xf -
tar -cf - $(find flashinfer/experimental -name "*.py" -o -name "*.json" | grep -v "/csrc/") | tar -C /tmp/fipack -xf -
for s in $(find /tmp/fibuild -name "*.so"); do n=$(basename $s .so); mkdir -p /tmp/fipack/flashinfer/data/aot/$n; cp $s /tmp/fipack/flashinfer/data/aot/$n/; done
cd /tmp/fipack; XZ_OPT="-T2 -6" tar -cJf $M/.fi/flashinfer.tar.xz .
# FlashAttention's tests: fetch github:Dao-AILab/flash-attention first
G=/work/.mirror/Dao-AILab+flash-attention/repo; if [ -e $G ]; then cd $M; mkdir -p .fa/tests .fa/flash_attn; for f in tests/test_flash_attn.py flash_attn/bert_padding.py; do git -C $G show HEAD:$f > .fa/$f; done; git -C $G rev-parse HEAD > .fa/commit; fi
