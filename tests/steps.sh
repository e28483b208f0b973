# Sourced by what runs on a GPU: steps that are logged to $out/log.txt and cannot keep one another from running.
# shellcheck shell=sh disable=SC2154  # $out is the caller's
failed=0
summary=
: > "$out/log.txt"

# step NAME SECONDS COMMAND...: runs the command for so long at most, and until the time of `date +%s` that $until names,
# if it does. Notes the outcome in $summary, and in $failed whether any step failed.
step() {
    name=$1 limit=$2
    shift 2
    printf '\n=== %s: %s\n' "$name" "$*" | tee -a "$out/log.txt"
    began=$(date +%s)
    if [ -n "${until:-}" ] && [ "$limit" -gt $((until - began)) ]; then limit=$((until - began)); fi
    status=124
    if [ "$limit" -gt 0 ]; then
        timeout --kill-after=2 "$limit" "$@" > "$out/step.txt" 2>&1
        status=$?
        cat "$out/step.txt" >> "$out/log.txt"
        tail -n 40 "$out/step.txt"
        rm -f "$out/step.txt"
    fi
    outcome=ok
    if [ "$limit" -le 0 ]; then
        outcome='no time was left'
    elif [ $status = 124 ]; then
        outcome="stopped after $limit s"
    elif [ $status != 0 ]; then
        outcome="exit code $status"
    fi
    if [ $status != 0 ]; then failed=1; fi
    summary=$summary$(printf '%-16s %4d s  %s' "$name" $(($(date +%s) - began)) "$outcome")'
'
}

# The last words, and the exit code.
finish_steps() {
    printf '\n%s' "$summary" | tee -a "$out/log.txt"
    exit $failed
}
