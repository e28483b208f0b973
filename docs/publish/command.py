"""What the commands of this folder share: how they read their words, and how they write files."""

import argparse

from blocks import Failure


class Options(argparse.ArgumentParser):
    """Of `lab NAME`: says what is wrong in one line, and exits with 2. The help is the program's."""

    def __init__(self, name):
        super().__init__(add_help=False, allow_abbrev=False)
        self.name = name

    def error(self, message):
        self.exit(2, f"lab: {message}; see ./lab {self.name} --help\n")


def write(path, text):
    """Appears whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from error
