#!/usr/bin/env bash
# What `lab test` runs once BUILD is up to date: the test suite and, unless --quick, everything around it.
# Prints one line per step and ends with "N passed, N failed, N skipped", which counts steps and tests alike.
set -uo pipefail

build=$1
quick=${2:-}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$build/test-logs
jobs=2
passed=0 failed=0 skipped=0
mkdir -p "$logs"
cd "$root" || exit 3

have() { command -v "$1" > /dev/null 2>&1; }
begin() { printf '%-58s ' "$1"; started=$SECONDS; }
finish() { printf '%s (%d s)\n' "$1" $((SECONDS - started)); }

# step TITLE COMMAND...: one check that passes if the command does
step() {
    local title=$1 log
    shift
    log=$logs/${title//[^a-zA-Z0-9.+]/_}.log
    begin "$title"
    if "$@" > "$log" 2>&1; then
        passed=$((passed + 1))
        finish passed
    else
        failed=$((failed + 1))
        finish FAILED
        tail -n 40 "$log" | sed 's/^/    /'
        printf '    all of it is in %s\n' "$log"
        return 1
    fi
}

skip() {
    skipped=$((skipped + 1))
    printf '%-58s skipped: %s\n' "$1" "$2"
}

# suite TITLE BUILD [CTEST ARGUMENTS]: the tests of a build, each counted
suite() {
    local title=$1 folder=$2 log report n_tests n_failed n_skipped
    shift 2
    log=$logs/${title//[^a-zA-Z0-9.+]/_}.log report=${folder}/ctest.xml
    rm -f "$report"
    begin "$title"
    ctest --test-dir "$folder" -j "$jobs" --output-on-failure --no-tests=error --output-junit "$report" "$@" > "$log" 2>&1
    n_tests=$(attribute tests "$report")
    n_failed=$(attribute failures "$report")
    n_skipped=$(($(attribute skipped "$report") + $(attribute disabled "$report")))
    if [ "$n_tests" = 0 ]; then n_failed=1 n_tests=1; fi
    passed=$((passed + n_tests - n_failed - n_skipped))
    failed=$((failed + n_failed))
    skipped=$((skipped + n_skipped))
    finish "$((n_tests - n_failed - n_skipped)) passed, $n_failed failed, $n_skipped skipped"
    if [ "$n_failed" != 0 ]; then
        awk '/ Test +#[0-9]+: / { show = !/ (Passed|\*\*\*Skipped) / } show && !/^ *Start /' "$log" | head -n 100 | sed 's/^/    /'
        printf '    all of it is in %s\n' "$log"
    fi
}

# A number in the head of CTest's report; 0 if there is no report.
attribute() {
    local value
    value=$(sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$2" 2> /dev/null | head -n 1)
    echo "${value:-0}"
}

# cpu_build NAME CMAKE ARGUMENTS...: configures and builds the CPU side in a folder of its own
cpu_build() {
    local folder=$build/$1
    shift
    local generator=()
    if have ninja; then generator=(-G Ninja); fi
    cmake -S "$root" -B "$folder" "${generator[@]}" -DLADDER_GPU=OFF "$@" &&
        cmake --build "$folder" --parallel "$jobs"
}

has_cpu() { grep -q '^LADDER_CPU:BOOL=\(ON\|TRUE\|1\)' "$build/CMakeCache.txt"; }

# nvcc_stage NUMBER KERNEL: compiles for each architecture of the promise. Part I must not spill registers.
nvcc_stage() {
    local log
    log=$("$nvcc" -std=c++20 -Werror=all-warnings -DLADDER_BACKEND=gpu -I "$root" -Xptxas -v --threads 2 \
        -gencode=arch=compute_75,code=sm_75 -gencode=arch=compute_80,code=sm_80 \
        -gencode=arch=compute_90a,code=sm_90a -c -o "$logs/stage.o" "$2" 2>&1) || { echo "$log"; return 1; }
    echo "$log" | grep -q 'bytes spill' || { echo 'ptxas said nothing of registers'; return 1; }
    [ "$1" -gt 6 ] || ! echo "$log" | awk '/Compiling entry function/ { kernel = $0 }
        / [1-9][0-9]* bytes spill/ { print kernel; print }' | grep .
}

summary() {
    printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
    [ $failed = 0 ]
}

# --- The suite -----------------------------------------------------------------------------------------------------

if [ "$quick" = --quick ]; then
    suite 'quick tests' "$build" -L quick
    summary
    exit
fi
suite 'all tests' "$build"

# --- The same tree under other compilers, orders and checkers ------------------------------------------------------

if has_cpu; then
    for compiler in g++ clang++; do
        if ! have $compiler; then
            skip "build with $compiler" "there is no $compiler"
        elif step "build with $compiler" cpu_build "with-$compiler" -DCMAKE_CXX_COMPILER=$compiler -DLADDER_WERROR=ON; then
            suite "quick tests, $compiler" "$build/with-$compiler" -L quick
        fi
    done
    # Optimized less, since the instrumentation takes long to compile; and GCC warns of the library when it is in.
    if step 'build with address and undefined sanitizers' \
        cpu_build with-sanitizers -DLADDER_SANITIZE=address,undefined -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
        -DLADDER_WERROR=OFF; then
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 suite 'quick tests, sanitizers' "$build/with-sanitizers" -L quick
    fi
    # What the threads' order could change shows in the bits; what the data could, in other data.
    step 'verify, threads in every order' "$build/lab" verify --quick --backend checked --orders
    step 'verify, threads in every order, other inputs' "$build/lab" verify --quick --backend checked --orders --seed 2
else
    skip 'builds of the CPU side' 'Boost.Context is not installed'
fi

# --- The sources ---------------------------------------------------------------------------------------------------

mapfile -t sources < <(find harness reference simt stages tests \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) | sort)
# Releases of clang-format differ in details, so one of them decides: Debian 12's.
if clang-format --version 2> /dev/null | grep -q 'version 14\.'; then
    step 'clang-format' clang-format --dry-run -Werror "${sources[@]}"
else
    skip 'clang-format' 'there is no clang-format 14'
fi
mapfile -t scripts < <(find lab .ci/run notebooks tests docs/course -name '*.sh' -o -path lab -o -path .ci/run -o -name run_autograder | sort)
if have shellcheck; then
    step 'shellcheck' shellcheck "${scripts[@]}"
else
    skip 'shellcheck' 'there is no shellcheck'
fi

if ! have doxygen || [ ! -d /usr/share/javascript/katex ]; then
    skip 'site' 'there is no doxygen or no KaTeX'
elif ! site_python=$(tests/find_python.sh markdown_it mdit_py_plugins pygments); then
    skip 'site' 'markdown-it, mdit-py-plugins or Pygments is missing'
else
    step 'site: its parts' "$site_python" tests/test_site.py
    step 'site: no warning, and every link leads somewhere' \
        "$site_python" docs/site/build.py "$build/lab" "$build/docs/html"
fi

if has_cpu && notebooks/find_python.sh > /dev/null; then
    step 'notebooks' tests/notebooks.sh "$build"
else
    skip 'notebooks' 'ipykernel, matplotlib, nbclient, nbformat or numpy is missing'
fi

if has_cpu && have chromium && have chromedriver && browser_python=$(tests/find_python.sh selenium); then
    step 'the schedule explorer in Chromium' "$browser_python" tests/explorer.py "$build/lab"
else
    skip 'the schedule explorer in Chromium' 'chromium, chromium-driver or python3-selenium is missing'
fi

# --- The course, as a newcomer follows it ---------------------------------------------------------------------------

if has_cpu; then
    step 'guides and a hand-out of their own' tests/guides.sh "$build"
else
    skip 'guides and a hand-out of their own' 'Boost.Context is not installed'
fi

# --- The kernels under nvcc ----------------------------------------------------------------------------------------

nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=\(.*\)/\1/p' "$build/CMakeCache.txt" | grep -v NOTFOUND)
for kernel in stages/[0-9]*/kernel.cu; do
    stage=$(basename "$(dirname "$kernel")")
    title="nvcc, $stage for sm_75, sm_80, sm_90a"
    if [ -n "$nvcc" ]; then
        step "$title" nvcc_stage $((10#${stage%%_*})) "$kernel"
    else
        skip "$title" 'there is no nvcc'
    fi
done

summary
