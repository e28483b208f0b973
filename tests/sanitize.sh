#!/bin/sh
# Runs every stage, or those named, on the GPU under compute-sanitizer and writes what it found as JSON.
#
#     tests/sanitize.sh build/lab docs/results/sanitizer.json [STAGES]
#
# Exits with 0 if no tool reported anything and every answer was right, 1 if not, 3 if it cannot run here.
set -eu

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    echo "usage: $0 LAB JSON [STAGES]" >&2
    exit 2
fi
lab=$1
record=$2
stages=${3:-}
root=$(dirname -- "$(readlink -f -- "$0")")/..
PATH=$PATH:/usr/local/cuda/bin

query() { nvidia-smi --query-gpu="$1" --format=csv,noheader | head -n 1; }
for program in compute-sanitizer nvidia-smi "$lab"; do
    command -v "$program" > /dev/null || { echo "$0: there is no $program" >&2; exit 3; }
done
gpu=$(query name) || { echo "$0: there is no GPU" >&2; exit 3; }

# Small, for a sanitized run is hundreds of times slower; ragged, since most mistakes live in the last tile.
# Grouped heads, both types and layouts, more rows than keys under a causal mask, one query row over several
# splits, more query tiles than multiprocessors, shares of one without a visible key, a single key.
cases='--shape 1,2,2,65,65,64 --dtype fp16
--shape 2,4,2,37,127,128 --dtype fp16 --causal --layout bnhd
--shape 1,4,1,127,65,64 --dtype bf16 --causal
--shape 1,2,1,130,193,128 --dtype bf16 --layout bnhd
--shape 1,8,2,1,300,128 --dtype bf16
--shape 1,2,2,1,1025,64 --dtype fp16 --causal
--shape 1,2,1,150,97,256 --dtype bf16 --causal
16 17 --shape 1,6,2,460,460,64 --dtype fp16 --causal
34-36 --shape 1,48,8,600,130,64 --dtype bf16 --causal
50-58 --shape 1,4,2,200,330,64 --dtype bf16 --causal
50-58 --shape 1,2,2,300,150,128 --dtype fp16 --layout bnhd
57 58 --shape 1,4,2,200,161,256 --dtype bf16 --causal
57 58 --shape 1,2,1,1,130,256 --dtype fp16
--shape 1,1,1,1,1,64 --dtype fp16'
if [ "$(query compute_cap | tr -d .)" -lt 80 ]; then
    cases=$(printf '%s\n' "$cases" | grep -v bf16)
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The errors that a tool's log sums up; 1 for a log without a sum, since then the tool did not finish.
errors_in() {
    sed -n -e 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p' \
        -e 's/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$1" 2> /dev/null | tail -n 1 | grep . || echo 1
}

# One tool over all cases. Leaves its errors and its largest exit code, and says what went wrong.
sanitize() {
    tool=$1
    errors=0
    worst=0
    while read -r case; do
        log=$work/$tool.log
        status=0
        rm -f "$log"
        case $case in --*) case="$stages $case" ;; esac
        # shellcheck disable=SC2086  # stages and options
        compute-sanitizer --tool "$tool" --error-exitcode 99 --log-file "$log" \
            "$lab" verify --backend gpu $case > "$work/$tool.out" 2>&1 < /dev/null || status=$?
        found=$(errors_in "$log")
        errors=$((errors + found))
        if [ "$status" -gt "$worst" ]; then worst=$status; fi
        echo "$tool: $case: $found errors, exit code $status"
        if [ "$found" != 0 ] || [ "$status" != 0 ]; then
            tail -n 20 "$work/$tool.out"
            head -n 60 "$log" || true
        fi
    done << END
$cases
END
    echo "$errors $worst" > "$work/$tool.sum"
}

# The tools share the GPU: each leaves most of it idle.
tools='memcheck racecheck synccheck initcheck'
for tool in $tools; do
    sanitize "$tool" > "$work/$tool.report" 2>&1 &
done
wait

commit=${LADDER_COMMIT:-unknown}
if [ -z "${LADDER_COMMIT:-}" ] && head=$(git -C "$root" rev-parse HEAD 2> /dev/null); then
    commit=$head$([ -z "$(git -C "$root" status --porcelain -- . ':!docs')" ] || echo -dirty)
fi

# "a", "b", ... of lines
quoted() { sed 's/.*/"&"/' | paste -s -d '|' - | sed 's/|/, /g'; }
all_stages() { cd "$root/stages" && printf '%s\n' [0-9]*/kernel.cu | cut -d / -f 1; }

total=0
outcomes=
for tool in $tools; do
    cat "$work/$tool.report"
    read -r errors worst < "$work/$tool.sum"
    outcomes="$outcomes${outcomes:+,
}  {\"tool\": \"$tool\", \"errors\": $errors, \"exit_code\": $worst}"
    if [ "$errors" = 0 ] && [ "$worst" != 0 ]; then errors=1; fi
    total=$((total + errors))
done

cat > "$record.new" << END
{
 "kind": "sanitizer",
 "date": "$(date -u +%Y-%m-%dT%H:%M:%SZ)",
 "commit": "$commit",
 "gpu": "$gpu",
 "driver": "$(query driver_version)",
 "compute_sanitizer": "$(compute-sanitizer --version | sed -n 's/.*[Vv]ersion \([0-9.]*\).*/\1/p' | head -n 1)",
 "stages": [$(if [ "$stages" ]; then echo "$stages"; else all_stages; fi | quoted)],
 "cases": [$(printf '%s\n' "$cases" | quoted)],
 "tools": [
$outcomes
 ],
 "errors": $total
}
END
mv "$record.new" "$record"
echo "$total errors"
[ "$total" = 0 ]
