"""What the commands of this folder share: how they read their words, fail, show tables and write files."""

import argparse
import json
import os
import shlex
import shutil
import sys
import textwrap
from functools import partial
from pathlib import Path

from blocks import Failure
from markdown import plain_table, table, titled


def lab_command(*words):
    """A command as it can be typed where this one was: see lab_command() of harness/base/terminal.h."""
    return shlex.join([os.environ.get("LADDER_COMMAND") or "./lab", *words])


def failure_text(message):
    """What stderr gets to read; in a terminal, at its width."""
    text = f"lab: {message}"
    if not sys.stderr.isatty():
        return text + "\n"
    width = shutil.get_terminal_size((100, 24)).columns
    return "".join(textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False) + "\n"
                   for line in text.split("\n"))


def file_name(text):
    if text == "-":
        raise argparse.ArgumentTypeError("cannot write -: not a file name; standard output is /dev/stdout")
    return Path(text)


class Options(argparse.ArgumentParser):
    """Of `lab NAME`, with --json FILE and --markdown: says what is wrong in one line, and exits with 2. The help is the
    program's."""

    def __init__(self, name):
        super().__init__(add_help=False, allow_abbrev=False)
        self.name = name
        self.add_argument("--json", type=file_name)
        self.add_argument("--markdown", action="store_true")

    def error(self, message):
        self.exit(2, failure_text(f"{message}; see {lab_command(self.name, '--help')}"))


def write(path, text):
    """A file appears whole or not at all, and a link to it stays one; what is no file, such as /dev/stdout, is written to."""
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        path = path.resolve()
        new = path.with_name(f".{path.name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from error


def finish(given, command, answer, tables, notes):
    """Prints the tables, which are pairs of title and (columns, rows), and the notes. Returns the exit code."""
    if given.json:
        write(given.json, json.dumps({"command": command, **answer}, indent=1) + "\n")
    width = shutil.get_terminal_size((100, 24)).columns
    draw = table if given.markdown else partial(plain_table, width=width if sys.stdout.isatty() else None)
    shown = "".join(titled(title, draw(*content)) if title else draw(*content) for title, content in tables).lstrip("\n")
    notes = notes if given.markdown else [textwrap.fill(note, width, break_long_words=False, break_on_hyphens=False)
                                          for note in notes]
    print(shown + "".join(f"\n{note}\n" for note in notes), end="")
    return 0


def run(main):
    """The exit code of a main() that may fail."""
    try:
        return main()
    except Failure as failure:
        print(failure_text(failure), end="", file=sys.stderr)
        return failure.code
    except BrokenPipeError:  # as of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
