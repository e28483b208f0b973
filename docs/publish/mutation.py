"""What the cases miss: mutants that they reject, as tests/mutate.py recorded it."""

import json
import re

from blocks import NOT_RECORDED, block
from markdown import table
from records import ROOT


def equivalents():
    """The mutants that do what their kernel does, by tests/equivalent_mutants.md: pairs of a stage's number, or "" for all
    stages, and the mutant, each in a line such as "- `mutant`" or "- 65: `mutant`"."""
    lines = (ROOT / "tests/equivalent_mutants.md").read_text(encoding="utf-8").splitlines()
    return set(re.findall(r"^- (?:(\d\d): )?`(.*)`$", "\n".join(lines), re.M))


COLUMNS = ["stage", "commit", ">one in", ">mutants", ">equivalent", ">rejected", ">of those that differ"]


def row_of(recorded, known):
    """A stage's row under these columns, and its survivors that differ from the kernel."""
    left = [m for m in recorded["survivors"]
            if not known & {("", m["mutant"]), (recorded["stage"][:2], m["mutant"])}]
    share = 100 * recorded["rejected"] / max(1, recorded["rejected"] + len(left))
    counts = [recorded["every"], recorded["mutants"], len(recorded["survivors"]) - len(left), recorded["rejected"]]
    return [recorded["stage"], recorded["commit"][:7], *map(str, counts), f"{share:.1f}%" if left else "100%"], left


@block("mutation")
def mutation(sources, *_):
    """A row for each stage of docs/results/mutation.json."""
    path = sources.folder / "mutation.json"
    if not path.exists():
        return NOT_RECORDED
    known = equivalents()
    rows = sources.named_today(json.loads(path.read_text(encoding="utf-8"))["stages"])
    return table(COLUMNS, [row_of(row, known)[0] for row in rows])
