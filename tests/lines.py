#!/usr/bin/env python3
"""How many lines each room of the house has, by kind of file, and how many it had at the last release.

    lines.py [--record] [ROOT]

Prints a table of the sources, and what breaks the bounds: of folders as a whole, and of each file in some of them.
Exit code 1 if anything does. --record writes the table into lines.json: at a release, so that the next one sees what
has grown.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

RECORD = Path(__file__).resolve().with_name("lines.json")
KINDS = {"C++": {".cpp", ".h"}, "CUDA": {".cu", ".cuh"}, "Python": {".py"}, "shell": {".sh", "lab", "run", "run_autograder"},
         "web": {".html", ".css", ".js"}, "CMake": {"CMakeLists.txt", ".cmake"}}
FOLDERS = (".ci", "course", "docs", "examples", "explorer", "harness", "notebooks", "python", "reference", "simt", "stages",
           "tests")
WITH_ROOMS = ("course", "docs", "harness")  # their folders are counted one by one
# The 50s add two sweeps of gradients and parts that end with several stages to harness/, and a counter to simt/; the 60s
# add windows, column bounds and documents to problems, cases, regimes and options in harness/, and to simt/ a check of phases,
# a refusal and a vote. The 80s add requests' lengths, and pools of pages with their tables, to the same places in harness/,
# and the 70s the error of products of 8 bits; simt/ adds these bit by bit. Several GPUs add ranks to harness/: threads, a
# ring over NCCL, and the commands that they take. What a problem may have beyond its sizes stands in one place of harness/.
# Several ranks' gradients, and kernels that stages share, add 53 lines to it. A cache whose keys alone are divided adds 135: what
# all ranks gather, in memory and by NCCL, a workspace that depends on their number, and cases. K and V in 8 bits, which the
# harness rounds for a stage, add 104. FlashInfer as a peer, caches for FlashAttention-4, drafts of 2 to 16 rows, and
# defaults that follow recordings of caches add 106. What each stage takes, as a column of `lab list --json` from which
# the table of docs/python.md is made, adds 9; an index of the recordings, and a reference that converts a block of keys
# at a time, 61; tiles of 64 keys for flex_attention, and a problem on which stages for drafts are counted, 2.
# Column bounds and tiles for FlashAttention-4, in lists of blocks, add 45; FlashAttention-3 in 8 bits, 7.
# simt/ has 4 lines more for fences that come before the wait for an asynchronous copy, and 4 to count the bytes of bulk copies
# with an evict-first hint; kernels that are launched early, with what their threads know before they wait, add 28.
MOST_LINES = {"harness": 19103, "simt": 5821}
MOST_LINES_OF_A_FILE = 500
SHORT_FILES = ("course", "harness", "reference", "simt", "tests")  # where that holds


def kind_of(file):
    return next((kind for kind, names in KINDS.items() if file.suffix in names or file.name in names), None)


def source_files(root):
    """Every source with its number of lines, by its path relative to the root."""
    paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if path.is_file()]
    paths += [root / "lab", root / "CMakeLists.txt"]
    return {path.relative_to(root): path.read_bytes().count(b"\n") for path in paths
            if kind_of(path) and "__pycache__" not in path.parts}


def rooms_of(file):
    """The rooms that a file counts for: "harness" and "harness/base"."""
    if len(file.parts) == 1:
        return ["(top)"]
    top = file.parts[0]
    return [top, f"{top}/{file.parts[1]}"] if top in WITH_ROOMS and len(file.parts) > 2 else [top]


def count(files):
    """The lines of each room by kind."""
    rooms = {}
    for file, lines in files.items():
        for room in rooms_of(file):
            rooms.setdefault(room, Counter())[kind_of(file)] += lines
    return rooms


def table(rooms, before):
    lines = [["", *KINDS, "all", before["commit"]]]
    for room in sorted({*rooms, *before["lines"]}):
        kinds = rooms.get(room, Counter())
        top, _, own = room.partition("/")
        lines.append(["  " + own if own else top, *(kinds[kind] for kind in KINDS), kinds.total(), before["lines"].get(room, 0)])
    tops = [kinds for room, kinds in rooms.items() if "/" not in room]
    lines.append(["all", *(sum(kinds[kind] for kinds in tops) for kind in KINDS), sum(kinds.total() for kinds in tops),
                  sum(lines for room, lines in before["lines"].items() if "/" not in room)])
    return "\n".join(f"{row[0]:14}" + "".join(f"{cell or '':>8,}" if isinstance(cell, int) and cell else f"{cell or '':>8}"
                                              for cell in row[1:]) for row in lines)


def too_long(rooms, files):
    for room, most in MOST_LINES.items():
        if (lines := rooms[room].total()) > most:
            yield f"{room} has {lines:,} lines; at most {most:,}"
    for file, lines in sorted(files.items(), key=lambda item: -item[1]):
        if file.parts[0] in SHORT_FILES and lines > MOST_LINES_OF_A_FILE:
            yield f"{file} has {lines} lines; at most {MOST_LINES_OF_A_FILE}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("root", nargs="?", type=Path, default=RECORD.parent.parent, metavar="ROOT")
    arguments = parser.parse_args()
    files = source_files(arguments.root)
    rooms = count(files)
    if arguments.record:
        commit = subprocess.run(["git", "-C", arguments.root, "rev-parse", "--short=7", "HEAD"], check=True,
                                capture_output=True, text=True).stdout.strip()
        lines = {room: kinds.total() for room, kinds in sorted(rooms.items())}
        RECORD.write_text(json.dumps({"commit": commit, "lines": lines}, indent=2) + "\n")
        return 0
    print(table(rooms, json.loads(RECORD.read_text())))
    problems = list(too_long(rooms, files))
    print("", *problems or ["no room and no file is longer than it may be"], sep="\n")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
