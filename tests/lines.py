#!/usr/bin/env python3
"""How many lines each folder has, by kind of file, and how many it had at the last release.

    lines.py [--record] [ROOT]

Prints a table of the sources, and the files that are longer than a file may be in some of them. Exit code 1 if there
are any. --record writes the table into lines.json: at a release, so that the next one sees what
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
DIVIDED = ("course", "docs", "harness")  # their folders are counted one by one
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


def folders_of(file):
    """The folders that a file counts for: "harness" and "harness/base"."""
    if len(file.parts) == 1:
        return ["(top)"]
    top = file.parts[0]
    return [top, f"{top}/{file.parts[1]}"] if top in DIVIDED and len(file.parts) > 2 else [top]


def count(files):
    """The lines of each folder by kind."""
    folders = {}
    for file, lines in files.items():
        for folder in folders_of(file):
            folders.setdefault(folder, Counter())[kind_of(file)] += lines
    return folders


def table(folders, before):
    lines = [["", *KINDS, "all", before["commit"]]]
    for folder in sorted({*folders, *before["lines"]}):
        kinds = folders.get(folder, Counter())
        top, _, own = folder.partition("/")
        lines.append(["  " + own if own else top, *(kinds[kind] for kind in KINDS), kinds.total(), before["lines"].get(folder, 0)])
    tops = [kinds for folder, kinds in folders.items() if "/" not in folder]
    lines.append(["all", *(sum(kinds[kind] for kinds in tops) for kind in KINDS), sum(kinds.total() for kinds in tops),
                  sum(lines for folder, lines in before["lines"].items() if "/" not in folder)])
    return "\n".join(f"{row[0]:14}" + "".join(f"{cell or '':>8,}" if isinstance(cell, int) and cell else f"{cell or '':>8}"
                                              for cell in row[1:]) for row in lines)


def too_long(files):
    for file, lines in sorted(files.items(), key=lambda item: -item[1]):
        if file.parts[0] in SHORT_FILES and lines > MOST_LINES_OF_A_FILE:
            yield f"{file} has {lines} lines; at most {MOST_LINES_OF_A_FILE}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("root", nargs="?", type=Path, default=RECORD.parent.parent, metavar="ROOT")
    arguments = parser.parse_args()
    files = source_files(arguments.root)
    folders = count(files)
    if arguments.record:
        commit = subprocess.run(["git", "-C", arguments.root, "rev-parse", "--short=7", "HEAD"], check=True,
                                capture_output=True, text=True).stdout.strip()
        lines = {folder: kinds.total() for folder, kinds in sorted(folders.items())}
        RECORD.write_text(json.dumps({"commit": commit, "lines": lines}, indent=2) + "\n")
        return 0
    print(table(folders, json.loads(RECORD.read_text())))
    problems = list(too_long(files))
    print("", *problems or ["no file is longer than it may be"], sep="\n")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
