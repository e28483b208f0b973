"""The ladder at a glance: pictures of each part, with a bar for each rung, and one of the whole ladder."""

from typing import NamedTuple

from blocks import NOT_RECORDED, block, pictures
from found import LIBRARIES
from markdown import in_words, rounded, short_size, times
from parts import opening, part_pages
from pictures import Picture, centered
from quantities import means
from records import Fields, by_problem, counts_bytes, is_plain, key_of, pass_of, rate_at, right_ms, telling_problem
from sources import SHOWN_GPU


class Told(NamedTuple):
    """A problem that tells a part's story: the words that a span names it by, what a reader calls it if not so, and the
    stages of the part that it is about, if not all."""
    words: str
    title: str = ""
    stages: tuple = ()


# Stages with masks have a problem each, and several GPUs no regime: see panels_of().
TOLD_BY = {
    0: [Told("train"), Told("decode")],
    10: [Told("decode")],
    20: [Told("train"), Told("causal")],
    30: [Told("train"), Told("causal"), Told("draft")],
    40: [Told("backward")],
    50: [Told("backward"), Told("backward-wide 4k")],
    70: [Told("long")],
    80: [Told("ragged 8 in 32k", "uneven lengths"), Told("paged 8 in 16s of 32k", "uneven lengths, in pages of 16"),
         Told("prefix 1 in 16s of 8k in 8448", "a shared prompt of 8k tokens"),
         Told("decode", "a cache in 8 bits, counted as 16", (82,))],
    90: [Told("train", "", (90, 91, 92, 93)), Told("decode", "", (94,)), Told("long", "", (79,))]}
WHOLE = {"Forward": "train", "Gradients": "backward", "Decoding": "decode"}
OF_8_BITS = "FlashAttention-3-FP8"


def path(sources, problems, problem):
    """The stages on the way to the last one here whose change shows in a problem of this unit, in that order. Products of
    8 bits compute something else, and a sum in a fixed order costs time on purpose."""
    last = -1
    for other in problems:
        if counts_bytes(other.first) != counts_bytes(problem.first) or not is_plain(other.first):
            continue
        for row in other.rows:
            here = problem.row(row.stage)
            stage = sources.stages.get(row.stage)
            is_rung = not stage or not (stage.experiment or stage.eight_bits or stage.for_order)
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
    mask = "causal mask, " if row.causal else "no mask, " if is_plain(row) and s.Nq > 1 else ""
    keys = f"{'up to ' if ',' in row.features.get('lengths', '') else ''}{short_size(s.Nk)}"
    size = f"{keys} tokens" if s.Nq == s.Nk else f"{s.Nq} {'query' if s.Nq == 1 else 'queries'}, {keys} keys"
    return f"{f'{s.B} x ' if s.B > 1 else ''}{heads}, {size}, {mask}{row.dtype}"


# What was timed where


def same_problem(row):
    """Equal for rows of the same problem, whatever regime has it."""
    return key_of(row)[1:]


