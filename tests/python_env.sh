#!/bin/sh
# python_env.sh BUILD: prints the path of a Python that can build and test the package: one of find_python.sh's that has
# nanobind, NumPy and pytest, or one in BUILD/python-env, made of a Python with headers and PyPI's packages, since not
# every distribution has them. One that has PyTorch comes first, and lends it to BUILD/python-env. Exit code 3 if there is
# none. What only some tests need may be missing: they are skipped.
set -u
find_python=$(dirname -- "$(readlink -f -- "$0")")/find_python.sh
environment=$1/python-env
needed='nanobind>=3.1 numpy pytest'
useful='scikit-build-core>=0.10 ml_dtypes jax'
"$find_python" nanobind numpy pytest torch && exit
if torch=$("$find_python" torch ensurepip venv); then
    lends=--system-site-packages
else
    "$find_python" nanobind numpy pytest && exit
    lends=
fi
install() {
    "$environment/bin/python3" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 "$@" >&2
}
made="$torch $needed $useful"
if [ "$(cat "$environment/complete" 2> /dev/null)" != "$made" ]; then
    python=${torch:-$("$find_python" ensurepip venv)} || exit 3
    # shellcheck disable=SC2086 # a word for each package, and none for what is not lent
    "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' &&
        "$python" -m venv --clear $lends "$environment" >&2 && install $needed || exit 3
    for package in $useful; do
        install "$package" || echo "python_env.sh: no $package: its tests are skipped" >&2
    done
    printf '%s\n' "$made" > "$environment/complete"
fi
printf '%s\n' "$environment/bin/python3"
