#!/bin/sh
# python_env.sh BUILD: prints the path of a Python that can build and test the package: one of find_python.sh's that has
# nanobind, NumPy and pytest, or one in BUILD/python-env, made of a Python with headers and PyPI's packages, since not
# every distribution has them. Exit code 3 if there is none.
set -u
find_python=$(dirname -- "$(readlink -f -- "$0")")/find_python.sh
environment=$1/python-env
"$find_python" nanobind numpy pytest && exit
if [ ! -e "$environment/complete" ]; then
    python=$("$find_python" ensurepip venv) || exit 3
    "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' &&
        "$python" -m venv --clear "$environment" >&2 &&
        "$environment/bin/python3" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 \
            'nanobind>=2.2' ml_dtypes numpy pytest >&2 || exit 3
    : > "$environment/complete"
fi
printf '%s\n' "$environment/bin/python3"
