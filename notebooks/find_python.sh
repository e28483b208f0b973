#!/bin/sh
# Prints a Python that has the modules which the notebooks need, and those named as arguments. Exit code 3 if there is none.
exec "$(dirname -- "$0")/../tests/find_python.sh" ipykernel matplotlib nbclient nbformat numpy "$@"
