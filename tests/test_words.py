#!/usr/bin/env python3
"""Words that readers of the field stumble over are not in the kernels' comments, nor in what a stage says of itself.

    test_words.py [ROOT]    prints each with its place; exit code 1 if there are any

A floor under the English of the ladder: what passes still has to be read aloud.
"""

import re
import sys
from pathlib import Path

WORDS = re.compile(r"\b(behind|beside|whoever|nobody|everybody|somebody|dear|thrice|(?:is|are) there\b(?! (?:a|an|any|no)\b))",
                   re.IGNORECASE)
# What stays: a maximum lags behind, and places that are named
REVIEWED = ["may lag behind"]


def comments(source):
    """(line, text) of each comment and each string of a source."""
    for number, line in enumerate(source.splitlines(), 1):
        for text in re.findall(r"//.*|\"(?:\\.|[^\"\\])*\"", line):
            yield number, text


def found(root):
    files = sorted(root.glob("stages/*/kernel.cu")) + sorted(root.glob("stages/*.cuh"))
    for file in files:
        for number, text in comments(file.read_text(encoding="utf-8")):
            for reviewed in REVIEWED:
                text = text.replace(reviewed, "")
            for match in WORDS.finditer(text):
                yield f"{file.relative_to(root)}:{number}: '{match.group()}': {text.strip()}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    lines = list(found(root))
    print("\n".join(lines) or "no such word")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
