#!/bin/sh
# Tests the script ./lab on a machine made of stubs: what it installs, what it says, what it passes on.
# Usage: test_lab.sh LAB
set -u

lab=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin=$work/bin
LADDER_BUILD="$work/a build"
export LADDER_BUILD
unset CXX CUDACXX CMAKE_CUDA_ARCHITECTURES
failed=0

# The tools that every machine has.
mkdir "$bin"
for tool in sh env cat chmod dirname grep mkdir nproc readlink rm sed tail; do ln -s "$(command -v $tool)" "$bin/$tool"; done

# stub NAME BODY: a program of that name
stub() {
    printf '#!/bin/sh\n%s\n' "$2" > "$bin/$1"
    chmod +x "$bin/$1"
}

# run ARGUMENTS: calls the script with nothing on PATH but the stubs
run() {
    PATH=$bin "$lab" "$@" > "$work/out" 2> "$work/err" < /dev/null
    status=$?
}

# expect STATUS [FILE TEXT]...: the last run's exit code, and texts that files contain
expect() {
    wrong=
    [ "$status" = "$1" ] || wrong="exit code $status, not $1"
    shift
    while [ $# -gt 0 ]; do
        grep -qF -- "$2" "$work/$1" || wrong="no '$2' in $1"
        shift 2
    done
    if [ -n "$wrong" ]; then
        failed=$((failed + 1))
        printf 'FAILED: %s: %s\n' "$title" "$wrong"
        sed 's/^/    /' "$work/err"
    fi
}

# A cmake that configures, and builds a program which shows its arguments.
# shellcheck disable=SC2016  # expanded by the stub
cmake_stub='
echo "$*" >> '"$work"'/cmake
case $1 in
    --build) printf "#!/bin/sh\necho called as \$LADDER_COMMAND\nfor a in \"\$@\"; do echo \"<\$a>\"; done; exit 7\n" > "$2/lab"; chmod +x "$2/lab"
             echo "[1/1] Building" ;;
    *) echo LADDER_GPU:BOOL=ON > "$4/CMakeCache.txt" ;;
esac'
# shellcheck disable=SC2016
all_installed='shift 3; for p in "$@"; do echo "installed $p"; done'
fresh() { rm -rf "$LADDER_BUILD" "$work/cmake" "$work/apt"; }

stub true 'exit 0'

title='nothing is installed, and nobody may: the exact line'
stub id 'echo 1000'
stub dpkg-query 'exit 1'
fresh
run list
expect 3 err 'sudo apt-get update && sudo apt-get install -y libboost-context-dev libeigen3-dev catch2 libcli11-dev nlohmann-json3-dev libfmt-dev libseccomp-dev cmake g++ ninja-build'

title='root installs, and is asked nothing'
stub id 'echo 0'
# shellcheck disable=SC2016
stub apt-get 'echo "$DEBIAN_FRONTEND $*" >> '"$work"'/apt'
run list
expect 3 err 'installing libboost-context-dev' apt 'noninteractive -q -o DPkg::Lock::Timeout=300 update' \
    apt 'noninteractive -q -o DPkg::Lock::Timeout=300 -y --no-install-recommends install libboost-context-dev libeigen3-dev'

title='lab install: all of it and what is named, and nothing is built'
fresh
run install git
expect 0 apt 'install libboost-context-dev libeigen3-dev' apt 'libseccomp-dev cmake g++ ninja-build git python3-markdown-it' \
    apt 'python3-numpy python3-dev python3-venv clang clang-format shellcheck' apt 'install chromium chromium-driver python3-selenium'
if grep -q flash-ladder "$work/out" || [ -e "$work/cmake" ]; then status='built'; expect 0; fi
if [ "$(grep -c 'install ' "$work/apt")" != 2 ]; then status='installed otherwise'; expect 0; fi

title='lab install: nobody may'
stub id 'echo 1000'
mv "$bin/apt-get" "$bin/apt-get.not"
run install
expect 3 err 'sudo apt-get install -y libboost-context-dev'
mv "$bin/apt-get.not" "$bin/apt-get"

