"""The ladder at a glance: how fast its stages are on one problem, one after the other."""

from blocks import NOT_RECORDED, block, pictures
from markdown import in_words, rounded, short_size
from pictures import Picture, centered
from records import by_problem, counts_bytes, is_plain, pass_of, telling_problem


def path(sources, problems, problem):
    """The stages on the way to the last one here whose change shows in a problem of this unit, in that order. Products of
    8 bits compute something else."""
    last = -1
    for other in problems:
        if counts_bytes(other.first) != counts_bytes(problem.first) or not is_plain(other.first):
            continue
        for row in other.rows:
            here = problem.row(row.stage)
            stage = sources.stages.get(row.stage)
            is_rung = not stage or not (stage.experiment or stage.eight_bits)
            if row.shows_here and here and here.timing and is_rung:
                last = max(last, row.stage)
    rows = []
    row = problem.row(last)
    while row:
        rows.insert(0, row)
        row = problem.row(row.parent)
    return rows


def describe(row):
    s = row.shape
    heads = f"{s.H} heads of {s.d}" if s.H == s.Hkv else f"{s.H} heads over {s.Hkv}"
    mask = "one query" if s.Nq == 1 else "causal mask" if row.causal else "no mask"
    return (f"{f'{s.B} x ' if s.B > 1 else ''}{heads}, {short_size(s.Nk)} {'keys' if s.Nq == 1 else 'tokens'}, {mask}, "
            f"{row.dtype}")


def climb(results, problem, rows, shared):
    """The stages on the way to the last one of a branch, and what they are compared with, the slowest first."""
    first = problem.first
    steps = [{"stage": row.folder, "rate": row.rate if row.timing and row.verified else None,
              "over_parent": row.over_parent.value if row.over_parent else None, "shows_here": row.shows_here,
              "shared": row.stage in shared} for row in rows]
    yardsticks = [{"name": peer.peer, "rate": peer.rate} for peer in problem.peers
                  if peer.timing and peer.peer != "unfused"]
    if counts_bytes(first) and results.ceilings.copy_gbs is not None:
        yardsticks.append({"name": "a copy", "rate": results.ceilings.copy_gbs})
    yardsticks.sort(key=lambda yardstick: yardstick["rate"])
    return {"name": first.regime, "title": problem.short_name, "problem": describe(first),
            "machine": results.hardware.gpu, "unit": first.unit, "steps": steps, "yardsticks": yardsticks}


def climbs(sources, results):
    """One for each kind of problem that a branch is about: many heads, few masked ones, one query row, and gradients. A
    stage is shared if it is on the way to the last stages of all branches of the forward pass."""
    problems = by_problem(results)
    ways = [{row.stage for row in path(sources, problems, problem)} for problem in problems
            if pass_of(problem.first) == "forward" and is_plain(problem.first)]
    shared = set.intersection(*ways) if ways else set()
    found = [climb(results, problem, path(sources, problems, problem), shared)
             for problem in (telling_problem(problems, regime) for regime in ("train", "causal", "decode", "backward"))
             if problem]
    return [each for each in found if any(step["rate"] is not None for step in each["steps"])]


def picture_of(data):
    parts = []
    for step in data["steps"]:
        speedup = step["over_parent"]
        parts.append(f"{in_words(step['stage'])} {'not timed' if step['rate'] is None else rounded(step['rate'], 10)}"
                     + (f" ({speedup:.{2 if speedup < 10 else 0}f}x)" if speedup is not None else ""))
    parts += [f"{yardstick['name']} {rounded(yardstick['rate'], 10)}" for yardstick in data["yardsticks"]]
    return Picture(data, f"{data['title']} in {data['unit']} on {data['machine']}: {', '.join(parts)}", 400)


@pictures
def climb_pictures(sources):
    return [picture_of(each) for each in climbs(sources, sources.recorded)] if sources.recorded else []


@block("climbs")
def climbs_block(sources, page, words):
    """The plots: of the problems that the words name, or else all; on a part's page those of what it is about. There is
    room for one on a phone, and for two side by side elsewhere."""
    if page.stage:
        return None
    shown = [picture for picture in climb_pictures(sources)
             if (not words or picture.data["name"] in words)
             and (page.part is None or any(sources.stage(int(step["stage"][:2])).part == page.part
                                           for step in picture.data["steps"]))]
    folders = {step["stage"] for picture in shown for step in picture.data["steps"]}
    stages = [stage for stage in sources.stages.values() if stage.folder in folders]
    return centered(shown, page) + sources.mark((sources.recorded, stages)) if shown else NOT_RECORDED
