#!/bin/sh
# python_env.sh BUILD: prints the path of a Python that can build and test the package: one of find_python.sh's that has
# nanobind, NumPy and pytest, or one in BUILD/python-env, made of the first Python with headers and PyPI's packages, since
# not every distribution has them. Exit code 3 if there is none.
set -fu
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
environment=$1/python-env
"$root/tests/find_python.sh" nanobind numpy pytest && exit
if [ ! -e "$environment/complete" ]; then
    IFS=:
    for folder in $PATH; do
        python=${folder:-.}/python3
        if "$python" - 2> /dev/null << 'PYTHON'
import ensurepip, os, sys, sysconfig, venv
sys.exit(sys.version_info < (3, 9) or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))
PYTHON
        then
            "$python" -m venv --clear "$environment" >&2 &&
                "$environment/bin/python3" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 \
                    'nanobind>=2.2' ml_dtypes numpy pytest >&2 && : > "$environment/complete"
            break
        fi
    done
fi
[ -e "$environment/complete" ] || exit 3
printf '%s\n' "$environment/bin/python3"