class Runs:
    """The timings of the GPU that pages speak of, the newest first, by problem."""

    def __init__(self, sources):
        self.sources = sources
        self.all = [(results, by_problem(results)) for results in sources.timings[::-1]
                    if SHOWN_GPU in results.hardware.gpu]
        self.same = {}
        for results, problems in self.all:
            for problem in problems:
                self.same.setdefault(same_problem(problem.first), []).append((problem, results))

    def of(self, problem):
        """The runs of a problem, its own first."""
        others = self.same.get(same_problem(problem.first), [])
        return [problem, *(other for other, _ in others if other is not problem)]

    def telling(self, stages, words):
        """The problem that these words name, the middle one of several, and its recording: the one that has most of these
        stages, then most as they are today, then libraries."""
        found = []
        for results, problems in self.all:
            fits = [(means(problem, words), problem) for problem in problems]
            best = [problem for fit, problem in fits if fit and fit == max(fits, key=lambda each: each[0])[0]]
            problem = best[len(best) // 2] if best else None
            timed = [stage for stage in stages if problem and right_ms(problem.row(stage.number))]
            if timed:
                unchanged = len(timed) - len(self.sources.changed_since(results, timed))
                found.append((len(timed), unchanged, bool(problem.peers), -len(found), problem, results))
        return max(found, key=lambda each: each[:4])[4:] if found else (None, None)

    def libraries(self, problem, in_8_bits=False):
        """The rates of the libraries that were timed with a problem, and of the fastest of other runs if it is faster."""
        wanted = {*LIBRARIES, *([OF_8_BITS] if in_8_bits else [])}
        found, others = {}, {}
        for run in self.of(problem):
            for peer in run.peers:
                if peer.timing and peer.peer in wanted:
                    (found if run is problem else others).setdefault(peer.peer, peer.rate)
        others = {name: rate for name, rate in others.items() if name not in found}
        best = max(others, key=others.get, default=None)
        return found | ({best: others[best]} if best and others[best] > max(found.values(), default=0) else {})

    def over_fastest(self, problem, row):
        """The library that a stage is least ahead of, and how many times as fast the stage is: in one run, if one has
        both."""
        over = {}
        for name, rate in self.libraries(problem).items():
            together = (run.over_peer(run.row(row.stage), name) for run in self.of(problem) if run.row(row.stage))
            over[name] = next(filter(None, together), row.rate / rate)
        return min(over.items(), key=lambda pair: pair[1], default=(None, None))

    def apart(self, problem, row, name):
        """Of a library that another run timed, the rate of a stage in that run: what the library is compared with."""
        runs = [run for run in self.of(problem) if run.row(row.stage) and run.over_peer(run.row(row.stage), name)]
        return runs[0].row(row.stage).rate if runs and runs[0] is not problem else None

    def plain_rate(self, stage, row):
        """The newest rate of a stage on a problem that is that of a row without its features; and its recording."""
        runs = self.same.get(same_problem(Fields(row, features={})), [])
        return next(((own.rate, results) for problem, results in runs
                     if (own := problem.row(stage.number)) and right_ms(own)), (None, None))


# Panels


def step(row, rate, over_parent=True, **more):
    return {"stage": row.folder, "rate": rate, "shows_here": row.shows_here,
            "over_parent": row.over_parent.value if row.over_parent and over_parent else None, **more}


def lines(rates):
    return [{"name": name, "rate": rate} for name, rate in sorted(rates.items(), key=lambda pair: pair[1])]


def panel(name, title, problem, unit, steps, rates):
    return {"name": name, "title": title, "problem": problem, "unit": unit, "steps": steps, "yardsticks": lines(rates)}


def with_ceiling(results, row, rates, steps):
    """With what a copy reaches, where anything comes near it."""
    copy, fastest = results.ceilings.copy_gbs, max([*rates.values(), *(each["rate"] for each in steps)])
    return rates | ({"a copy": copy} if counts_bytes(row) and copy is not None and copy < 3 * fastest else {})


def on_one_problem(runs, own, told):
    """The stages of a part on a problem, after those that they start from. One that reads fewer bytes for the same keys
    has the rate of a stage that reads them all."""
    sources = runs.sources
    own = [stage for stage in own if not told.stages or stage.number in told.stages]
    problem, results = runs.telling(own, told.words)
    if not problem:
        return None, []
    first, one_query = problem.first, counts_bytes(problem.first)
    rows = [row for stage in own if (row := problem.row(stage.number)) and right_ms(row)
            and (one_query or not sources.decodes(stage.shows_in))]
    before = {row.parent for row in rows} - {row.stage for row in rows}
    starts = [row for number in sources.stages if number in before and (row := problem.row(number)) and right_ms(row)]
    every = [step(row, rate_at(first, right_ms(row)), row in rows, start=row not in rows) for row in starts + rows]
    rates = runs.libraries(problem, any(row.stage in sources.of_8_bits for row in rows))
    rates = with_ceiling(results, first, rates, every)
    title = f"{told.title or problem.short_name}: {first.unit}"
    shown = panel(told.words.split()[0], title, describe(first), first.unit, every, rates)
    return shown, [(results, [sources.stages[row.stage] for row in starts + rows])]


def plain_ancestor(sources, stage, features):
    """The first stage on the way down that has none of these features."""
    while stage and set(stage.takes) & features:
        stage = sources.stages.get(stage.parent)
    return stage


def of_masks(runs, own, title):
    """Each stage on a problem of its own, next to the fastest library there, and to what its kernel was without a mask. Rates
    count visible pairs only, so that they may be compared."""
    found, steps, dense = [], [], {}
    for stage in own:
        problem, results = runs.telling([stage], stage.shows_in)
        if not problem:
            continue
        row = problem.row(stage.number)
        library, over = runs.over_fastest(problem, row)
        steps.append(step(row, row.rate, False, start=False,
                          **({"library": {"name": library, "rate": row.rate / over, "over": over}} if library else {})))
        found.append((results, [stage]))
        before = plain_ancestor(runs.sources, stage, set(stage.takes))
        name = before and f"{before.number:02}, no mask"
        if before and name not in dense and not row.causal:
            rate, results = runs.plain_rate(before, row)
            if rate:
                dense[name] = rate
                found.append((results, [before]))
    if not steps:
        return None, []
    says = "each on its own mask; rates count visible pairs"
    return panel(title.lower(), f"{title}: TFLOP/s", says, "TFLOP/s", steps, dense), found


def of_several_gpus(runs, own):
    """A panel for each stage of one GPU that some start from: the largest problem that both were timed on."""
    found, shown, by_start = [], [], {}
    for stage in own:
        if start := plain_ancestor(runs.sources, stage, {"ranks"}):
            by_start.setdefault(start.number, []).append(stage)
    for number, stages in by_start.items():
        problems = [(problem.shape.Nk, problem, results) for results, timed in runs.all for problem in timed
                    if "ranks" in problem.first and any(right_ms(problem.row(stage.number)) for stage in stages)]
        if not problems:
            continue
        _, problem, results = max(problems, key=lambda each: each[0])
        start = runs.sources.stages[number]
        alone, results_alone = runs.plain_rate(start, problem.first)
        if not alone:
            continue
        unit, ranks = problem.first.unit, problem.first.ranks
        steps = [{"stage": start.folder, "rate": alone, "over_parent": None, "shows_here": False, "start": True}]
        rows = [row for stage in stages if (row := problem.row(stage.number)) and right_ms(row)]
        steps += [step(row, row.rate, start=False) | {"over_parent": row.rate / alone, "shows_here": True} for row in rows]
        is_backward = pass_of(problem.first) == "backward"
        kind = "Decoding" if counts_bytes(problem.first) else "Gradients" if is_backward else "Forward"
        shown.append(panel(kind.lower(), f"{kind} on {ranks} GPUs: {unit}", describe(Fields(problem.first, features={})), unit,
                           steps, {f"{ranks} x {number:02}": ranks * alone}))
        found += [(results, stages), (results_alone, [start])]
    return shown, found


def panels_of(runs, part):
    """Of a part's pictures, and pairs of recordings and the stages that it shows of them."""
    own = runs.sources.of_part(part)
    if any("ranks" in stage.takes for stage in own):
        return of_several_gpus(runs, own)
    if part in TOLD_BY:
        made = [on_one_problem(runs, own, told) for told in TOLD_BY[part]]
    else:
        made = [of_masks(runs, [stage for stage in own if stage.backward == backward], title)
                for title, backward in (("Forward", False), ("Gradients", True))]
    return [shown for shown, _ in made if shown], [pair for _, pairs in made for pair in pairs]


# Pictures


def part_pictures(runs, part):
    """One for each problem that tells its story; and what they show of which recordings."""
    shown, found = panels_of(runs, part)
    made = [Picture(each | {"name": f"{part:02}s-{each['name']}"}, panel_in_words(each), 400) for each in shown]
    return made, found


def panel_in_words(shown):
    def said(each):
        text = f"{in_words(each['stage'])} {rounded(each['rate'], 10)}"
        if each.get("library"):
            return f"{text} ({times(each['library']['over'])} {each['library']['name']})"
        speedup = each["over_parent"]
        return text + (f" ({speedup:.{2 if speedup < 10 else 0}f}x)" if speedup is not None else "")

    lines_said = [f"{line['name']} {rounded(line['rate'], 10)}" for line in shown["yardsticks"]]
    return f"{shown['title']} on {SHOWN_GPU}: {', '.join([*map(said, shown['steps']), *lines_said])}"


def ladder_panel(runs, results, title, problem):
    """The way to the last rung of a problem, in groups: the rungs of a part, and what the last of them reached."""
    groups, order = [], {number: opening(page)[0].partition(":")[0] for number, page in part_pages().items()}
    for row in path(runs.sources, by_problem(results), problem):
        stage = runs.sources.stages.get(row.stage)
        if not stage or not right_ms(row):
            continue
        if not groups or groups[-1]["part"] != order[stage.part]:
            groups.append({"part": order[stage.part], "steps": []})
        library, over = runs.over_fastest(problem, row)
        groups[-1] |= {"library": library, "over": over}
        groups[-1]["steps"].append(step(row, row.rate))
    if not groups:
        return None
    steps = [each for group in groups for each in group["steps"]]
    yardsticks = lines(with_ceiling(results, problem.first, runs.libraries(problem), steps))
    last = next(row for row in problem.rows if row.folder == steps[-1]["stage"])
    for line in yardsticks:
        if rate := runs.apart(problem, last, line["name"]):
            line["apart"] = f"{last.stage:02} reached {rounded(rate, 10)}"
    return {"title": title, "problem": describe(problem.first), "unit": problem.first.unit, "groups": groups,
            "yardsticks": yardsticks}


def ladder_in_words(shown):
    """Of each part its first rung and its last. With a library that another recording timed stands what the last rung
    reached there, since how many times as fast it is comes from there."""
    def said(group):
        first, *_, last = [group["steps"][0], *group["steps"]]
        over = f", {times(group['over'])} {group['library']}" if group["library"] else ""
        return (f"{group['part']} from {rounded(first['rate'], 10)} ({first['stage'][:2]}) to {rounded(last['rate'], 10)} "
                f"({last['stage'][:2]}{over})")

    rates = ", ".join(f"{line['name']} {rounded(line['rate'], 10)}" +
                      (f" (in a run where {line['apart']})" if "apart" in line else "") for line in shown["yardsticks"])
    return f"{shown['title']} in {shown['unit']}, {shown['problem']}: {'; '.join(map(said, shown['groups']))}; {rates}."


def whole_picture(runs):
    """The whole ladder: forward, gradients and decoding, from the first kernel to the last."""
    sources = runs.sources
    results = sources.recorded
    problems = by_problem(results) if results else []
    shown = [*filter(None, (ladder_panel(runs, results, title, problem) for title, regime in WHOLE.items()
                            if (problem := telling_problem(problems, regime))))]
    if not shown:
        return None, []
    title = f"The ladder on {results.hardware.gpu}"
    folders = {each["stage"] for one in shown for group in one["groups"] for each in group["steps"]}
    words = " ".join(map(ladder_in_words, shown))
    picture = Picture({"name": "ladder", "title": title, "ladder": shown}, f"{title}. {words}", 560)
    return picture, [(results, [stage for stage in sources.stages.values() if stage.folder in folders])]


def runs_of(sources):
    """Read once."""
    if not hasattr(sources, "runs"):
        sources.runs = Runs(sources)
    return sources.runs


@pictures
def climb_pictures(sources):
    runs = runs_of(sources)
    whole, _ = whole_picture(runs)
    return [*filter(None, [whole]), *(picture for part in part_pages() for picture in part_pictures(runs, part)[0])]


@block("climbs")
def climbs_block(sources, page, _):
    """On a part's page its pictures, and elsewhere that of the whole ladder. There is room for one on a phone, and for two
    side by side elsewhere."""
    if page.stage:
        return None
    runs = runs_of(sources)
    if page.part is None:
        whole, found = whole_picture(runs)
        shown = [whole] if whole else []
    else:
        shown, found = part_pictures(runs, page.part)
    return centered(shown, page) + sources.mark(*found) if shown else NOT_RECORDED
