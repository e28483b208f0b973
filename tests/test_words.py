#!/usr/bin/env python3
"""Words that readers of the field stumble over are in no kernel's comments, in no lesson and on no page of the ladder.

    test_words.py [ROOT]    prints each with its place; exit code 1 if there are any

A floor under the English of the ladder: what passes still has to be read aloud. Read are kernels' comments and strings,
and the pages of stages/ with the glossary and the page on new stages. The lessons of the 40s and their part's page are
to be edited yet, and join then: UNEDITED goes. Blocks that programs write and listings are skipped, as are the targets
of links.
"""

import re
import sys
from pathlib import Path

THERE = r"(?:is|are|was|were|be|been) there\b(?! (?:a|an|any|no)\b)"
WORDS = re.compile(
    rf"\b(?:behind|beside|whoever|nobody|everybody|somebody|dear|thrice|for ever|namesake|{THERE})\b", re.I)
# What stays: a maximum lags behind, "Is there room?" asks whether there is any, and two counters have this name
REVIEWED = re.compile(r"\b(?:lags? behind|is there room|exponentials beside (?:own )?products)\b", re.I)

UNEDITED = "stages/4"
BESIDE_STAGES = ("docs/glossary.md", "docs/add_a_stage.md")
SKIPPED = re.compile(r"<!-- generated: .*?<!-- end -->|^ *```.*?^ *```|\]\([^)]*\)", re.S | re.M)


def comments(source):
    """(line, text) of each comment and each string of a source."""
    for number, line in enumerate(source.splitlines(), 1):
        for text in re.findall(r"//.*|\"(?:\\.|[^\"\\])*\"", line):
            yield number, text


def prose(page):
    """(line, text) of each line of a page, without what is not read."""
    read = SKIPPED.sub(lambda skipped: "]" * skipped[0].startswith("]") + "\n" * skipped[0].count("\n"), page)
    yield from enumerate(read.splitlines(), 1)


def rejected(text):
    return [match[0] for match in WORDS.finditer(REVIEWED.sub("", text))]


def found(root):
    kernels = sorted(root.glob("stages/*/kernel.cu")) + sorted(root.glob("stages/*.cuh"))
    pages = sorted(root.glob("stages/**/*.md")) + [root / name for name in BESIDE_STAGES]
    pages = [page for page in pages if not page.relative_to(root).as_posix().startswith(UNEDITED)]
    for file, read in [(kernel, comments) for kernel in kernels] + [(page, prose) for page in pages]:
        for number, text in read(file.read_text(encoding="utf-8")):
            for word in rejected(text):
                yield f"{file.relative_to(root)}:{number}: '{word}': {text.strip()}"


def finds_what_it_is_for():
    page = "It is there.\n<!-- generated: x -->\nbeside\n<!-- end -->\n```cpp\nbehind\n```\n[a](b#beside)\nbeside every"
    assert [(n, rejected(text)) for n, text in prose(page) if rejected(text)] == [(1, ["is there"]), (9, ["beside"])]
    source = 'int behind;  // nobody\nf("O was there");'
    assert [rejected(text) for _, text in comments(source)] == [["nobody"], ["was there"]]
    assert not rejected("Is there a mask? m may lag behind it, besides l.") and rejected("Dear, and behind it")


def main():
    finds_what_it_is_for()
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    lines = list(found(root))
    print("\n".join(lines) or "no such word")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
