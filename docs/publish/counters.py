"""What stages do, in numbers that `lab count` gives, against their parents or each other."""

import re

from blocks import block, numbers
from markdown import folded, in_words, table
from records import ROOT


def claimed(stage):
    """The counters that a stage's claims give a number."""
    claims = ROOT / "stages" / stage.folder / "claims.cpp"
    text = claims.read_text(encoding="utf-8") if claims.exists() else ""
    return set(re.findall(r'c\.(?:parent_)?is\("(\w+)"', text))


def command(stages, options):
    """How a reader counts this."""
    return f"`./lab count {' '.join(str(stage.number) for stage in stages)} {options}`"


def change_table(names, before, after, claims=()):
    """In sight are the counters of the claims, or all if they name none that moves."""
    rows = {}
    for counter in before:
        old, new = before[counter], after[counter]
        if old != new:
            rows[counter] = [in_words(counter), f"{old:,}", f"{new:,}", f"x{new / old:.4g}" if old else "new"]
    unchanged = ", ".join(in_words(c) for c in before if before[c] == after[c] != 0)
    if not rows:
        return f"No counter changes: {unchanged}.\n"
    return in_sight(["counter", *(f">{name}" for name in names)], rows, claims) + f"\nUnchanged: {unchanged}.\n"


def in_sight(columns, rows, claims):
    own = [row for counter, row in rows.items() if counter in claims]
    others = [row for counter, row in rows.items() if counter not in claims]
    if not own or not others:
        return table(columns, own or others)
    return table(columns, own) + folded("All other counters", table(columns, others))


@block("counters")
def counters(sources, page, words):
    """Of the page's stage against its parent; of "counters 1 5" the second against the first, whatever lies between, on
    the problem of the second. "counters mma, tiles" puts these in sight, where the claims name others."""
    named = " ".join(words).replace(" ", "_").split(",_") if words and not words[0].isdigit() else None
    if words and not named:
        stages = [sources.stage(number) for number in numbers(words)]
        case, work = sources.work(stages, stages[1].counted_on)
    elif page.stage:
        stages = [page.stage]
        _, work = sources.work(stages, page.stage.counted_on)
        case = command(stages, page.stage.counted_on)
        if page.stage.counted_parent:
            stages = [sources.stage(int(page.stage.counted_parent[:2])), page.stage]
            parents_case, parents = sources.work(stages[:1], page.stage.parent_counted_on)
            work = [*parents, *work]
            if page.stage.parent_counted_on == page.stage.counted_on:
                case = command(stages, page.stage.counted_on)
            else:
                case += f" and {command(stages[:1], page.stage.parent_counted_on)}"
    else:
        return None
    if len(work) == 2:
        titles = ["parent", "this stage"] if page.stage and not (words and not named) else [s.folder for s in stages]
        shown = change_table([*titles, "factor"], *work, named or claimed(stages[-1]) if page.stage else ())
    else:
        rows = {counter: [in_words(counter), f"{n:,}"] for counter, n in work[0].items() if n}
        shown = in_sight(["", ">this stage" if page.stage else f">{stages[0].folder}"], rows, named or claimed(stages[0]))
    return f"Counted {'by' if case.startswith('`') else 'on'} {case}:\n\n{shown}"
