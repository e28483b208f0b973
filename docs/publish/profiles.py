"""Profiles: what Nsight Compute counted in a stage's kernels, and what they take of a multiprocessor."""

import math
import re
import sys

from blocks import Failure, block, numbers
from markdown import folded, human_bytes, in_words, percent, table
from peers import problem_name
from times import on_gpu
from records import ROOT, by_problem, key_of, long_name, machine_label, since

sys.path.append(str(ROOT / "harness/time"))
from nsight import STALLS  # noqa: E402

NOT_YET = "Not profiled yet.\n"


def ms(value):
    return f"{value * 1e-6:.3f} ms"


def share(value):
    return f"{value:.1f}%"


def count(value):
    return f"{max(0, math.floor(value + 0.5)):,}"


# The metrics that a lesson shows: what tables call them, and how they write them.
METRICS = {"duration_ns": ("time", ms), "sm_busy_pct": ("multiprocessors at work", share),
           "tensor_pipe_pct": ("tensor pipe", share), "xu_pipe_pct": ("exp2 (XU) pipe", share),
           "issue_pct": ("issue slots, of multiprocessors at work", share), "instructions": ("instructions", count),
           "warps_active": ("warps per SM", "{:.1f}".format), "hbm_read_bytes": ("HBM read", human_bytes),
           "hbm_write_bytes": ("HBM written", human_bytes), "hbm_pct": ("HBM bandwidth", share),
           "l2_bytes": ("L2 traffic", human_bytes), "l2_hit_pct": ("L2 hits", share),
           "shared_pipe_pct": ("shared-memory pipe", share), "shared_wavefronts": ("shared-memory wavefronts", count),
           "bank_conflicts": ("bank conflicts", count),
           "bank_conflicts_ldmatrix": ("bank conflicts of ldmatrix", count)}


def total(row, *keys):
    """The sum of metrics over a row's kernels; None if one was not measured in each."""
    values = [kernel.metrics.get(key) for kernel in row.kernels for key in keys]
    return None if not values or None in values else sum(values)


def hbm_bytes(row):
    """Read and written."""
    return total(row, "hbm_read_bytes", "hbm_write_bytes")


def trained(profile, stage):
    """The row of a stage in `train`."""
    for row in profile.rows:
        if row.stage == stage and row.regime == "train" and row.kernels:
            return row
    raise Failure(f"stage {stage:02} was not profiled in train", 3)


def waits_of(kernel):
    """The reasons to wait with their shares of the cycles from one instruction of a warp to its next."""
    stalls = {reason: kernel.metrics.get(f"stall_{reason}", 0) for reason in ("selected", *STALLS)}
    cycles = 0.0  # sum() would round otherwise from Python 3.12 on
    for value in stalls.values():
        cycles += value
    return {reason: stalls[reason] / cycles if cycles else 0 for reason in STALLS}


def profiled_label(sources, profile, stages):
    """Who made it, and which of these stages were changed since."""
    made = f"{profile.profiler} on {machine_label(profile)}" if profile.profiler else f"On {machine_label(profile)}"
    return "; ".join(filter(None, [made, since(sources.changed_since(profile, stages))]))


@block("profile")
def profile_block(sources, page, words):
    """What a lesson says of one stage: its kernels beside its parent's, metrics down, in the regime where its change
    shows. In sight are the time and the rows that "profile tensor pipe, barrier" names, or
    those that the prose names."""
    stage = page.stage
    if not stage:
        return None
    profile = sources.profile_of(stage)
    own_row = profile and next((row for row in profile.rows if row.stage == stage.number
                            and row.regime == stage.shows_in and row.kernels), None)
    if not own_row:
        return NOT_YET
    parent = next((row for row in profile.rows if row.stage == own_row.parent and key_of(row) == key_of(own_row)), None)
    shown = [(row, kernel) for row in (parent, own_row) if row for kernel in row.kernels]
    columns = ["metric", *(">" + ("this stage" if row is own_row else "parent") + (f": {kernel.kernel}" if len(row.kernels) > 1 else "")
                           for row, kernel in shown)]
    kernels = [kernel for _, kernel in shown]
    rows = [[title, *(text(kernel.metrics[key]) if key in kernel.metrics else "n/a" for kernel in kernels)]
            for key, (title, text) in METRICS.items()]
    first = waits_of(own_row.kernels[0])
    waits = [waits_of(kernel) for kernel in kernels]
    for reason in sorted(STALLS, key=lambda reason: -first[reason]):
        shares = [each[reason] for each in waits]
        if max(shares) >= 0.05:
            rows.append([f"waits: {in_words(reason)}", *map(percent, shares)])
    named = rows_in_sight(page, words, rows)
    own = [row for row in rows if row[0] in named]
    # In sight are the kernels that take a tenth of their stage's time.
    large = [n for n, (row, kernel) in enumerate(shown, 1)
             if kernel.metrics.get("duration_ns", 0) >= 0.1 * (total(row, "duration_ns") or 0)]
    own = [[row[0], *(row[n] for n in large)] for row in own]
    stages = [sources.stage(row.stage) for row in (parent, own_row) if row]
    waits_note = "A wait is a share of the cycles from one instruction of a warp to its next.\n"
    has_waits = any(row[0].startswith("waits: ") for row in own)
    sight = table([columns[0], *(columns[n] for n in large)], own) + (f"\n{waits_note}" if has_waits else "")
    sight += folded("All of the profile", f"{profiled_label(sources, profile, stages)}; {long_name(own_row)}:\n\n{table(columns, rows)}"
                    + ("" if has_waits else f"\n{waits_note}"))
    return f"Profile of `{own_row.regime}` on {on_gpu(sources, profile, stages)}:\n\n{sight}"


