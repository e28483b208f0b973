# Sourced by all.sh: what a terminal, or a log, shows of its steps. Each has a line once it ends. In a terminal the line
# exists before: until then it ends with what the step said last, which of CTest and of lab is how far they are.
# shellcheck shell=bash
title=
watched=no  # whether the steps of this shell are shown before they end
watcher=
clear=
columns=0
if [ -t 1 ]; then
    watched=yes clear=$'\r\e[K'
    columns=$(stty size <&1 2> /dev/null | cut -d ' ' -f 2)
    if [ "${columns:-0}" = 0 ]; then columns=80; fi
fi

# begin TITLE LOG
begin() {
    title=$1
    if [ $watched = no ]; then return; fi
    show_last_line "$2" &
    watcher=$!
}
# It ignores interrupts, as all that runs in the background, and so asks whether the shell is still there.
show_last_line() {
    local last=
    while :; do
        printf '%s%-58s %s' "$clear" "$title" "${last:0:columns > 60 ? columns - 60 : 0}"
        sleep 1
        kill -0 $$ 2> /dev/null || exit
        last=$(tail -n 1 "$1" 2> /dev/null | tr '\t' ' ' | sed 's/^ *//')
    done
}

# finish OUTCOME [TEXT]: the line that stays, and lines below it
finish() {
    if [ -n "$watcher" ]; then
        kill "$watcher"
        wait "$watcher" 2> /dev/null
        watcher=
    fi
    printf '%s%-58s %s\n%s' "$clear" "$title" "$1" "${2:+$2
}"
}
