#!/bin/sh
# find_python.sh MODULE...: prints $LADDER_PYTHON or else the first python3 on PATH that has these modules. Exit code 3 if
# there is none.
set -fu
IFS=:
for folder in '' $PATH; do
    if [ -n "$folder" ]; then python=$folder/python3; else python=${LADDER_PYTHON:-}; fi
    if [ -n "$python" ] && "$python" - "$@" 2> /dev/null << 'PYTHON'
import importlib.util, sys
sys.exit(any(importlib.util.find_spec(module) is None for module in sys.argv[1:]))
PYTHON
    then
        printf '%s\n' "$python"
        exit 0
    fi
done
exit 3
