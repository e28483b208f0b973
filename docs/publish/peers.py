"""Sweeps: a row for each problem, stages against the libraries, and the means."""

from blocks import NOT_RECORDED, Failure, block, numbers
from markdown import folded, table, times, titled
from records import geometric_mean, libraries, peer_names
from times import KINDS, of_kind, on_gpu, rate, rate_and_speedup, rate_tables



def problem_name(sources, problem):
    return problem.full_name if sources.sweeps(problem.first.regime) else problem.short_name


class Contender:
    """Who is compared with the peers: a stage, or the fastest one on each problem."""

    def __init__(self, stage=None):
        self.stage = stage
        self.name, self.short = (stage.folder, f"{stage.number:02}") if stage else ("fastest", "fastest")

    def compares_with(self, peer):
        """Gradients that are the same bits in each run are compared with those of a stage that exists for it."""
        return not peer.endswith("-deterministic") or bool(self.stage and self.stage.for_order)

    def row(self, problem):
        if self.stage:
            return problem.row(self.stage.number)
        return max((row for row in problem.rows if row.timing and row.verified), key=lambda row: row.rate, default=None)

    def cell(self, problem):
        row = self.row(problem)
        if row and row.timing and not row.verified:
            return "WRONG"
        if row and row.timing and not self.stage:
            return f"{rate(row)} ({row.stage:02})"
        return rate_and_speedup(row)

    def why_not(self, problem):
        row = self.row(problem)
        # Among stages that are for this head dimension, one that is not needs no reason in each row.
        not_for_it = self.stage and problem.shape.d not in self.stage.head_dims and any(r.timing for r in problem.rows)
        return f"{self.short}: {row.why_not}" if row and row.why_not and not not_for_it else None


def contenders_of(sources, results, only, few):
    """One stage if it is named, all of a few, else the fastest."""
    if only:
        return [Contender(only)]
    numbers_here = {row.stage for row in results.rows}
    found = [Contender(stage) for stage in sources.stages.values() if stage.number in numbers_here]
    return found if len(found) <= few or not results.get("peers") else [Contender()]


def mean_and_minimum(ratios, problems):
    if not ratios or None in ratios:
        return "-"
    some = "" if len(ratios) == problems else f" ({len(ratios)} of {problems})"
    return f"{times(geometric_mean(ratios))}, {times(min(ratios))}{some}"


def summary(problems, pairs):
    """A row for each head dimension, if there are several, and one for all: means of the ratios, and their minima."""
    dims = sorted({problem.shape.d for problem in problems})
    rows = []
    for d in [*(dims if len(dims) > 1 else []), None]:
        ratios = [[problem.over_peer(contender.row(problem), peer) for contender, peer in pairs]
                  for problem in problems if d in (None, problem.shape.d)]
        known = [values for values in ratios if any(value is not None for value in values)]
        cells = []
        for column, (_, peer) in enumerate(pairs):
            # Of the problems that some stage and this peer have: a mean over fewer would be taken for theirs.
            same = [n for n, (_, other) in enumerate(pairs) if other == peer]
            of_peer = [values for values in known if any(values[n] is not None for n in same)]
            cells.append(mean_and_minimum([values[column] for values in of_peer], len(known)))
        rows.append([f"d={d}" if d else "all", *cells])
    return rows


def comparisons(sources, results, only=None, few=3):
    """For each kind of rate a table with a row for each problem: the rate of each stage and peer, and how many times as
    fast as each peer each stage is; of more than `few` stages, only the fastest on that problem. Then one with the
    means of these ratios. As triples of title, table, and whether it is one of means."""
    contenders, peers, found = contenders_of(sources, results, only, few), peer_names(results), []
    pairs = [(contender, peer) for contender in contenders for peer in peers if contender.compares_with(peer)]
    ratios = [f">{contender.short} over {peer}" for contender, peer in pairs]
    for kind in KINDS:
        problems = [problem for problem in of_kind(results, kind) if not only or problem.shape.d in only.head_dims]
        if not problems:
            continue
        rows, any_reason = [], False
        for problem in problems:
            reasons = [*filter(None, (contender.why_not(problem) for contender in contenders)),
                       *(f"{peer.peer}: {peer.why_not.partition('. ')[0]}" for peer in problem.peers if peer.why_not)]
            any_reason = any_reason or bool(reasons)
            rows.append([problem_name(sources, problem), *(contender.cell(problem) for contender in contenders),
                         *(rate(problem.peer(peer)) for peer in peers),
                         *(times(problem.over_peer(contender.row(problem), peer)) for contender, peer in pairs),
                         "; ".join(reasons)])
        columns = ["problem", *(f">{name}" for name in [*(c.name for c in contenders), *peers]), *ratios, ""]
        shown = rows if any_reason else [row[:-1] for row in rows]
        found.append((kind[2], table(columns if any_reason else columns[:-1], shown), False))
        if pairs:
            means = table(["problems", *ratios], summary(problems, pairs))
            found.append(("Geometric mean and minimum of the ratios", means, True))
    return found


@block("record")
def record(sources, _, words):
    """ "record h200-8k": the tables of docs/results/h200-8k.json, whatever its date"""
    results = sources.need(" ".join(words))
    sweep = results.rows and sources.sweeps(results.rows[0].regime)
    tables = comparisons(sources, results) if sweep else rate_tables(sources, results)
    return f"{sources.label(results)}:\n" + "".join(f"\n{shown}" for _, shown, *_ in tables)


def against_peers(sources, page, words, only_means):
    file, *stages = words
    stage = sources.stage(numbers(stages)[0]) if stages else page.stage
    results = sources.record(file)
    if not results:
        return NOT_RECORDED
    if not results.get("peers"):
        raise Failure(f"{file}.json has no peers")
    few = 4  # more stages than fit on a terminal
    found = [(title, shown, means) for title, shown, means in comparisons(sources, results, stage, few) if means or not only_means]
    made = f"{sources.label(results, stage and [stage])}; {libraries(results)}:\n"
    everything = made + "".join(titled(title, shown) for title, shown, _ in found)
    if not page.stage:
        return everything
    over_all = "".join(titled(title, only_last_row(shown)) for title, shown, means in found if means)
    return f"Recorded on {on_gpu(sources, results, stage and [stage])}:\n{over_all}" + folded("By problem", everything)


def only_last_row(shown):
    """Of a table that a lesson shows, the row for all problems."""
    lines = shown.splitlines(keepends=True)
    return "".join(lines[:2] + lines[-1:])


@block("peers")
def peers_block(sources, page, words):
    """ "peers h200-prefill": the stage of the page, or elsewhere all, against the peers of that file; "peers
    h200-prefill 26": that stage"""
    return against_peers(sources, page, words, only_means=False)


@block("peer_means")
def peer_means(sources, page, words):
    """The same without the single problems."""
    return against_peers(sources, page, words, only_means=True)
