"""What a page may ask of the recordings, in words: "over 04, causal 2k" is how many times as fast as 04 the page's stage
is on that problem. Spans in prose and the rows of predictions are made of these."""

import re
from statistics import geometric_mean
from typing import NamedTuple

import lost
import records
from blocks import Failure
from markdown import rounded, times
from profiles import METRICS, STALLS, total, waits_of
from records import by_problem, is_plain, ratio, right_ms
from sources import SHOWN_GPU

WORDS = """QUANTITY, PROBLEM, where QUANTITY is: over STAGE, over PEER or over parent (how many times as fast); gain over,
loss over or longer than one of these (percent); ms, us, TFLOP/s, GB/s or share of ceiling; a row of the profile; counter
NAME; error (of the block lost; "error, normal 8192"). "of STAGE" or "of PEER" after it says of which, if not of the page's stage; "most" or "least" before it picks one of
several problems, "mean" takes the geometric mean of their ratios. PROBLEM is as tables call it, a regime, or some words of a problem of a sweep. Then ", in RECORDING",
", on GPU" and ", 1 digit" may follow. A / B is the ratio of two. A stage that left the ladder is named by its folder"""


class Found(NamedTuple):
    """What the recordings say: a value for each problem that was meant, and where they say so."""
    values: list
    text: object  # how to write a value
    recordings: list

    def __str__(self):
        shown = [self.text(value) for value in (min(self.values), max(self.values))]
        if shown[0] == shown[1]:
            return shown[0]
        number, unit = re.fullmatch(r"(.*?)( [^ ]+)?", shown[0]).groups()
        return f"{number if unit and shown[1].endswith(unit) else shown[0]} to {shown[1]}"


class Asked(NamedTuple):
    """One quantity, as written."""
    pick: object
    kind: str
    base: str
    of: str
    problem: str
    recording: str
    gpu: str
    digits: int


KINDS = r"over|gain over|loss over|longer than|ms|us|TFLOP/s|GB/s|share of ceiling"


def read(words):
    """Of "most over 04 of 05, causal, in h200, 1 digit"."""
    quantity, *rest = " ".join(words.split()).split(", ")
    recording, gpu, digits, problem = None, None, None, None
    for word in rest:
        if word.startswith("in ") and problem:
            recording = word[3:]
        elif word.startswith("on ") and problem:
            gpu = word[3:]
        elif found := re.fullmatch(r"(\d) digits?", word):
            digits = int(found[1])
        else:
            problem = word if problem is None else f"{problem}, {word}"
    pick, quantity = re.fullmatch(r"(most |least |mean )?(.*)", quantity).groups()
    found = re.fullmatch(rf"({KINDS})(?: (?!of )(\S.*?))?(?: of (.+))?", quantity)
    kind, base, of = found.groups() if found else (None, *re.fullmatch(r"(.+?)(?: of (.+))?", quantity).groups())
    if found and bool(base) != kind.endswith(("over", "than")):
        raise Failure(f"'{words}' is not {WORDS}")
    if pick == "mean " and kind != "over":
        raise Failure(f"'{words}': only ratios have a mean here")
    return Asked({"most ": max, "least ": min, "mean ": geometric_mean}.get(pick), kind, base, of, problem or "", recording, gpu, digits)


def means(problem, words):
    """How well words name a problem: 2 if it or its regime is called so, 1 if they are some of its words, 0 if not."""
    regime = problem.first.regime
    if words in (problem.short_name, problem.full_name, f"{regime} {problem.full_name}", regime):
        return 2
    known = {regime, *problem.full_name.split(), *(["unmasked"] if is_plain(problem.first) and not problem.first.causal else [])}
    return int(bool(words) and set(words.split()) <= known)


def meant(results, words):
    problems = [(means(problem, words), problem) for problem in by_problem(results)]
    best = max((fit for fit, _ in problems), default=0)
    return [problem for fit, problem in problems if fit == best > 0]


def candidates(sources, stage, asked):
    """Recordings in which to look: the one of the lesson's table first, then those of its kernel as it is, of the GPU
    that was asked for or that pages speak of; the newest first."""
    if asked.recording:
        return [sources.need(asked.recording)]
    gpu = asked.gpu or SHOWN_GPU
    shown = sources.timing_of(stage) if stage else None

    def order(results):
        own = [stage] if stage else []
        return (gpu in results.hardware.gpu, results is shown, not sources.changed_since(results, own), results.date)

    found = sorted(sources.timings, key=order, reverse=True)
    return [results for results in found if not asked.gpu or gpu in results.hardware.gpu]


def stage_named(sources, page_stage, word):
    """None if it is a peer's name, or the folder of a stage that left the ladder."""
    if word == "parent" or word is None:
        if page_stage is None:
            raise Failure("a page that is no stage's must say of which: 'of 05'")
        return sources.stage(page_stage.parent) if word else page_stage
    return sources.stage(int(word)) if re.fullmatch(r"\d\d?", word) else None


def row_of(problem, stage, word):
    return problem.row(stage.number) if stage else problem.peer(word) or problem.left_row(word)


def speed_over(problem, own, stage, base, base_stage):
    """How many times as fast the row `own` is as stage or peer `base`, as tables say it; None if it was not timed."""
    if own and stage and base_stage and base_stage.number == own.parent and own.over_parent:
        return own.over_parent.value
    other = row_of(problem, base_stage, base)
    return ratio(ms_if_right(other), ms_if_right(own))


def ms_if_right(row):
    """A peer's time counts as it is: its output is compared elsewhere."""
    return None if not row or not row.timing else right_ms(row) if "verified" in row else row.timing.median_ms


