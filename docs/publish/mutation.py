"""What the cases miss: mutants that they reject, as tests/mutate.py recorded it."""

import json

from blocks import NOT_RECORDED, block
from markdown import table
from records import ROOT


def equivalents():
    """The mutants that do what their kernel does, by tests/equivalent_mutants.md: each in a line that starts with a
    dash."""
    lines = (ROOT / "tests/equivalent_mutants.md").read_text(encoding="utf-8").splitlines()
    return {line[2:].strip()[1:-1] for line in lines if line.startswith("- ")}


@block("mutation")
def mutation(sources, *_):
    """A row for each stage of docs/results/mutation.json."""
    path = sources.folder / "mutation.json"
    if not path.exists():
        return NOT_RECORDED
    record, known = json.loads(path.read_text(encoding="utf-8")), equivalents()
    rows = []
    for row in record["stages"]:
        left = sum(m["mutant"] not in known for m in row["survivors"])
        share = 100 * row["rejected"] / (row["rejected"] + left)
        counts = [row["every"], row["mutants"], len(row["survivors"]) - left, row["rejected"]]
        rows.append([row["stage"], *map(str, counts), f"{share:.1f}%" if left else "100%"])
    head = ["stage", ">one in", ">mutants", ">equivalent", ">rejected", ">of those that differ"]
    return f"Recorded on {record['date'][:10]}, commit {record['commit'][:7]}:\n\n{table(head, rows)}"
