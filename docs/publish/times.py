"""Timings: each stage's rates and speedups over its parent."""

from blocks import LEGEND, MOST_ROWS, NOT_RECORDED, block, numbers
from markdown import bold, folded, percent, rounded, short_size, table, times, titled
from records import (DRIFT, Fields, by_problem, counts_bytes, geometric_mean, libraries, ms_of, pass_of,
                     peer_names, ratio, right_ms, since)

# What is compared in one table: the rates of a pass in a unit.
KINDS = [("TFLOP/s", "forward", "TFLOP/s"), ("GB/s", "forward", "GB/s"),
         ("TFLOP/s", "backward", "Gradients: TFLOP/s"), ("GB/s", "backward", "Gradients: GB/s")]


def of_kind(results, kind):
    unit, direction, _ = kind
    return [problem for problem in by_problem(results)
            if counts_bytes(problem.first) == (unit == "GB/s") and pass_of(problem.first) == direction]


def flop_rates(results):
    return of_kind(results, KINDS[0])


def rate(row):
    return rounded(row.rate, 100) if row and row.timing else "-"


def rate_and_speedup(row):
    """ "212 (1.52x)", bold where the stage's change should show"""
    if not row or not row.timing:
        return "-"
    speedup = f" ({times(row.over_parent.value)})" if row.over_parent else ""
    return bold(rate(row) + speedup, row.shows_here)


def rate_tables(sources, results):
    """A row for each stage and peer, a column for each problem: pairs of title and table, for each kind."""
    found = []
    for kind in KINDS:
        problems = of_kind(results, kind)
        if not problems:
            continue
        rows = []
        for stage in sources.stages.values():
            own = [problem.row(stage.number) for problem in problems]
            if any(own):
                rows.append([stage.folder, *map(rate_and_speedup, own)])
        for peer in peer_names(results):
            rows.append([f"peer: {peer}", *(rate(problem.peer(peer)) for problem in problems)])
        columns = ["stage", *(f">{problem.short_name}" for problem in problems)]
        found.append((f"{kind[2]} (speedup over the parent)", table(columns, rows)))
    return found


def with_legend(shown):
    """Says what bold means, where something is bold."""
    return shown + LEGEND if "**" in shown else shown


def facts(sources, results):
    """What it ran on, the ceilings there, and what was changed since."""
    machine, ceilings = results.hardware, results.ceilings

    def ceiling(value, unit):
        return "not measured" if value is None else f"{value:.0f} {unit}"

    listed = {"GPU": f"{machine.gpu}, {machine.sm_count} SMs, sm_{machine.device_arch}", "driver": machine.driver,
              "toolkit": f"CUDA {machine.toolkit}, compiled for sm_{machine.binary_arch}", "date": results.date,
              "commit": results.commit, "ceiling, bf16 GEMM": ceiling(ceilings.bf16_tflops, "TFLOP/s"),
              "ceiling, fp16 GEMM": ceiling(ceilings.fp16_tflops, "TFLOP/s"),
              "ceiling, copy": ceiling(ceilings.copy_gbs, "GB/s")}
    if results.get("libraries"):
        listed["peers"] = libraries(results)
    if changed := sources.changed_since(results):
        listed["changed since then"] = ", ".join(f"{stage.number:02}" for stage in changed)
    return "".join(f"- {name}: {text}\n" for name, text in listed.items())


def of_part(sources, results, part):
    """The recording without what is not of this part: its stages and the one that it starts from stay, on the problems
    whose rate has a unit in which some stage of the part should show."""
    stages = sources.of_part(part)
    start = sources.stages.get(stages[0].parent, stages[0]) if stages else None
    direction = "backward" if stages and stages[0].backward else "forward"
    members = {stage.number for stage in stages}
    units = {row.unit for row in results.rows if row.shows_here and row.stage in members}

    def is_here(row):
        return row.unit in units and (not stages or pass_of(row) == direction)

    rows = [row for row in results.rows if is_here(row)
            and (row.stage in members or (start and row.stage == start.number))]
    return Fields(results, rows=rows, peers=[peer for peer in results.get("peers", []) if is_here(peer)])


@block("times")
def times_block(sources, page, _):
    """On a part's page its stages where their changes should show, beside the one it starts from and the peers."""
    results = sources.recorded if page.part is None else sources.recording_of(page.part)
    if not results:
        return NOT_RECORDED
    head = facts(sources, results)
    if page.part is not None:
        results = of_part(sources, results, page.part)
        if not results.rows:
            return NOT_RECORDED
        head = "; ".join(filter(None, [sources.label(results), libraries(results)])) + ":\n"
    return head + with_legend("".join(titled(*rates) for rates in rate_tables(sources, results)))