title='the containers have what lab installs, by no list of their own'
tree=$(dirname "$(readlink -f "$lab")")
if [ -e "$tree/.devcontainer" ]; then
    grep -q '^RUN /tmp/ladder/lab install' "$tree/.devcontainer/Dockerfile" &&
        ! grep -q 'apt-get' "$tree/.devcontainer/Dockerfile" &&
        sed -n "s/^libraries='\(.*\)'$/\1/p" "$lab" | grep -q libfmt-dev &&
        python3 -m json.tool "$tree/.devcontainer/devcontainer.json" > /dev/null
    status=$?
    expect 0
fi

title='sudo installs where it needs no password'
stub id 'echo 1000'
# shellcheck disable=SC2016
stub sudo '[ "$1" = -n ] && shift && exec "$@"'
fresh
run list
expect 3 apt 'noninteractive -q -o DPkg::Lock::Timeout=300 update'

title='apt fails: its last words'
stub apt-get 'echo "E: no network"; exit 100'
fresh
run list
expect 3 err 'E: no network' err 'sudo apt-get install -y'

title='one package is missing'
for tool in g++ ninja; do stub $tool 'exit 0'; done
stub cmake 'exit 1'
# shellcheck disable=SC2016
stub dpkg-query 'shift 3; for p in "$@"; do [ "$p" = catch2 ] || echo "installed $p"; done'
fresh
run list
expect 3 err 'sudo apt-get install -y catch2' err 'cmake failed'

title='packages that came another way are enough'
rm "$bin/sudo" "$bin/apt-get"
stub cmake "$cmake_stub"
fresh
run list
expect 7 out '<list>' err 'not installed: catch2'

title='arguments and exit code pass through'
stub dpkg-query "$all_installed"
fresh
run run 'a b' '' '*'
expect 7 out '<a b>' out '<>' out '<*>' err 'building ...' cmake '-G Ninja'

title='what belongs to course/ is built when it is asked for, and its help too; nothing else builds it'
commands=$(sed -n 's/^ *{"\([a-z]*\)", ".*"}.*/\1/p' "$tree/harness/commands/program.cpp")
[ "$(echo "$commands" | wc -l)" = 7 ] || { status='other commands'; expect 7; }
for command in $commands; do
    : > "$work/cmake"
    run "$command" my
    expect 7 out "<$command>" cmake '--target lab-course'
    : > "$work/cmake"
    run help "$command"
    expect 7 out '<help>' cmake '--target lab-course'
done
: > "$work/cmake"
run help list
expect 7 out '<help>' cmake '--target lab'
if grep -q lab-course "$work/cmake"; then status='built course/, too'; expect 7; fi

title='the second call does not configure'
: > "$work/cmake"
run list
expect 7 cmake '--build'
if grep -q -- '-S' "$work/cmake"; then status='configured again'; expect 7; fi

title='the second call builds nothing, and says nothing of a build'
# What Ninja prints where the lists of files are checked.
stub cmake "$(printf '%s' "$cmake_stub" | sed 's|\[1/1\] Building|[0/2] Re-checking globbed directories...|')"
run list
expect 7 out '<list>'
[ ! -s "$work/err" ] || { status='spoke of a build'; expect 7; }
stub cmake "$cmake_stub"

title='the build folder cannot be written: where else'
: > "$work/a file"
LADDER_BUILD="$work/a file/build" run list
expect 3 err "cannot write to $work/a file/build; set LADDER_BUILD to another folder"
[ "$(wc -l < "$work/err")" = 1 ] || { status='more than a line'; expect 3; }

title='a clone whose Git writes CR in text still runs'
if git -C "$tree" rev-parse --verify -q HEAD > /dev/null 2>&1; then
    git clone -q --shared --no-checkout -c core.autocrlf=true "$tree" "$work/clone"
    git -C "$work/clone" checkout -q HEAD -- .gitattributes lab tests/test_lab.sh
    for file in lab tests/test_lab.sh; do
        if grep -q "$(printf '\r')" "$work/clone/$file"; then status="CR in $file"; expect 0; fi
    done
fi

title='through a link from another folder'
ln -s "$lab" "$work/a link"
(cd / && PATH=$bin "$work/a link" list > "$work/out" 2> "$work/err")
status=$?
expect 7 out '<list>' out "called as $work/a link"

