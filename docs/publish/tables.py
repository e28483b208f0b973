#!/usr/bin/env python3
"""Makes the generated blocks of the pages anew, and the plots: `lab tables` runs it.

    tables.py LAB [--check | --stale] [--lesson STAGE [--reread]] [--json FILE] [--markdown]

LAB is the program `lab`, which knows the stages and counts their work; all else is recorded in docs/results. A block
stands between `<!-- generated: NAME -->` and `<!-- end -->`. It is made by the function that a module beside this one
registers under the first word of its name. --stale makes nothing: it lists which kernels were changed since they were
recorded. Needs Python alone; to draw a plot anew, matplotlib. Exit codes: 0 ok; 1 --check, and a file is out of date, or
a lesson must be read again; 2 a block or a record makes no sense; 3 something is missing.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True

import reading  # noqa: E402
from blocks import BLOCKS, FILES, PICTURES, Failure, Page  # noqa: E402
from command import Options, failure_text, finish, run, write  # noqa: E402
from markdown import SPAN, table  # noqa: E402
from parts import part_pages  # noqa: E402
from pictures import PLOTS  # noqa: E402
from records import ROOT  # noqa: E402
from sources import Sources  # noqa: E402
from spans import filled  # noqa: E402
from stale import stale, stale_tables  # noqa: E402

for module in sorted(Path(__file__).parent.glob("*.py")):
    if module.name != Path(__file__).name:
        importlib.import_module(module.stem)

OPENING, CLOSING = "<!-- generated: ", "<!-- end -->"
SHOWS_HOW = "add_a_stage.md"  # its blocks are an example


def pages(sources):
    """Every page that may have blocks or spans."""
    yield from (Page(name) for name in ("README.md", "docs/site/front.md", "stages/README.md", "tests/README.md"))
    yield from (Page(str(path.relative_to(ROOT))) for pattern in ("docs/*.md", "docs/course/**/*.md", "notebooks/*.ipynb")
                for path in sorted(ROOT.glob(pattern)) if path.name != SHOWS_HOW)
    yield from (Page(f"stages/{path.name}", part=part) for part, path in part_pages().items())
    yield from map(lesson_of, sources.stages.values())


def lesson_of(stage):
    return Page(f"stages/{stage.folder}/README.md", stage)


def content(sources, page, name):
    word, *words = name.split()
    try:
        made = BLOCKS[word](sources, page, words) if word in BLOCKS else None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Failure(f"{page.path}: '{name}' cannot be made of what is recorded: {error}") from error
    if made is None:
        raise Failure(f"{page.path}: there is no generated block '{name}' here")
    return made


def regenerated(sources, page, text):
    """The text with every generated block and span made anew."""
    before, *blocks = text.split(OPENING)
    anew = filled(sources, page, before)
    for block in blocks:
        name, named, rest = block.partition(" -->")
        _, closed, after = rest.partition(CLOSING)
        if not named or not closed:
            raise Failure(f"{page.path}: a generated block has no {CLOSING}")
        anew += f"{OPENING}{name} -->\n{content(sources, page, name)}{CLOSING}{filled(sources, page, after)}"
    return anew


def read(path):
    """Empty if it is not there."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def draw():
    """Makes the plots of their data."""
    found = subprocess.run([ROOT / "tests/find_python.sh", "matplotlib"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise Failure("no Python here has matplotlib, which draws the plots", 3)
    drawn = subprocess.run([found.stdout.strip(), ROOT / PLOTS / "draw.py"], capture_output=True, text=True,
                           check=False)
    if drawn.returncode != 0:
        raise Failure(f"the plots could not be drawn: {drawn.stderr.strip()}", 3)


def make(sources, check, lesson=None):
    """Every file with generated content, or the lesson of this stage alone, and whether it was up to date. Rewrites the
    others, unless `check`."""
    state = {}

    def put(path, text):
        state[path] = read(ROOT / path) == text
        if not (state[path] or check):
            write(ROOT / path, text)

    if lesson is not None:
        page = lesson_of(sources.stage(lesson))
        put(page.path, regenerated(sources, page, read(ROOT / page.path)))
        return state
    for path, whole in FILES.items():  # first, since pages read them
        put(path, whole(sources))
    for page in pages(sources):
        if OPENING in (text := read(ROOT / page.path)) or SPAN.search(text):
            put(page.path, regenerated(sources, page, text))
    pictures = [picture for source in PICTURES for picture in source(sources)]
    if pictures:
        put(f"{PLOTS}/pictures.json", "[\n" + ",\n".join(picture.line for picture in pictures) + "\n]\n")
    plots = {picture.file: picture.is_shown(read(ROOT / picture.file)) for picture in pictures}
    if not (check or all(plots.values())):
        draw()
    return state | plots


def to_read_again(lessons):
    """Those whose numbers are others now than when their prose was read against them, each with what changed."""
    found = {page.path: reading.changed(page.stage.folder, read(ROOT / page.path)) for page in lessons}
    return {path: changed for path, changed in found.items() if changed}


def report(states, again, check, json_file, markdown):
    """Says what became of each file, and which lessons must be read again; returns the exit code."""
    words = {path: "up to date" if same else "out of date" if check else "rewritten" for path, same in states.items()}
    words |= {path: f"{words[path]}; read it again: {'; '.join(changed)}" for path, changed in again.items()}
    stale = sum(not same for same in states.values()) if check else 0
    failure = f"out of date: {stale} of {len(states)} files; run lab tables" if stale else None
    if check and again and not failure:
        failure = (f"to be read again, since their numbers have changed: {len(again)} of the lessons; mend the prose, then run "
                   f"lab tables --lesson {next(iter(again))[7:9]} --reread")
    rows = [("file", "what is generated"), *words.items()]
    if json_file:
        answer = {"command": "tables", "files": [{"file": path, "state": word} for path, word in words.items()]}
        write(json_file, json.dumps(answer | ({"failure": failure} if failure else {}), indent=1) + "\n")
    if markdown:
        print(table(rows[0], rows[1:]), end="")
    else:
        width = max(len(path) for path, _ in rows)
        print("\n".join(f"{path:{width}}  {word}" for path, word in rows))
    if failure:
        print(failure_text(failure), end="", file=sys.stderr)
    return 1 if failure else 0


def main():
    options = Options("tables")
    options.add_argument("lab")
    what = options.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true")
    what.add_argument("--stale", action="store_true")
    what.add_argument("--reread", action="store_true")
    options.add_argument("--lesson", type=int)
    given = options.parse_args()
    if given.reread and given.lesson is None:
        options.error("--reread goes with --lesson STAGE")
    sources = Sources(given.lab)
    if given.stale:
        found = stale(sources)
        notes = [] if found["recordings"] or found["stages"] else ["Every kernel was timed and profiled as it is."]
        return finish(given, "tables", found, stale_tables(found), notes)
    state = make(sources, given.check, given.lesson)
    lessons = [lesson_of(stage) for stage in sources.stages.values() if given.lesson in (None, stage.number)]
    if given.reread:
        reading.stamp(lessons[0].stage.folder, read(ROOT / lessons[0].path))
    return report(state, to_read_again(lessons), given.check, given.json, given.markdown)


if __name__ == "__main__":
    sys.exit(run(main))