def rows_in_sight(page, words, rows):
    """The titles of the rows that a page's block names, or its prose; always the time."""
    titles = {row[0]: row[0].split(",")[0].removeprefix("waits: ") for row in rows}
    if words:
        wanted = {name.removeprefix("waits: ") for name in " ".join(words).split(", ")}
        if unknown := wanted - set(titles.values()):
            raise Failure(f"{page.path}: the profile has no row '{min(unknown)}'")
        return {title for title, name in titles.items() if name in wanted | {"time"}}
    path = ROOT / page.path
    text = re.sub(r"<!-- generated: .*?<!-- end -->", "", path.read_text(encoding="utf-8") if path.exists() else "",
                  flags=re.S).lower()
    # One word of English is no name of a wait.
    return {title for title, name in titles.items()
            if name == "time" or (" " in name and name.replace(" (xu)", "").lower() in " ".join(text.split()))}


@block("alone")
def alone(sources, _, words):
    """ "alone 70 74 h200-fp8-sweep": the last kernel of these stages without those before it, which the timing of a call
    has too, next to the first peer of that recording, or of several, which has none. Problems that the stages are
    profiled with."""
    stages = [sources.stage(number) for number in numbers([word for word in words if word.isdigit()])]
    recordings = [sources.need(word) for word in words if not word.isdigit()]
    profiled = {(row.stage, *key_of(row)[1:]): row for profile in sources.profiles[::-1] for row in profile.rows
                if row.kernels}
    shown = [(problem, own) for results in recordings for problem in by_problem(results)
             if all(own := [profiled.get((stage.number, *key_of(problem.first)[1:])) for stage in stages])]
    if not shown:
        raise Failure(f"{words[-1]} has no problem that these stages are profiled with")
    rows = []
    for problem, own in shown:
        before = [kernel.metrics["duration_ns"] for kernel in own[0].kernels[:-1]]
        last = [row.kernels[-1].metrics["duration_ns"] for row in own]
        call, peer = (timed.timing.median_ms * 1e6 for timed in (problem.row(stages[-1].number), problem.peers[0]))
        rows.append([problem_name(sources, problem), *map(ms, (*before, *last, call, peer)),
                     *(f"{peer / ns:.2f}x" for ns in last)])
    first = shown[0][1][0].kernels[:-1]
    numbered = [f"{stage.number:02}" for stage in stages]
    labels = "; ".join(dict.fromkeys(sources.label(results, stages) for results in recordings))
    kernels = profiled_label(sources, sources.profile_of(stages[0]), stages)
    return f"{labels}; kernels: {kernels}:\n\n" + table(
        ["problem", *(f">{kernel.kernel}" for kernel in first), *(f">{stage}" for stage in numbered),
         f">call of {numbered[-1]}", f">{recordings[0].peers[0].peer}", *(f">{stage} over it" for stage in numbered)], rows)


@block("occupancy")
def occupancy(sources, *_):
    """A row for each kernel of each stage: what it takes of a multiprocessor, and what keeps more blocks away."""
    profiles = {stage: sources.profile_of(stage) for stage in sources.stages.values()}
    of_profile = {}  # the stages that it is shown of
    for stage, profile in profiles.items():
        if profile:
            of_profile.setdefault(profile.date, (profile, []))[1].append(stage)
    made = [profiled_label(sources, profile, stages) for profile, stages in of_profile.values()]
    if not made:
        return NOT_YET
    rows = []
    for stage, profile in profiles.items():
        kernels = {}
        for row in profile.rows if profile else ():
            for kernel in row.kernels if row.stage == stage.number else ():
                kernels.setdefault(kernel.kernel, kernel)
        for k in kernels.values():
            taken = k.threads, k.registers, k.local_bytes, k.shared_bytes, k.blocks_per_sm, k.warps_per_sm
            rows.append([stage.folder, k.kernel, *(f"{n:,}" for n in taken), k.limited_by])
        if not kernels:
            rows.append([stage.folder, "not profiled yet"])
    return f"{'; '.join(made)}:\n\n" + table(
        ["stage", "kernel", ">threads per block", ">registers per thread", ">spilled bytes", ">shared memory per block",
         ">blocks per SM", ">warps per SM", "limited by"], rows)


@block("moved")
def moved(sources, _, words):
    """ "moved 0 1 5": what HBM and L2 moved for these stages in `train`, a row for each kernel of each"""
    profile = sources.profiled
    if not profile:
        return NOT_YET
    keys = "hbm_read_bytes", "hbm_write_bytes", "l2_bytes"
    shown = [trained(profile, number) for number in numbers(words)]
    rows = [[row.folder, k.kernel, *(human_bytes(k.metrics[key]) for key in keys),
             *(f"{n:,}" for n in (k.shared_bytes, k.registers, k.blocks_per_sm))] for row in shown for k in row.kernels]
    made = profiled_label(sources, profile, [sources.stage(row.stage) for row in shown])
    return f"{long_name(profile.rows[0])}, {made}:\n\n" + table(
        ["stage", "kernel", ">HBM read", ">HBM written", ">L2 traffic", ">shared memory per block",
         ">registers per thread", ">blocks per SM"], rows)
