#!/usr/bin/env python3
"""Words that readers of the field stumble over are in no kernel's comments, in no lesson, on no page and in no notebook.

    test_words.py [ROOT]    prints each with its place; exit code 1 if there are any

A floor under the English of the ladder: what passes still has to be read aloud. Read are kernels' comments and strings,
the pages of stages/ and docs/, the README of every other folder, and the Markdown of notebooks. Recordings, blocks that
programs write and listings are skipped, as are the targets of links.

Read are also the comments and strings of programs: messages, and the texts of tables, figures and plots.
"""

import ast
import json
import re
import sys
from pathlib import Path

# Private words for what the field has a name for: special function units, quantization kernels, a rung's declaration
PRIVATE = (r"units? for exponentials|the kernels? that rounds?|in LADDER_STAGE say|no such rung|what is not a number"
           r"|went round|would be so|stands once"
           # A line that begins an exercise, counters that move, and "of" after a noun and a comma
           r"|(?:makes?|an) exercise of it|makes a folder with the parent's kernel|counters? (?:that )?(?:can )?moves?"
           r"|in the profiles?, of")
THERE = r"(?:is|are|was|were|be|been) there\b(?! (?:a|an|any|no)\b)"
WORDS = re.compile(
    rf"\b(?:behind|beside|whoever|nobody|everybody|somebody|dear|thrice|for ever|namesake|{PRIVATE}|{THERE})\b", re.I)
# What stays: a maximum lags behind, "Is there room?" asks whether there is any, and names: of a constant, and of the
# sandbox's other user
REVIEWED = re.compile(r"\b(?:lags? behind|is there room|as nobody)\b|`nobody`|\(nobody\)", re.I)

PAGES = ("*.md", "stages/**/*.md", "docs/**/*.md", "*/README.md")
RECORDED = "docs/results/"
PROGRAMS = ("harness/**/*.cpp", "harness/**/*.h", "harness/**/*.cu", "course/**/*.cpp", "course/**/*.h", "simt/*.cpp",
            "simt/*.h", "python/src/*", "reference/*")
SCRIPTS = ("docs/*/*.py", "python/flash_ladder/*.py", "examples/**/*.py")
SKIPPED = re.compile(r"<!-- generated: .*?<!-- end -->|^ *```.*?^ *```|\]\([^)]*\)", re.S | re.M)


def comments(source):
    """(line, text) of each comment and each string of a source. A string of one word is a name."""
    for number, line in enumerate(source.splitlines(), 1):
        for text in re.findall(r"//.*|\"(?:\\.|[^\"\\])*\"", line):
            if text.startswith("//") or " " in text:
                yield number, text


def texts(source):
    """(line, text) of each string of a Python source but its docstrings."""
    tree = ast.parse(source)
    documented = {id(node.body[0].value) for node in ast.walk(tree)
                  if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.lineno, node.value


def prose(page):
    """(line, text) of each line of a page, without what is not read."""
    read = SKIPPED.sub(lambda skipped: "]" * skipped[0].startswith("]") + "\n" * skipped[0].count("\n"), page)
    yield from enumerate(read.splitlines(), 1)


def cells(notebook):
    """(number of the cell, text) of each line of a notebook's Markdown."""
    for number, cell in enumerate(json.loads(notebook)["cells"], 1):
        if cell["cell_type"] == "markdown":
            yield from ((number, text) for _, text in prose("".join(cell["source"])))


def rejected(text):
    return [match[0] for match in WORDS.finditer(REVIEWED.sub("", text))]


def found(root):
    kernels = sorted(root.glob("stages/*/kernel.cu")) + sorted(root.glob("stages/**/*.cuh"))
    pages = sorted({page for pattern in PAGES for page in root.glob(pattern)})
    pages = [page for page in pages if not page.relative_to(root).as_posix().startswith(RECORDED)]
    read_as = {comments: kernels, prose: pages, cells: sorted(root.glob("notebooks/*.ipynb"))}
    programs, scripts = (sorted({file for pattern in patterns for file in root.glob(pattern) if file.is_file()})
                         for patterns in (PROGRAMS, SCRIPTS))
    read_as = read_as | {comments: kernels + programs, texts: scripts}
    for file, read in [(file, read) for read, files in read_as.items() for file in files]:
        for number, text in read(file.read_text(encoding="utf-8")):
            for word in rejected(text):
                yield f"{file.relative_to(root)}:{number}: '{word}': {text.strip()}"


def finds_what_it_is_for():
    page = "It is there.\n<!-- generated: x -->\nbeside\n<!-- end -->\n```cpp\nbehind\n```\n[a](b#beside)\nbeside every"
    assert [(n, rejected(text)) for n, text in prose(page) if rejected(text)] == [(1, ["is there"]), (9, ["beside"])]
    source = 'int behind;  // nobody\nf("O was there");'
    assert [rejected(text) for _, text in comments(source)] == [["nobody"], ["was there"]]
    assert [text for _, text in texts('def f():\n    "behind"\n    return f"{x} behind"')] == [" behind"]
    assert not rejected("Is there a mask? m may lag behind it, besides l.") and rejected("Dear, and behind it")
    assert rejected("The kernel that rounds uses the unit for exponentials.") == ["The kernel that rounds",
                                                                                  "unit for exponentials"]
    assert rejected("`./lab start 5` makes an exercise of it. No counter moves. In the profile, of 2k keys, it waits.") == [
        "an exercise of it", "counter moves", "In the profile, of"]
    assert not rejected("The profile, of a batch. A counter changes. It sets this change as an exercise.")


def main():
    finds_what_it_is_for()
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    lines = list(found(root))
    print("\n".join(lines) or "no such word")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