title='a long build in a log: a line for each tenth'
# shellcheck disable=SC2016  # expanded by the stub
stub cmake "$cmake_stub"'
n=0; while [ $n -lt 40 ]; do n=$((n + 1)); [ "$1" != --build ] || echo "[$n/40] Building"; done'
fresh
run list
expect 7 err 'building: 10%' err 'building: 50%' err 'building: 100%'
[ "$(grep -c 'building: ' "$work/err")" = 10 ] || { status='other than ten lines'; expect 7; }
stub cmake "$cmake_stub"

if command -v flock > /dev/null; then
    title='another lab is building'
    ln -s "$(command -v flock)" "$bin/flock"
    fresh
    mkdir -p "$LADDER_BUILD"
    flock "$LADDER_BUILD/lab.lock" sleep 0.3 &
    until ! flock -n "$LADDER_BUILD/lab.lock" true; do :; done
    run list
    expect 7 out '<list>' err 'another lab is building: waiting for it'
    wait
    rm "$bin/flock"
fi

title='an nvcc without C++20'
stub nvcc 'echo "Cuda compilation tools, release 11.8, V11.8.89"'
fresh
run list
expect 7 err 'is older than CUDA 12.0' cmake '-DLADDER_GPU=OFF'

title='an nvcc that serves'
stub nvcc 'echo "Cuda compilation tools, release 12.4, V12.4.99"'
fresh
CMAKE_CUDA_ARCHITECTURES=86 run list
expect 7 cmake '-DCMAKE_CUDA_ARCHITECTURES=86'
if grep -q LADDER_GPU=OFF "$work/cmake"; then status='built without it'; expect 7; fi

title='an nvcc that does not fit the compiler'
stub cmake "$(printf '%s' "$cmake_stub" | sed 's/BOOL=ON/BOOL=OFF/')"
fresh
CMAKE_CUDA_ARCHITECTURES=86 run list
expect 7 err 'does not work with this C++ compiler'

title='an nvcc and no GPU: nothing to say'
fresh
run list
if grep -q 'does not work' "$work/err"; then status='spoke of nvcc'; expect 7; fi

title='the disk is full: that, and not what CMake makes of it'
fresh
stub cmake 'echo "write error: No space left on device"; exit 1'
run list
expect 3 err 'cmake failed' err 'is full: free some space, or set LADDER_BUILD and TMPDIR'
stub cmake 'echo "CMake Error: no such thing"; exit 1'
run list
expect 3 err 'cmake failed'
if grep -q 'is full' "$work/err"; then status='full'; expect 3; fi

title='the build fails: the compiler has the word'
# shellcheck disable=SC2016
stub cmake 'case $1 in --build) echo "x.cpp:1: error: no"; exit 1 ;; esac'
fresh
run list
expect 3 err 'x.cpp:1: error: no' err 'the build failed'

stub cmake "$cmake_stub"

# A Python that has the modules in `modules` and shows how it was called.
cat > "$bin/python3" << 'PYTHON'
#!/bin/sh
if [ "$1" = - ]; then
    shift
    for module in "$@"; do grep -qx "$module" "$modules" || exit 1; done
    exit 0
fi
echo "python: $* with $LADDER_LAB"
PYTHON
chmod +x "$bin/python3"
modules=$work/modules
export modules
unset LADDER_PYTHON
printf '%s\n' ipykernel matplotlib nbclient nbformat numpy > "$modules"

title='the notebooks lack Jupyter, and nobody may install'
stub id 'echo 1000'
fresh
run notebooks
expect 3 err 'sudo apt-get install -y python3-ipykernel python3-matplotlib python3-nbclient python3-nbformat python3-numpy python3-notebook'

title='root installs Jupyter, and it opens'
stub id 'echo 0'
# shellcheck disable=SC2016
stub apt-get 'echo "$*" >> '"$work"'/apt; case "$*" in *install*) echo notebook >> "$modules" ;; esac'
run notebooks
expect 0 err 'installing python3-ipykernel' apt '--no-install-recommends install python3-ipykernel' \
    out "python: -m notebook --allow-root $(dirname "$(readlink -f "$lab")")/notebooks with $LADDER_BUILD/lab"

