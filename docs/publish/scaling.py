"""The benchmark of the FlashAttention papers: rates over the sequence length."""

from blocks import NOT_RECORDED, block, pictures
from markdown import in_words, percent, rounded, table
from peers import problem_name
from pictures import centered, chart
from records import by_problem, libraries, peer_names
from times import rate


def benchmark_chart(results):
    """The rates of a sweep, a panel for each head dimension and mask, as the papers draw them. Problems with groups of
    heads are left out. Wrong answers have no rate."""
    problems = [problem for problem in by_problem(results) if problem.shape.H == problem.shape.Hkv]
    lengths = sorted({problem.shape.Nk for problem in problems})
    stages, peers = problems[0].rows, peer_names(results)
    panels = []
    for d, causal in sorted({(problem.shape.d, problem.first.causal) for problem in problems}):
        found = {problem.shape.Nk: problem for problem in problems
                 if problem.shape.d == d and problem.first.causal == causal}
        rows = [[found[n].row(stage.stage) if n in found else None for n in lengths] for stage in stages]
        values = [[row.rate if row and row.timing and row.verified else None for row in line] for line in rows]
        rows = [[found[n].peer(peer) if n in found else None for n in lengths] for peer in peers]
        values += [[row.rate if row and row.timing else None for row in line] for line in rows]
        panels.append((f"d = {d}, {'causal mask' if causal else 'no mask'}", values))
    return chart("papers", f"Forward attention on {results.hardware.gpu}: TFLOP/s",
                 f"16k tokens in sequences of N; heads of d, 2048 columns in all; {problems[0].first.dtype}", lengths,
                 [*((in_words(row.folder), True) for row in stages), *((peer, False) for peer in peers)], panels)


def rates_by_problem(sources, results):
    """The rates alone, a row for each problem, a column for each stage and peer."""
    problems, peers = by_problem(results), peer_names(results)
    columns = ["problem", *(f">{in_words(row.folder)}" for row in problems[0].rows), *(f">{peer}" for peer in peers)]
    return table(columns, [[problem_name(sources, problem),
                            *("WRONG" if row.timing and not row.verified else rate(row) for row in problem.rows),
                            *(rate(problem.peer(peer)) for peer in peers)] for problem in problems])


def peer_reasons(results):
    """Why peers could not be timed on some problems, each reason once, in one line; empty if all were."""
    return "; ".join(dict.fromkeys(f"{peer.peer}: {peer.why_not}" for peer in results.peers if peer.why_not))


@pictures
def benchmark_pictures(sources):
    results = sources.record("h100-papers")
    return [benchmark_chart(results)] if results else []


@block("papers")
def papers(sources, page, _):
    """The figure of the papers, and its numbers."""
    results = sources.record("h100-papers")
    if not results:
        return NOT_RECORDED
    reasons = peer_reasons(results)
    return (f"{sources.label(results)}; {libraries(results)}.\n\n{centered([benchmark_chart(results)], page)}\n"
            + rates_by_problem(sources, results) + (f"\nNot timed: {reasons}.\n" if reasons else ""))


def grid_table(results):
    """Of the problems without a mask: how many blocks 01 and 05 have, the share of the multiprocessors that gets one,
    and how fast they are."""
    rows = []
    for problem in by_problem(results):
        own = [problem.row(stage) for stage in (1, 5)]
        if problem.first.causal or None in own:
            continue
        s, cells = problem.shape, []
        for row, tiles in zip(own, (1, (problem.shape.Nq + 63) // 64)):
            blocks = s.B * s.H * tiles
            valid = row.timing and row.verified
            cells += [f"{blocks:,}", percent(min(1, blocks / results.hardware.sm_count)),
                      rounded(row.rate, 10) if valid else "-"]
        rows.append([f"d={s.d} N={problem.short_name.split()[-1]}", f"{s.B * s.H:,}", *cells])
    return table(["problem", ">B H", *(f">{stage} {what}" for stage in ("01", "05")
                                       for what in ("blocks", "SMs with a block", "TFLOP/s"))], rows)


@block("grid")
def grid(sources, *_):
    results = sources.record("h100-papers")
    stages = [sources.stage(1), sources.stage(5)]
    return grid_table(results) + sources.mark((results, stages)) if results else NOT_RECORDED
