"""The ladder by its parts, and the stages of one part."""

from blocks import block
from markdown import in_words, table, times, without_spans
from records import ROOT, Problem
from sources import SHOWN_GPU

LADDER = ROOT / "stages"


def part_pages():
    """The pages that open the parts, by the part's first number."""
    return {int(path.name[:2]): path for path in sorted(LADDER.glob("[0-9][0-9]s_*.md"))}


def title_of(stage):
    """What the heading of its lesson calls a stage: "04 split-Q"; its folder in words if it has no lesson."""
    lesson = LADDER / stage.folder / "README.md"
    if not lesson.exists():
        return in_words(stage.folder)
    return lesson.read_text(encoding="utf-8")[2:].split("\n")[0].split(":")[0]


def opening(path):
    """The title of a part's page, and its first sentence, which says what the part teaches."""
    title, _, text = path.read_text(encoding="utf-8").partition("\n")
    return title[2:], without_spans(text).strip("\n").split("\n\n")[0].replace("\n", " ").split(". ")[0].rstrip(".")


@block("ladder")
def ladder(sources, page, _):
    """All rungs by part: what each changes, how large its change is, and what it gained where it should show."""
    if page.stage:
        return None
    shown, recorded = "", {}
    for number, path in part_pages().items():
        own = sources.of_part(number)
        if not own:
            continue
        gained, made_in = speedups(sources, sources.recording_of(number), own)
        title, teaches = opening(path)
        rows = [[linked(page, stage), f"{stage.parent:02}" if stage.parent >= 0 else "", stage.change,
                 sources.changed_lines(stage), gained[stage.number] or f"({stage.shows_in})"] for stage in own]
        shown += (f"### {title}\n\n{teaches}: [the part's page]({page.link(f'stages/{path.name}')}).\n\n"
                  + table(["stage", "parent", "the one change", ">lines", ">over its parent"], rows) + "\n")
        for made, stages in made_in:
            recorded.setdefault(made.removeprefix("Recorded "), []).extend(stages)
    return shown + "Recorded:\n\n" + "".join(f"- {numbers_of(sources, which)}: {made}\n" for made, which in recorded.items())


def speedups(sources, results, stages):
    """By number what each stage of a part gained, which its lesson says too: in the part's recording or, if its kernel
    was changed since then or it was not timed there, in another. And pairs of a recording in words and its stages, the
    part's first."""
    gained, made_in = {}, {}
    for stage in stages:
        first = sources.timing_of(stage) if results and sources.changed_since(results, [stage]) else results
        others = [other for other in sources.timings[::-1] if stage.folder in other.kernels
                  and SHOWN_GPU in other.hardware.gpu and not sources.changed_since(other, [stage])]
        found = next((each for each in filter(None, (first, sources.timing_of(stage), *others))
                      if speedups_where_it_shows(each, stage)), first)
        gained[stage.number] = speedups_where_it_shows(found, stage) if found else ""
        if gained[stage.number]:
            made_in.setdefault(id(found), (found, []))[1].append(stage)
    own_first = sorted(made_in.values(), key=lambda pair: pair[0] is not results)
    return gained, [(sources.label(found, sources.with_parents(own)), own) for found, own in own_first]


def numbers_of(sources, stages):
    """ "00 to 06, 10, 12": neighbours in the ladder together, but not those of two parts, nor those between whose numbers
    others lie"""
    order, runs, before = list(sources.stages), [], None
    for stage in sorted(stages, key=lambda stage: order.index(stage.number)):
        follows = before and stage.part == before.part and stage.number > before.number
        if not follows or any(before.number < number < stage.number for number in order):
            runs.append([])
        runs[-1].append(f"{stage.number:02}")
        before = stage
    return ", ".join(", ".join(run) if len(run) < 3 else f"{run[0]} to {run[-1]}" for run in runs)


def speedups_where_it_shows(results, stage):
    """ "1.05x to 1.17x (causal)", or one number where all are equal; "" if it was not timed there. Several GPUs have no
    regimes: what is timed on them is named by its size."""
    own = [row for row in results.rows if row.folder == stage.folder and row.over_parent]
    found, where = [row for row in own if row.shows_here], stage.shows_in
    if not found and (found := [row for row in own if "ranks" in row]):
        where = Problem(found[0]).short_name.removeprefix("custom ") + " GPUs"
    if not found:
        return ""
    speeds = [row.over_parent.value for row in found]
    return f"{' to '.join(dict.fromkeys((times(min(speeds)), times(max(speeds)))))} ({where})"


def linked(page, stage):
    return f"[{title_of(stage)}]({page.link(f'stages/{stage.folder}/README.md')})"


@block("part")
def part(sources, page, _):
    """What each change of a part gained over its parent, where it should show."""
    if page.part is None:
        return None
    own = sources.of_part(page.part)
    gained, made_in = speedups(sources, sources.recording_of(page.part), own)
    rows = [[linked(page, stage), stage.change,
             sources.changed_lines(stage), gained[stage.number]] for stage in own]
    shown = table(["stage", "the one change", ">lines", ">over its parent"], rows)
    made = [words if n == 0 else words.replace("Recorded", numbers_of(sources, stages)) for n, (words, stages) in enumerate(made_in)]
    return f"{'; '.join(made)}:\n\n{shown}" if made else shown
