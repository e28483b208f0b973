"""What commands of `lab` that Python answers have in common: the command line, and the form of the output."""

import argparse
import json
import sys
from pathlib import Path

from blocks import Failure
from markdown import plain_table, table, titled


class Options(argparse.ArgumentParser):
    """With --json FILE and --markdown. The help is the program's: `lab help COMMAND`."""

    def __init__(self, command):
        super().__init__(add_help=False, allow_abbrev=False)
        self.command = command
        self.add_argument("--json", type=Path)
        self.add_argument("--markdown", action="store_true")

    def error(self, message):
        self.exit(2, f"lab: {message}; see ./lab {self.command} --help\n")


def write(path, text):
    """Appears whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from error


def finish(given, command, answer, tables, notes):
    """Prints the tables, which are pairs of title and (columns, rows), and the notes. Returns the exit code."""
    if given.json:
        write(given.json, json.dumps({"command": command, **answer}, indent=1) + "\n")
    draw = table if given.markdown else plain_table
    shown = "".join(titled(title, draw(*content)) if title else draw(*content) for title, content in tables)
    print(shown + "".join(f"\n{note}\n" for note in notes), end="")
    return 0


def run(main):
    """The exit code of a main() that may fail."""
    try:
        return main()
    except Failure as failure:
        print(f"lab: {failure}", file=sys.stderr)
        return failure.code
