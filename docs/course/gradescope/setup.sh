#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the machine on which submissions are graded: it unpacks the ladder,
# installs what is missing and builds.
set -euo pipefail
source=${AUTOGRADER:-/autograder}/source
mkdir -p "$source/ladder"
tar -xzf "$source/ladder.tar.gz" -C "$source/ladder"
"$source/ladder/lab" doctor
"$source/ladder/lab" grade --help > /dev/null  # builds what grades, so that no submission waits for it