def value_of(sources, page_stage, problem, asked):
    stage = stage_named(sources, page_stage, asked.of)
    own = row_of(problem, stage, asked.of)
    if ms_if_right(own) is None:
        return None
    if asked.kind == "ms":
        return own.timing.median_ms
    if asked.kind == "us":
        return 1000 * own.timing.median_ms
    if asked.kind in ("TFLOP/s", "GB/s"):
        return own.rate if own.unit == asked.kind else None
    if asked.kind == "share of ceiling":
        return own.ceiling_share and 100 * own.ceiling_share
    speed = speed_over(problem, own, stage, asked.base, stage_named(sources, page_stage, asked.base))
    if speed is None or asked.kind == "over":
        return speed
    return 100 * {"gain over": speed - 1, "loss over": 1 - speed, "longer than": 1 / speed - 1}[asked.kind]


def text_of(asked):
    digits = asked.digits
    if asked.kind == "over":
        return (lambda value: f"{value:.{digits}f}x") if digits is not None else times
    if asked.kind in ("ms", "us", "TFLOP/s", "GB/s"):
        def with_unit(value):
            if digits is not None:
                return f"{value:.{digits}f} {asked.kind}"
            return f"{value:.3f} ms" if asked.kind == "ms" else f"{rounded(value, 100)} {asked.kind}"
        return with_unit
    return lambda value: f"{value:.{digits or 0}f}%"


def timed(sources, page_stage, asked):
    stage = stage_named(sources, page_stage, asked.of)
    for results in candidates(sources, stage or page_stage, asked):
        values = [value_of(sources, page_stage, problem, asked) for problem in meant(results, asked.problem)]
        values = [value for value in values if value is not None]
        if values:
            return Found([asked.pick(values)] if asked.pick else values, text_of(asked), [results])
    return None


METRIC_NAMED = {title.split(",")[0]: key for key, (title, _) in METRICS.items()}
WAITS = {f"waits: {reason.replace('_', ' ')}": reason for reason in STALLS}


def profiled(sources, page_stage, asked):
    """A row of the profile: of the kernel of a stage that is named after it, or else the sum of all; a share is that of
    the kernel that takes longest."""
    number, _, kernel = (asked.of or "").partition(" ")
    stage = stage_named(sources, page_stage, number or None)
    wanted = asked.problem or (page_stage or stage).shows_in
    known = [sources.record(asked.recording, "profile")] if asked.recording else [
        sources.profile_of(page_stage or stage), sources.profile_of(stage), *sources.profiles]
    profile, rows = next(((each, rows) for each in known if each and (rows := [
        row for row in each.rows if row.stage == stage.number and row.kernels
        and (row.regime == wanted or means(records.Problem(row), wanted))])), (None, None))
    if not rows:
        return None
    kernels = [each for each in rows[0].kernels if kernel in ("", each.kernel)]
    if not kernels:
        raise Failure(f"stage {stage.number:02} has no kernel '{kernel}' in this profile")
    longest = max(kernels, key=lambda each: each.metrics.get("duration_ns", 0))
    if asked.base in WAITS:
        return Found([100 * waits_of(longest)[WAITS[asked.base]]], "{:.0f}%".format, [profile])
    key = METRIC_NAMED[asked.base]
    value = longest.metrics.get(key) if kernel or key.endswith("pct") or key == "warps_active" else total(rows[0], key)
    if key == "duration_ns" and value is not None:  # as a prediction says it
        return Found([value / 1e6], "{:.3f} ms".format, [profile])
    return None if value is None else Found([value], METRICS[key][1], [profile])


def counted(sources, page_stage, asked):
    """What `lab count` says on the problem that the stage is counted on: "counter mma", "counter mma over parent"."""
    counter, _, base = asked.base.removeprefix("counter ").partition(" over ")
    stage = stage_named(sources, page_stage, asked.of)
    name = counter.replace(" ", "_")
    own = sources.work([stage], stage.counted_on)[1][0]
    if name not in own:
        raise Failure(f"there is no counter '{counter}'")
    if not base:
        return Found([own[name]], "{:,}".format, [])
    other = sources.work([stage_named(sources, page_stage, base)], stage.counted_on)[1][0]
    return Found([own[name] / other[name]], "x{:.4g}".format, []) if other[name] else None


def error(sources, page_stage, asked):
    """The relative L2 of O in percent, as the CPU computes it for the block `lost`: "error, same_sign 8192"."""
    stage, (inputs, keys) = stage_named(sources, page_stage, asked.of), asked.problem.split()
    pair = (sources.stage(page_stage.parent).folder, page_stage.folder) if page_stage else ()
    asked_for = pair if stage.folder in pair else (stage.folder,)  # as a block of the page asks, whose answer is kept
    found = dict(zip(asked_for, lost.errors(sources, asked_for, int(keys), inputs, (1, 64))))
    return Found([100 * found[stage.folder][1]], "{:.2f}%".format, [])


def find(sources, page_stage, words):
    """None if no recording has it."""
    if " / " in words:
        parts = [find(sources, page_stage, part) for part in words.split(" / ")]
        if len(parts) != 2 or any(part is not None and len(part.values) != 1 for part in parts):
            raise Failure(f"'{words}' is no ratio of two numbers")
        if None in parts:
            return None
        made = [results for part in parts for results in part.recordings]
        return Found([parts[0].values[0] / parts[1].values[0]], times, made)
    asked = read(words)
    if asked.kind:
        return timed(sources, page_stage, asked)
    if asked.base in METRIC_NAMED or asked.base in WAITS:
        return profiled(sources, page_stage, asked)
    if asked.base.startswith("counter "):
        return counted(sources, page_stage, asked)
    if asked.base == "error":
        return error(sources, page_stage, asked)
    raise Failure(f"'{words}' is not {' '.join(WORDS.split())}")
