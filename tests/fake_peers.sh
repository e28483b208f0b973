#!/bin/sh
# Peers without PyTorch, for tests/test_peers.cpp; harness/time/peers.py says what the lines mean.
#
#     fake_peers.sh LOG [COMMAND]
#
# Appends each request to LOG. FlashAttention-2 takes 1.5 ms, FlashAttention-3 1.25 ms, unfused attention 4 ms; cuDNN and
# FlashAttention-4 refuse. COMMAND is run instead of telling a time.
log=$1 command=${2:-}

echo '{"device": "fake GPU", "libraries": {"PyTorch": "2.11.0", "cuDNN": "9.10.2", "fa3-fwd": "0.0.3"}}'
while read -r request; do
    echo "$request" >> "$log"
    case $request in
        *'"prepare"'*) printf '{"why_not": {"FlashAttention-2": "", "cuDNN": "does not like it", "unfused": "", '
                       echo '"FlashAttention-3": "", "FlashAttention-4": "is for another GPU"}}' ;;
        *'"release"'*) echo '{}' ;;
        *) if [ -n "$command" ]; then
               eval "$command"
           else
               case $request in
                   *unfused*) echo '{"milliseconds": 4.0}' ;;
                   *FlashAttention-3*) echo '{"milliseconds": 1.25}' ;;
                   *) echo '{"milliseconds": 1.5}' ;;
               esac
           fi ;;
    esac
done