title='what is there is not installed, and JupyterLab goes first'
stub id 'echo 1000'
echo jupyterlab >> "$modules"
rm "$work/apt"
run notebooks
expect 0 out 'python: -m jupyterlab /'
if [ -e "$work/apt" ]; then status='installed again'; expect 0; fi

title='a Python that lacks the modules gives way to the next on PATH'
mkdir "$work/other"
printf '#!/bin/sh\nexit 1\n' > "$work/other/python3"
chmod +x "$work/other/python3"
PATH=$work/other:$bin "$lab" notebooks > "$work/out" 2> "$work/err" < /dev/null
status=$?
expect 0 out 'python: -m jupyterlab /'

title='the help of the notebooks is the program'"'"'s'
run notebooks --help
expect 7 out '<notebooks>' out '<--help>'

title='bad usage of lab notebooks'
run notebooks --run
expect 2 err 'usage: lab notebooks [--check | --update]'
run notebooks --check --update
expect 2 err 'usage: lab notebooks [--check | --update]'

title='lab docs: what the site needs is missing'
stub cmake "$cmake_stub"
rm "$bin/nvcc" "$bin/python3"
fresh
run docs
expect 3 err 'sudo apt-get install -y doxygen'

title='lab docs: builds the site, by default in the build folder'
# A Python that has what it is asked to import, and shows its arguments.
# shellcheck disable=SC2016
stub python3 '[ "$1" = - ] && exit 0; for a in "$@"; do echo "<$a>"; done; exit 7'
stub doxygen 'exit 0'
run docs
expect 7 out '/docs/site/build.py>' out "<$LADDER_BUILD/lab>" out "<$LADDER_BUILD/docs/html>"

title='lab docs: options'
run docs --out 'a folder' --open
expect 7 out '<a folder>' out '<--open>'
run docs --help
expect 7 out '<docs>' out '<--help>'

title='the help of lab install is the program'"'"'s, and no option is a package'
run install --help
expect 7 out '<install>' out '<--help>'
run install --everything
expect 2 err 'usage: lab install [PACKAGE]...'

title='bad usage of lab docs'
for arguments in --out --out= --fast here; do
    run docs $arguments
    expect 2 err 'usage: lab docs [--out DIR] [--open]'
done

title='lab tables, compare and time --like: Python answers; their help is the program'"'"'s'
run tables --check
expect 7 out '/docs/publish/tables.py>' out "<$LADDER_BUILD/lab>" out '<--check>'
run time 4 --like A100
expect 7 out '/docs/publish/like.py>' out "<$LADDER_BUILD/lab>" out '<4>' out '<--like>' out '<A100>'
run time --like A100 --help
expect 7 out '<time>' out '<--help>'
: > "$work/cmake"
run compare 'a b.json' c.json
expect 7 out '/docs/publish/compare.py>' out '<a b.json>' out '<c.json>'
if [ -s "$work/cmake" ]; then status='built for lab compare'; expect 7; fi
run tables --help
expect 7 out '<tables>' out '<--help>'

title='lab quiz: the same, and nothing is built for it'
rm -rf "$LADDER_BUILD"
run quiz 10s --list
expect 7 out '/docs/publish/quiz.py>' out '<10s>' out '<--list>'
[ ! -e "$LADDER_BUILD" ] || { failed=$((failed + 1)); echo "FAILED: $title"; }
run quiz --help
expect 7 out '<quiz>' out '<--help>'
rm "$bin/python3"
for command in quiz tables; do
    run $command
    expect 3 err "lab $command needs python3" err 'sudo apt-get install -y python3'
done

title='bad usage of lab test'
run test --slow
expect 2 err 'usage: lab test [--quick | --all | --only GROUP,... | --mutate [STAGES] | --coverage [STAGES]]'
run test --only kernels
expect 2 err "lab test has no group 'kernels'; it has tests,mutants,python,sanitizers,stages,guides,pages,nvcc"
run test --only tests,,nvcc
expect 2 err "lab test has no group ''"

[ $failed = 0 ] && echo 'all good'
