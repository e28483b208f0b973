"""Kernels that left the ladder, next to the stage that has their types: what that costs, and how fast they were next
to the libraries."""

import records
from blocks import block
from markdown import table, times
from records import by_problem, peer_names, ratio, right_ms
from sources import SHOWN_GPU, TAKEN_OVER


def runs_with_libraries(sources, left):
    """The problems of the runs that have a kernel and libraries, and the names of these; the newest first."""
    found = []
    for path in sources.folder.glob(f"*{TAKEN_OVER[left][1]}*.json"):
        record = records.read(path, "timing")
        if SHOWN_GPU in record.hardware.gpu and left in record.kernels and record.get("peers"):
            found.append((record.date, peer_names(record), by_problem(record)))
    return [run[1:] for run in sorted(found, key=lambda run: run[0], reverse=True)]


def over_libraries(sources, left, problem):
    """How many times as fast as each library a kernel was, in the newest run that has this kernel and this library."""
    found = {}
    for names, problems in runs_with_libraries(sources, left):
        for other in problems:
            row = next((row for row in other.rows if row.get("folder") == left), None)
            if not row or records.key_of(other.first) != records.key_of(problem.first):
                continue
            for name in names:
                if speed := other.over_peer(row, name):
                    found.setdefault(name, f"{times(speed)} {name}")
    return [*found.values()]


@block("replaced")
def replaced(sources, _, names):
    """A row for each problem of recordings that have both. The last column may be of another run of the kernel that left."""
    rows, made = [], []
    for name in names:
        record = records.read(sources.folder / f"{name}.json", "timing")
        today = {folder: stage.folder for folder, stage in sources.called.items()}
        record["kernels"] = records.Fields({today.get(folder, folder): own for folder, own in record.kernels.items()})
        made.append(sources.label(record, [sources.called[folder] for folder in {folder for folder, _ in TAKEN_OVER.values()}]))
        for problem in by_problem(record):
            timed = {today.get(row.folder, row.folder): right_ms(row) for row in problem.rows}
            for left, (folder, regime) in TAKEN_OVER.items():
                if timed.get(left) and timed.get(folder) and problem.first.regime == regime:
                    rows.append([problem.short_name, left, f"{timed[left]:.3f}", f"{timed[folder]:.3f}",
                                 times(ratio(timed[left], timed[folder])), ", ".join(over_libraries(sources, left, problem))])
    return f"{'; '.join(dict.fromkeys(made))}:\n\n" + table(
        ["problem", "kernel of one mask", ">its ms", ">ms now", ">now over then", "then over libraries"], rows)
