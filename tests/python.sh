#!/bin/sh
# tests/python.sh BUILD PYTHON [PYTEST ARGUMENTS]: builds the Python package in BUILD, for a Python that has nanobind, NumPy
# and pytest, and tests it. What needs PyTorch or transformers is skipped where that Python has them not.
set -eu
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
build=$(readlink -f -- "$1")
python=$2
shift 2
cmake -S "$root" -B "$build" -DLADDER_PYTHON=ON "-DPython_EXECUTABLE=$python"
cmake --build "$build" --parallel "$(nproc)" --target python_package
LADDER_BUILD=$build PYTHONDONTWRITEBYTECODE=1 exec "$python" -m pytest -q -rs -p no:cacheprovider "$@" "$root/tests/python"