WORST_IN_SIGHT = 3  # problems where a stage is slower, outside of the regime where it should show


def on_gpu(sources, record, stages):
    """Whose numbers stand in sight, where the fold below says the rest: "NVIDIA H200; since then changed: 36" """
    return "; ".join(filter(None, [record.hardware.gpu, since(sources.changed_since(record, stages))]))


def stage_table(results, stage, made=""):
    """One stage against its parent, a row for each problem; empty if it was not timed. In sight are the problems where its
    change should show (of many those where it gains most and least) and the worst of those where it is slower; all else,
    and what `made` it, is folded."""
    def milliseconds(row):
        return "" if ms_of(row) is None else f"{ms_of(row):.3f}"

    own, losses, all_rows = [], [], []
    problems = [problem for problem in by_problem(results) if problem.row(stage.number) and problem.shape.d in stage.head_dims]
    are_apart = len({problem.short_name for problem in problems}) == len(problems)
    for problem in problems:
        row = problem.row(stage.number)
        speedup = row.over_parent and bold(times(row.over_parent.value), row.shows_here)
        name = problem.short_name if are_apart else problem.full_name
        all_rows.append([name, milliseconds(problem.row(row.parent)), milliseconds(row) or row.why_not,
                         percent(row.timing.noise, 1) if row.timing else "",
                         f"{rate(row)} {row.unit}" if row.timing else "",
                         percent(row.ceiling_share), speedup])
        if row.shows_here or row.regime == stage.shows_in:
            own.append((row.over_parent.value if row.over_parent else 0, all_rows[-1]))
        elif row.over_parent and round(row.over_parent.value, 2) < 1 - DRIFT:
            losses.append((row.over_parent.value, all_rows[-1]))
    multiplies = any(row.unit == "TFLOP/s" for row in results.rows if row.stage == stage.number)
    ceiling = ">of a bf16 GEMM" if stage.eight_bits and multiplies else ">of ceiling"  # none was timed in 8 bits
    columns = ["problem", ">parent's ms", ">its own ms", ">noise", ">rate", ceiling, ">over parent"]
    worst = sorted(losses, key=lambda pair: pair[0])[:WORST_IN_SIGHT] if own else losses
    compared = any(row[-1] for row in all_rows)  # or else the parent was not timed on these problems
    in_sight = (0, 1, 2, -1) if compared else (0, 2, 4)
    if len(own) > MOST_ROWS and compared:  # of a sweep: where it gains most and least
        in_sight = (0, -1)
        by_gain = sorted(own, key=lambda pair: pair[0])
        own = [pair for pair in own if pair in by_gain[:1] + by_gain[-WORST_IN_SIGHT:]]
    more = f"; slower by over {DRIFT:.0%}: {hidden} more" if (hidden := len(losses) - len(worst)) else ""

    def shown(rows, numbers):
        return table([columns[n] for n in numbers], [[row[n] for n in numbers] for row in rows])

    return all_rows and (shown([row for _, row in own + worst] or all_rows, in_sight)
                         + folded(f"All problems, with noise and rates{more}",
                                  made + shown(all_rows, [n for n in range(len(columns)) if compared or n not in (1, 6)])))


