"""What was found, in one table: the fastest stage of every kind of problem, next to the libraries."""

from blocks import NOT_RECORDED, block
from markdown import rounded, table, times
from parts import linked
from records import by_problem, right_ms, telling_problem
from sources import SHOWN_GPU

LIBRARIES = ("FlashAttention-2", "FlashAttention-3", "FlashAttention-4", "cuDNN", "FlashInfer", "flex")


def problem_of(sources, regime):
    """The middle problem of a regime where libraries were timed next to stages: in the recording that holds it anew, or
    else in that of all stages, or else in the newest of those with most libraries. And that recording; None if there is
    none."""
    found, first = [], (sources.anew(regime), sources.recorded)
    for results in [sources.recorded, *sources.timings[::-1]]:
        problem = results and SHOWN_GPU in results.hardware.gpu and telling_problem(by_problem(results), regime)
        if problem and fastest_in(sources, problem):
            libraries = len(libraries_in(problem))
            found.append(((*(libraries > 0 and results is each for each in first), libraries), problem, results))
    return max(found, key=lambda each: each[0])[1:] if found else None  # of equal ones the first


def fastest_in(sources, problem):
    """The row of the fastest stage that multiplies in 16 bits; None if none is right."""
    rows = [row for row in problem.rows if right_ms(row) and row.stage not in sources.of_8_bits]
    return min(rows, key=right_ms, default=None)


def libraries_in(problem):
    return [peer for peer in problem.peers if peer.peer in LIBRARIES and peer.timing]


@block("found")
def found_block(sources, page, _):
    """A row for each regime that is no sweep."""
    rows, made = [], {}
    for regime, properties in sources.regimes.items():
        if properties["sweep"] or not (of := problem_of(sources, regime)):
            continue
        problem, results = of
        own = fastest_in(sources, problem)
        fastest = min(libraries_in(problem), key=lambda peer: peer.timing.median_ms, default=None)
        over = {peer.peer: times(problem.over_peer(own, peer.peer)) for peer in libraries_in(problem)}
        rows.append([problem.short_name, linked(page, sources.stages[own.stage]), f"{rounded(own.rate, 100)} {own.unit}",
                     f"{over[fastest.peer]} ({fastest.peer})" if fastest else "not timed", over.get("FlashAttention-2", "")])
        made.setdefault(sources.label(results, [sources.stages[own.stage]]).removeprefix("Recorded on "), []).append(regime)
    if not rows:
        return NOT_RECORDED
    most = max(made, key=lambda label: len(made[label]))
    others = "".join(f"; {', '.join(regimes)}: {label}" for label, regimes in made.items() if label != most)
    return (table(["problem", "fastest stage", ">rate", ">over the fastest library", ">over FlashAttention-2"], rows)
            + f"\nRecorded on {most}{others}.\n")
