"""What stages do, in numbers that `lab count` gives, against their parents or each other."""

from blocks import block, numbers
from markdown import in_words, table


def change_table(names, before, after):
    rows = []
    for counter in before:
        old, new = before[counter], after[counter]
        if old != new:
            rows.append([in_words(counter), f"{old:,}", f"{new:,}", f"x{new / old:.4g}" if old else "new"])
    unchanged = ", ".join(in_words(c) for c in before if before[c] == after[c] != 0)
    return f"{table(['counter', *(f'>{name}' for name in names)], rows)}\nUnchanged: {unchanged}.\n"


@block("counters")
def counters(sources, page, words):
    """Of the page's stage against its parent; of "counters 1 5" the second against the first, whatever lies between, on
    the problem of the second."""
    if words:
        stages = [sources.stage(number) for number in numbers(words)]
        case, work = sources.work(stages, stages[1].counted_on)
    elif page.stage:
        stages = [page.stage]
        case, work = sources.work(stages, page.stage.counted_on)
        if page.stage.counted_parent:
            stages = [sources.stage(int(page.stage.counted_parent[:2])), page.stage]
            parents_case, parents = sources.work(stages[:1], page.stage.parent_counted_on)
            work = [*parents, *work]
            if parents_case != case:
                case += f", and {stages[0].folder} on {parents_case}"
    else:
        return None
    if len(work) == 2:
        shown = change_table([*(s.folder for s in stages), "factor"], *work)
    else:
        rows = [[in_words(counter), f"{n:,}"] for counter, n in work[0].items() if n]
        shown = table(["", f">{stages[0].folder}"], rows)
    return f"Counted on {case}:\n\n{shown}"
