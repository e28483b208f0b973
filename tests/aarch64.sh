#!/usr/bin/env bash
# Verifies and race-checks the algorithm's stages on aarch64, outside of the suite: here where this machine is one, else
# cross-compiled and under qemu-user.
#
#     tests/aarch64.sh OUT [BUILD] [STAGES]
#
# Writes OUT/aarch64.json, the record for docs/results. BUILD [build-aarch64] keeps what it builds, and for
# cross-compiling the other architecture's libraries, which come from the distribution's archive (Debian's; Ubuntu keeps
# them on a server of its own, which apt must know) without being installed. STAGES are those of lab [0-6]. Needs, beside
# what lab does, g++-aarch64-linux-gnu and qemu-user-static. It takes about a quarter of an hour on two cores.
# Exits with 0 if all passed, 1 if not, 2 for bad usage, 3 if it cannot run here.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 3 ]; then
    echo "usage: $0 OUT [BUILD] [STAGES]" >&2
    exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1" "${2:-$root/build-aarch64}"
out=$(readlink -f -- "$1")
build=$(readlink -f -- "${2:-$root/build-aarch64}")
stages=${3:-0-6}
AARCH64_ROOT=$build/root
machine=
export AARCH64_ROOT
cannot() { echo "aarch64.sh: $*" >&2; exit 3; }
have() { command -v "$1" > /dev/null 2>&1; }

# Unpacks the libraries of the other architecture, by an apt that knows no other packages than those it gets.
get_libraries() {
    local libraries apt=$build/apt package
    libraries=$(sed -n "s/^libraries='\(.*\)'$/\1/p" "$root/lab")
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$AARCH64_ROOT"
    : > "$apt/status"
    cat > "$apt/apt.conf" << END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
END
    APT_CONFIG=$apt/apt.conf apt-get -q update
    # shellcheck disable=SC2086  # a list of words
    APT_CONFIG=$apt/apt.conf apt-get -q -y --no-install-recommends --download-only install libc6 libstdc++6 $libraries
    for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$AARCH64_ROOT"; done
    rm -rf "$apt"
    touch "$AARCH64_ROOT/complete"
}

# Programs of aarch64 run as others do if the kernel knows qemu, as the package tells it where systemd runs. Elsewhere
# (in a container) this script tells it, in a namespace of its own: Linux 6.7 or newer lets everybody.
runs_aarch64() { "$build/lab" --version > /dev/null 2>&1; }
in_namespace() {
    exec unshare --user --map-root-user --mount bash -c 'mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc &&
        cat /usr/lib/binfmt.d/qemu-aarch64.conf > /proc/sys/fs/binfmt_misc/register &&
        AARCH64_REGISTERED=yes exec "$@"' sh "$0" "$out" "$build" "$stages"
}

cross=()
if [ "$(uname -m)" != aarch64 ]; then
    if ! have aarch64-linux-gnu-g++ || ! have qemu-aarch64-static || ! have apt-get; then
        cannot 'run this, then try again:  sudo apt-get install -y g++-aarch64-linux-gnu qemu-user-static'
    fi
    [ -e "$AARCH64_ROOT/complete" ] || get_libraries
    cross=("-DCMAKE_TOOLCHAIN_FILE=$root/tests/aarch64.cmake")
    machine="qemu-user $(qemu-aarch64-static --version | sed -n 's/^qemu-aarch64 version \([0-9.]*\).*/\1/p')"
    export QEMU_LD_PREFIX=$AARCH64_ROOT
fi
if [ -z "${AARCH64_REGISTERED:-}" ]; then
    if have ninja; then cross+=(-G Ninja); fi
    cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DLADDER_GPU=OFF "${cross[@]}"
    cmake --build "$build" --parallel "$(nproc)" --target lab check_mutants
    runs_aarch64 || in_namespace
fi
runs_aarch64 || cannot "$build/lab does not run: the kernel does not know qemu-aarch64"

# step NAME COMMAND...: keeps its outcome, its seconds and what it said.
failed=0
step() {
    local name=$1 status=0
    shift
    SECONDS=0
    echo "=== $name"
    "$@" > "$out/$name.txt" 2>&1 || status=$?
    echo "$status $SECONDS" > "$out/$name.outcome"
    grep -v '^lab: ' "$out/$name.txt" || true
    [ $status = 0 ] || failed=1
}
steps=(verify mutants checked)
step verify "$build/lab" verify "$stages" --quick --backend cpu --json "$out/verify.json"
# Kernels that are wrong, among them some that race: a checker that found nothing anywhere would pass the next step.
step mutants "$build/tests/check_mutants" "$root/stages/01_flash_attention_1" "$root/stages/04_split_q"
step checked "$build/lab" verify "$stages" --quick --backend checked --orders --json "$out/checked.json"

compiler() {
    sed -n 's/^set(CMAKE_CXX_COMPILER_\(ID\|VERSION\) "\(.*\)")/\2/p' "$build"/CMakeFiles/*/CMakeCXXCompiler.cmake | tr '\n' ' ' | sed 's/ $//'
}
commit=${LADDER_COMMIT:-$(git -C "$root" describe --always --dirty --abbrev=40 --match=none 2> /dev/null || echo unknown)}
python3 - "$out" "$commit" "$machine" "$(compiler)" "${steps[@]}" << 'END'
import json, re, sys, datetime
from pathlib import Path

out, (commit, machine, compiler) = Path(sys.argv[1]), sys.argv[2:5]
record = {"kind": "aarch64", "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
          "commit": commit, "device": f"aarch64 ({machine or 'native'})",
          "compiler": compiler, "steps": []}
for name in sys.argv[5:]:
    said = (out / f"{name}.txt").read_text()
    status, seconds = map(int, (out / f"{name}.outcome").read_text().split())
    step = {"step": name, "passed": status == 0, "seconds": seconds}
    if name == "mutants":
        count = re.search(r"(\d+) of (\d+) mutants are rejected", said)
        step |= {"mutants": int(count[2]), "rejected": int(count[1])} if count else {"mutants": 0, "rejected": 0}
    else:
        cases = [tuple(map(int, pair)) for pair in re.findall(r"(\d+) of (\d+) cases", said)]
        step |= {"stages": len(cases), "cases": sum(all for _, all in cases), "cases_passed": sum(ok for ok, _ in cases),
                 "races": len(re.findall(r"race on ", said))}
    record["steps"].append(step)
(out / "aarch64.json").write_text(json.dumps(record, indent=2) + "\n")
END
cd "$out"
rm -f verify.json checked.json ./*.outcome
cat aarch64.json
exit $failed
