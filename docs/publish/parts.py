"""The ladder as a table, its parts, and the stages of one part."""

from blocks import block
from markdown import in_words, table, times, without_spans
from records import ROOT, by_problem, ms_of, ratio, telling_problem

LADDER = ROOT / "stages"


def part_pages():
    """The pages that open the parts, by the part's first number."""
    return {int(path.name[:2]): path for path in sorted(LADDER.glob("[0-9][05]s_*.md"))}


def title_of(stage):
    """What the heading of its lesson calls a stage: "04 split-Q"; its folder in words if it has no lesson."""
    lesson = LADDER / stage.folder / "README.md"
    if not lesson.exists():
        return in_words(stage.folder)
    return lesson.read_text(encoding="utf-8")[2:].split("\n")[0].split(":")[0]


@block("ladder")
def ladder(sources, page, _):
    """How large the change of every stage is, and what it gained where it should show."""
    if page.stage:
        return None
    rows, recorded = [], {}
    for number in part_pages():
        own = sources.of_part(number)
        results = sources.recording_of(number) if own else None
        for stage in own:
            gained = speedups_where_it_shows(results, stage) if results else ""
            rows.append([stage.folder, sources.stages[stage.parent].folder if stage.parent >= 0 else "",
                         sources.changed_lines(stage), gained or f"({stage.shows_in})"])
        if results:
            made = sources.label(results, sources.with_parents(own)).replace("Recorded", "recorded")
            recorded.setdefault(made, []).append(f"{own[0].number:02} to {own[-1].number:02}")
    shown = table(["stage", "parent", ">lines added or changed", ">over its parent"], rows)
    return "".join(f"- {', '.join(ranges)}: {made}\n" for made, ranges in recorded.items()) + f"\n{shown}"


def speedups_where_it_shows(results, stage):
    """ "1.05x to 1.17x (causal)", or one number where the regime has one problem; "" if it was not timed there"""
    found = [row.over_parent.value for row in results.rows
             if row.folder == stage.folder and row.shows_here and row.over_parent]
    if not found:
        return ""
    least = f"{times(min(found))} to " if len(found) > 1 else ""
    return f"{least}{times(max(found))} ({stage.shows_in})"


@block("part")
def part(sources, page, _):
    """What each change of a part gained over its parent, where it should show."""
    return part_block(sources, page, page.part) if page.part is not None else None


@block("algorithm")
def algorithm(sources, page, _):
    """The same of the seven stages that derive the algorithm, on a page of the whole ladder."""
    return None if page.stage else part_block(sources, page, 0)


def part_block(sources, page, number):
    results = sources.recording_of(number)
    rows = [[f"[{title_of(stage)}]({page.link(f'stages/{stage.folder}/README.md')})", stage.change,
             sources.changed_lines(stage), speedups_where_it_shows(results, stage) if results else ""]
            for stage in sources.of_part(number)]
    shown = table(["stage", "the one change", ">lines", ">over its parent"], rows)
    if not results:
        return shown
    return f"{sources.label(results, sources.with_parents(sources.of_part(number)))}:\n\n{shown}"


def last_timed(sources, own, regime, problem):
    """The last stage of a part that leads on in this regime, as timed; None if its stages are no chain, since then none
    is where the part arrives."""
    by_number = sources.stages
    for stage in own:
        at = stage
        while at and at.number != own[0].number:
            at = by_number.get(at.parent)
        if not at:
            return None
    rows = [problem.row(stage.number) for stage in own
            if sources.decodes(stage.shows_in) == sources.decodes(regime) and not stage.for_order]
    return next((row for row in reversed(rows) if row and row.timing), None)


def reached(sources, problems, own, start):
    """How many times as fast a part's last stage is as the one it starts from, and as FlashAttention-2; and the stages."""
    # What the first rung of another pass starts from computes something else.
    compared = start.number if start.backward == own[0].backward else own[0].number
    gains, over_peer, compared_with = [], [], []
    for regime in ("train", "decode", "backward"):
        problem = telling_problem(problems, regime)
        last = problem and last_timed(sources, own, regime, problem)
        first = problem and problem.row(compared)
        if not last or not first or not first.timing:
            continue
        gain = times(ms_of(first) / ms_of(last))
        compared_with += [sources.stages[last.stage], sources.stages[first.stage]]
        gains.append(f"{last.stage:02} over {first.stage:02}: {gain} ({problem.short_name})")
        peer = ratio(ms_of(problem.peer("FlashAttention-2")), ms_of(last))
        over_peer += [times(peer)] if peer else []
    return [", ".join(gains), ", ".join(over_peer)], compared_with


@block("parts")
def parts(sources, page, _):
    """What each part teaches, which is the first sentence of its page, and reaches."""
    if page.stage:
        return None
    problems = by_problem(sources.recorded) if sources.recorded else []
    rows, compared = [], []
    for number, path in part_pages().items():
        own = sources.of_part(number)
        if not own:
            continue
        start = sources.stages.get(own[0].parent, own[0])
        title, _, text = path.read_text(encoding="utf-8").partition("\n")
        teaches = without_spans(text).strip("\n").split("\n\n")[0].replace("\n", " ").split(". ")[0]
        reaches, stages = reached(sources, problems, own, start)
        compared += stages
        rows.append([f"[{title[2:]}]({page.link(f'stages/{path.name}')})",
                     "" if start is own[0] else f"{start.number:02}", teaches, *reaches])
    shown = table(["part", "starts from", "what it teaches", "what it reaches", ">of FlashAttention-2's speed"], rows)
    return shown + (sources.mark((sources.recorded, compared)) if problems else "")