def draft_table(results, stage, made=""):
    """How many times as fast as its parent a stage is, by packed rows (columns), and by requests and keys (rows), which are folded;
    None if it was not timed. Drafts are too many problems to be shown one by one."""
    found, by_rows = {}, {}
    for problem in by_problem(results):
        row = problem.row(stage.number)
        if row and row.over_parent:
            s = problem.shape
            for line in (found.setdefault((s.B, s.Nk), {}), by_rows):
                line.setdefault(s.Nq * s.H // s.Hkv, []).append(row.over_parent.value)
    if not found:
        return None
    packed = sorted({rows for line in found.values() for rows in line})
    lines = [[f"B={B} N={short_size(Nk)}", *(times(geometric_mean(line[rows])) if rows in line else "" for rows in packed)]
             for (B, Nk), line in sorted(found.items())]
    columns = ["problem", *(f">{rows} rows" for rows in packed)]
    return ("How many times as fast as its parent, by the packed rows Nq H / Hkv:\n\n"
            + table(columns, [["geometric mean", *(times(geometric_mean(by_rows[rows])) for rows in packed)],
                              ["smallest", *(times(min(by_rows[rows])) for rows in packed)],
                              ["largest", *(times(max(by_rows[rows])) for rows in packed)]])
            + folded("By requests and keys", made + "The geometric mean where several problems have as many rows:\n\n"
                     + table(columns, lines)))


@block("measured")
def measured(sources, page, _):
    if not page.stage:
        return None
    results = sources.timing_of(page.stage)
    of_drafts = page.stage.shows_in == "draft"
    shown_stages = sources.with_parents([page.stage])
    shown = results and (draft_table if of_drafts else stage_table)(results, page.stage, f"{sources.label(results, shown_stages)}:\n\n")
    if not shown:
        return NOT_RECORDED
    source = f"Recorded on {on_gpu(sources, results, shown_stages)}"
    return f"{source}. {shown}" if of_drafts else f"{source}:\n\n{with_legend(shown)}"


def speedup_table(sources, results, base, others, with_peers=True):
    """How many times as fast as stage `base` the others are, and the last of them as the peers."""
    peers = peer_names(results) if with_peers else []
    columns = ["problem", *(f">{stage:02} over {base:02}" for stage in others),
               *(f">{others[-1]:02} over {peer}" for peer in peers)]
    rows = []
    for problem in flop_rates(results):
        first = problem.row(base)
        if first and problem.shape.d not in sources.stage(base).head_dims:
            continue
        speeds = [ratio(ms_of(first), ms_of(problem.row(stage))) for stage in others]
        if any(speeds):
            rows.append([problem.short_name, *map(times, speeds),
                         *(times(problem.over_peer(problem.row(others[-1]), peer)) for peer in peers)])
    return table(columns, rows)


@block("headline")
def headline(sources, *_):
    """FlashAttention-1 against FlashAttention-2's algorithm and the last stage for long queries that was measured."""
    results = sources.recorded
    if not results:
        return NOT_RECORDED
    last = max(stage.number for stage in sources.stages.values() if not stage.backward and not stage.experiment
               and not sources.decodes(stage.shows_in) and sources.is_plain(stage.shows_in)
               and 128 in stage.head_dims and stage.folder in results.kernels)
    made = sources.label(results, [sources.stage(number) for number in (1, 5, last)])
    return f"{made}; {libraries(results)}:\n\n{speedup_table(sources, results, 1, [5, last])}"


@block("over")
def over(sources, _, words):
    """ "over 0 1 5": how many times as fast 01 and 05 are as 00, where the last of these stages was timed """
    base, *others = numbers(words)
    results = sources.recording_of(others[-1])
    if not results or not any(row.stage == others[-1] and row.timing for row in results.rows):
        return NOT_RECORDED
    made = sources.label(results, [sources.stage(number) for number in (base, *others)])
    return f"{made}:\n\n{speedup_table(sources, results, base, others, with_peers=False)}"


def leave_one_out_table(sources, results, last, changes):
    """Whether gains add or multiply: what each change gained over the parent of the stage that made it, and what the
    stage `last`, which has them all, gains over the one without it. The rows of all of them have the gain from the
    first parent to `last`, and beside it the product of the ratios and the sum of the milliseconds above."""
    rows = []

    def add(problem, name, climbed, left_out, saved, at_the_end):
        rows.append([problem.short_name, name, times(climbed), times(left_out), f"{saved:.3f}", f"{at_the_end:.3f}"])

    for problem in flop_rates(results):
        parents = {change: sources.stage(change).parent for change, _ in changes}
        ms = {n: right_ms(problem.row(n)) for pair in changes for n in (last, *pair, parents[pair[0]])}
        if None in ms.values():
            continue
        product, total = 1, 0
        for change, without in changes:
            before, after, left = ms[parents[change]], ms[change], ms[without]
            product *= left / ms[last]
            total += left - ms[last]
            add(problem, sources.stage(change).folder, before / after, left / ms[last], before - after, left - ms[last])
        first = ms[parents[changes[0][0]]]
        add(problem, "all of them", first / ms[last], product, first - ms[last], total)
    return table(["problem", "change", ">over its parent", f">{last:02} over {last:02} without it",
                  ">ms saved over its parent", f">ms that it saves in {last:02}"], rows)


@block("leave_one_out")
def leave_one_out(sources, *_):
    """What each change of 05 gained where it came, and what 05 gains by it when it has all the others."""
    results = sources.recording_of(90)
    if not results:
        return NOT_RECORDED
    shown = leave_one_out_table(sources, results, 5, [(2, 90), (3, 92), (4, 91), (5, 4)])
    return f"{sources.label(results)}:\n\n{shown}"
