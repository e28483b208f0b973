"""What a generated block of a page is: a function under its name. `<!-- generated: counters 1 5 -->` on a page asks the
one that was registered as "counters", with the words "1" and "5"."""

from typing import NamedTuple

NOT_RECORDED = "Not recorded yet.\n"
MOST_ROWS = 6  # of a table in a lesson; the others are folded
LEGEND = "\nBold marks where the stage's change should show.\n"

BLOCKS = {}
PICTURES = []
FILES = {}


class Failure(Exception):
    """Why there are no pages, in one line, and the exit code that says of which kind that is."""

    def __init__(self, why, code=2):
        super().__init__(why)
        self.code = code


class Page(NamedTuple):
    """Whose page it is: a stage's, that of the part with this first number, or one of the whole ladder."""
    path: str  # relative to the root
    stage: object = None
    part: int = None

    def link(self, path):
        """How this page links to a path relative to the root."""
        return "../" * self.path.count("/") + path if not path.startswith(self.folder) else path[len(self.folder):]

    @property
    def folder(self):
        return self.path[:self.path.rfind("/") + 1]


def block(name):
    """Registers a function of the sources, the page and the words after the name, which returns Markdown. It may return
    None where there is no such block."""
    def register(make):
        BLOCKS[name] = make
        return make
    return register


def pictures(make):
    """Registers a function of the sources that returns pictures, for docs/plots/pictures.json."""
    PICTURES.append(make)
    return make


def generated_file(path):
    """Registers a function of the sources that returns all of a file, whose path is relative to the root."""
    def register(make):
        FILES[path] = make
        return make
    return register


def numbers(words):
    """The numbers of stages among the words of a block."""
    found = [int(word) for word in words if word.isdigit()]
    if not found or len(found) < len(words):
        raise Failure(f"no numbers in '{' '.join(words)}'")
    return found
