#!/usr/bin/env python3
"""Estimates: how long stages would take on a GPU that was not timed here, from the work that `lab count` counts and the
ceilings of gpus.json. `lab time --like GPU` runs it. No time that it prints was measured on that GPU.

    like.py LAB [STAGES...] --like GPU [--regime NAME | --shape B,H,Hkv,Nq,Nk,D [--causal]] [--json FILE] [--markdown]
    like.py LAB --for REGIME_OR_SHAPE --like GPU [--causal] [--backward] [--json FILE] [--markdown]

The second form, which is `lab list --for`, has the stages of a problem in the order of their estimates.

A stage takes what its busiest resource takes, and a little for each launch:

    time = max over resources of (work / ceiling) + launches x 3 us

That is a lower bound: no stage keeps a unit busy all the time. Where another GPU was recorded on the same problem, the
better estimate is its time multiplied by the ratio of the two GPUs' bounds. test_compare.py computes from the
recordings of two GPUs how far both are off.
"""

import json
import re
import statistics
import sys
from functools import cached_property
from itertools import permutations
from pathlib import Path

sys.dont_write_bytecode = True

import records  # noqa: E402
from blocks import Failure, block, generated_file  # noqa: E402
from command import Options, finish, lab_command, run  # noqa: E402
from markdown import rounded, table, times  # noqa: E402
from sources import Sources  # noqa: E402

HERE = Path(__file__).parent
LAUNCH_MS = 0.003  # assumed: what a kernel's start and end cost
COUNTED = ("launches", "blocks", "global_load_bytes", "global_store_bytes", "shared_exchange_bytes",
           "shared_tile_bytes", "mma", "wgmma_columns", "exponentials", "workspace_bytes")
# By kind of problem the options of the two counts that give its work at every size. N is a multiple of every tile but
# one: 384 at d = 64, where tiles have 64, 128 or 192 rows, and 256 elsewhere.
KINDS = {f"d={d}{mask}": [f"--shape 1,1,1,{n},{n},{d}{mask.replace(' ', ' --')}" for n in (first, 2 * first)]
         for d, first in ((64, 384), (128, 256), (256, 256)) for mask in ("", " causal")}
KINDS["decode"] = [f"--shape 1,4,1,1,{n},128" for n in (1024, 2048)]  # one query row, four heads to a group
# Stages that divide the query tiles of a key tile do so for a single head of 512 rows at d = 128, and not of 768.
GRADIENTS = KINDS | {kind: [options.replace("512,512", "768,768") for options in KINDS[kind]]
                     for kind in ("d=128", "d=128 causal")}


def sizes(kind, backward):
    return [int(options.split()[1].split(",")[4]) for options in (GRADIENTS if backward else KINDS)[kind]]


def is_counted(sources, stage, kind):
    """A stage that splits the keys splits them for a single head of long queries too, and not for many."""
    if kind == "decode":
        return not stage.backward and 128 in stage.head_dims
    return int(kind[2:5]) in stage.head_dims and not sources.decodes(stage.shows_in)


def counters_of(sources, stage, options):
    work = sources.ask("count", stage.folder, *options.split(), "--long")["work"]
    counted = {row["counter"]: row[stage.folder] for row in work}
    return [counted.get(name, 0) for name in COUNTED]


def needs_of(sources, stage):
    """What a block needs of a GPU: by head dimension the shared memory of the largest one, and mbarriers, which 8.0 has. A
    stage that runs on one compute capability fits there."""
    shared, mbarriers = {}, False
    for d in stage.head_dims if not stage.capability else ():
        traced = sources.ask("trace", stage.folder, "--shape", f"1,1,1,64,64,{d}")
        launches, total = traced["traces"][0]["launches"], dict(zip(traced["counters"], traced["traces"][0]["total"]))
        shared[str(d)] = max(launch["shared_bytes"] for launch in launches)
        mbarriers |= total["mbarrier_arrivals"] > 0
    return {"shared": shared, "mbarriers": mbarriers}


@generated_file("docs/publish/work.json")
def counted_work(sources):
    """A line for each stage: its fingerprint, what its blocks need, and by kind of problem its counters of COUNTED at both
    sizes. What was counted of the same kernel before is kept."""
    path = HERE / "work.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found = {}
    for stage in sources.stages.values():
        kernel, known = stage.fingerprint, before.get(stage.folder)
        found[stage.folder] = known if known and known["kernel"] == kernel else {
            "kernel": kernel, **needs_of(sources, stage), "work": {kind: [counters_of(sources, stage, options) for options in all_options]
                                       for kind, all_options in (GRADIENTS if stage.backward else KINDS).items()
                                       if is_counted(sources, stage, kind)}}
    return "{\n" + ",\n".join(f"{json.dumps(folder)}: {json.dumps(entry)}" for folder, entry in found.items()) + "\n}\n"


def kind_of(row):
    """None for a problem whose work was not counted."""
    s = row.shape
    if s.Nq == 1:
        return "decode" if (s.H, s.d) == (4 * s.Hkv, 128) else None
    kind = f"d={s.d}{' causal' if row.causal else ''}"
    counted = s.Nq == s.Nk and s.H == s.Hkv and kind in KINDS
    return kind if counted and s.Nk >= sizes(kind, records.pass_of(row) == "backward")[0] else None


def work_of(row, counted):
    """What a stage does on a problem, of each head: a part that grows with N and one that grows with its square, or,
    for the number of blocks and for one query row, a constant part and one that grows with N."""
    kind = kind_of(row)
    both = counted.get(row.folder, {}).get("work", {}).get(kind)
    if not both:
        return None
    s, (small, large) = row.shape, sizes(kind, records.pass_of(row) == "backward")
    work = {}
    for name, one, two in zip(COUNTED, *both):
        if kind == "decode" or name == "blocks":
            work[name] = s.B * s.Hkv * (one + (two - one) * (s.Nk - small) / (large - small))
        else:
            square = (two / large - one / small) / (large - small)
            work[name] = s.B * s.H * s.Nk * (one / small + square * (s.Nk - small))
    return work | {"launches": both[0][COUNTED.index("launches")]}


def bounds(gpu, row, work, splits_keys, key_bytes=2):
    """By resource how many milliseconds a stage's work takes of it at least. key_bytes: of an element of K and V."""
    s, gradients = row.shape, records.pass_of(row) == "backward"
    queries, keys = s.B * s.H * s.Nq * s.d * 2, s.B * s.Hkv * s.Nk * s.d * key_bytes
    inputs, outputs = (3 * queries + 2 * keys, queries + 2 * keys) if gradients else (queries + 2 * keys, queries)
    # What goes through the workspace is written once and read once, though L2 adds to it more often. It stays in L2 if
    # all of it fits.
    stored = min(max(0, work["global_store_bytes"] - outputs), work["workspace_bytes"])
    through = 2 * stored if work["workspace_bytes"] > gpu.l2_bytes else 0
    # Blocks fewer than multiprocessors leave some idle, unless a stage splits the keys to have more.
    share = 1 if splits_keys else min(1, work["blocks"] / gpu.sms)
    clocks = share * gpu.sms * gpu.mhz * 1e3  # of all multiprocessors in a millisecond
    tensor = share * gpu.fp16_tflops * 1e9
    return {"tensor cores": work["mma"] * 4096 / (tensor * gpu.mma_sync_share) + work["wgmma_columns"] * 2048 / tensor,
            "exp2": work["exponentials"] / (clocks * gpu.ex2),
            "shared memory": (work["shared_exchange_bytes"] + work["shared_tile_bytes"]) / (clocks * gpu.shared_bytes),
            "HBM": (inputs + outputs + through) / (gpu.hbm_gbs * 1e6)}


class Model:
    """What is estimated from: ceilings, counted work and the recordings."""

    def __init__(self, sources):
        self.sources = sources
        self.gpus = {gpu.name: gpu for gpu in records.read(HERE / "gpus.json").gpus}
        self.counted = records.read(HERE / "work.json")

    def gpu(self, name):
        def short(text):
            return re.sub(r"nvidia|geforce|rtx|[\s_-]", "", text.lower())

        for gpu in self.gpus.values():
            if short(gpu.name) == short(name):
                return gpu
        raise Failure(f"no ceilings are known of a GPU '{name}', only of {', '.join(self.gpus)}")

    def why_not(self, gpu, stage, d=None):
        """Why a stage cannot run there, at this head dimension if it is given, beginning with a verb; None if it can."""
        if stage.capability and stage.capability != gpu.capability:
            return f"needs exactly compute capability {stage.capability}; {gpu.name} has {gpu.capability}"
        known = self.counted.get(stage.folder, {})
        if known.get("mbarriers") and float(gpu.capability) < 8:
            return f"needs mbarriers, which compute capability 8.0 has; {gpu.name} has {gpu.capability}"
        needed = known.get("shared", {}).get(str(d), 0)
        if needed > gpu.block_bytes:
            return (f"needs {needed / 1024:.0f} KB of shared memory for a block at d = {d}; "
                    f"{gpu.name} has {gpu.block_bytes / 1024:.0f} KB")
        return None

    def runs_at(self, gpu, stage):
        """The head dimensions at which a stage runs there."""
        return [d for d in stage.head_dims if not self.why_not(gpu, stage, d)]

    def bounds(self, gpu, row):
        """By resource its milliseconds, from counts alone, and those of the launches; None if nothing was counted."""
        work = work_of(row, self.counted)
        if not work:
            return None
        splits_keys = self.sources.decodes(self.sources.stages[row.stage].shows_in)
        key_bytes = 1 if splits_keys and row.stage in self.sources.of_8_bits else 2  # only a cache comes in 8 bits
        return bounds(gpu, row, work, splits_keys, key_bytes), work["launches"] * LAUNCH_MS

    def bound(self, gpu, row):
        """Milliseconds from counts alone, and the resource that binds; None if the problem was not counted."""
        if not (found := self.bounds(gpu, row)):
            return None
        ms, launches = found
        binding = max(ms, key=ms.get)
        return ms[binding] + launches, binding

    def scaled(self, gpu, row):
        """A recorded row's time on another GPU; None if its own GPU has no ceilings. By the ratio of both GPUs' bounds,
        summed over all resources, since none binds alone where two are close."""
        recorded_on = next((known for known in self.gpus.values() if known.get("recorded_as") == row.gpu), None)
        both = [self.bounds(on, row) for on in (gpu, recorded_on) if on]
        if len(both) < 2 or None in both:
            return None
        there, here = (sum(ms.values()) + launches for ms, launches in both)
        return max(row.timing.median_ms * there / here, self.bound(gpu, row)[0])  # where the sum flatters

    @cached_property
    def recorded(self):
        """The newest row of a right answer of each stage on each problem, by GPU, with its GPU and its kernel. Windows and
        column bounds have no estimates: what their work follows is not the shape alone."""
        return {gpu: {(row.folder, records.key_of(row)):
                      records.Fields(row, gpu=gpu, kernel=results.get("kernels", {}).get(row.folder))
                      for results in recordings for row in results.rows
                      if records.right_ms(row) and records.is_plain(row)}
                for gpu, recordings in self.sources.by_gpu.items()}


def chosen(sources, words):
    """The stages that words name, as everywhere: numbers, ranges, names, all."""
    found = []
    for word in ",".join(words).split(","):
        span = re.fullmatch(r"(\d+)-?(\d*)", word)
        named = [stage for stage in sources.stages.values()
                 if (int(span[1]) <= stage.number <= int(span[2] or span[1]) if span else
                     word in ("all", stage.folder, stage.folder[3:]))]
        if not named:
            raise Failure(f"there is no stage '{word}'; see {lab_command('list')}")
        found += named
    return list(dict.fromkeys(found))


def row_of_shape(model, stage, shape, causal):
    """A row as of a recording, without a time."""
    row = records.Fields(regime="custom", stage=stage.number, folder=stage.folder, shape=shape, dtype="fp16", causal=causal,
                         gpu=None, timing=None, verified=False, **model.sources.counted_as(shape, causal, stage.backward))
    if stage.backward:
        row["pass"] = "backward"
    return records.derive(records.Fields(rows=[row])).rows[0]


def listed(without):
    """Why stages have no estimate, each reason once."""
    found = {}
    for folder, why in without.items():
        found.setdefault(why, []).append(folder)
    return [f"{folders[0]} {why}" if len(folders) == 1 else
            f"{', '.join(folders)} {re.sub('^(needs|was)', lambda verb: {'needs': 'need', 'was': 'were'}[verb[0]], why)}"
            for why, folders in found.items()]


def estimates(model, gpu, stages, regime=None, shape=None, causal=False):
    """A row for each stage and problem, and why some have none. The problems are those of the recordings, or one of a
    shape."""
    rows, without = [], {}
    merged = {}  # of every problem the row of a GPU that is not this one, if there is one
    for own in model.recorded.values():
        for key, row in own.items():
            if key not in merged or merged[key].gpu == gpu.get("recorded_as"):
                merged[key] = row
    for stage in stages:
        own = [row for row in merged.values() if row.folder == stage.folder and model.bound(gpu, row)]
        if shape:
            custom = row_of_shape(model, stage, shape, causal)
            own = [row for row in own if (row.shape, row.causal) == (custom.shape, causal)][:1] or [custom]
            own = [row for row in own if model.bound(gpu, row)]
        else:
            own = [row for row in own if (row.regime == regime if regime else row.shows_here)]
        if not own or stage.capability:
            without[stage.folder] = model.why_not(gpu, stage) or (
                "was not counted at such sizes: counted are as many keys as query rows, with as many heads, and one query "
                "row with four heads to a key/value head at d = 128" if shape else
                "was counted on no problem of these regimes")
        for problem in sorted(records.by_problem({"rows": own}), key=lambda problem: problem.shape.Nk):
            row = problem.first
            if why := model.why_not(gpu, stage, row.shape.d):
                without[stage.folder] = why
                continue
            without.pop(stage.folder, None)
            ms, binding = model.bound(gpu, row)
            scaled = model.scaled(gpu, row) if row.gpu != gpu.get("recorded_as") else None
            rows.append({"estimate": True, "gpu": gpu.name, "stage": stage.folder,
                         "problem": problem.full_name if shape else problem.short_name,
                         "regime": row.regime, "shape": row.shape, "dtype": row.dtype, "causal": row.causal,
                         "bound_ms": ms, "bound_by": binding, "scaled_ms": scaled, "scaled_from": scaled and row.gpu,
                         "rate": records.rate_at(row, scaled or ms), "unit": row.unit,
                         "changed_since": scaled is not None and row.kernel != stage.fingerprint})
    return rows, listed(without)


def errors(model, gpu, other):
    """By how large a factor, at least 1, estimates for a GPU miss its recordings: pairs of factor and problem, from
    counts alone, and scaled from another GPU's recordings. Of kernels that are as they were counted."""
    found = [], []
    for key, row in model.recorded.get(gpu.recorded_as, {}).items():
        bound, there = model.bound(gpu, row), model.recorded.get(other.recorded_as, {}).get(key)
        if not bound or row.kernel != model.counted[row.folder].kernel:
            continue
        estimated = [bound[0]] + ([model.scaled(gpu, there)] if there and there.kernel == row.kernel else [])
        for misses, ms in zip(found, estimated):
            ratio = ms / row.timing.median_ms
            misses.append((max(ratio, 1 / ratio), f"{row.folder}, {records.long_name(row)}"))
    return found


def error_rows(model):
    """By pair of recorded GPUs how many estimates there are of which kind, and by what factor they miss: in the median,
    and at worst."""
    recorded = [gpu for gpu in model.gpus.values() if gpu.get("recorded_as") in model.recorded]
    return [[gpu.name, how, str(len(found)), times(statistics.median(factor for factor, _ in found)),
             times(max(found)[0]), max(found)[1]]
            for gpu, other in permutations(recorded, 2)
            for how, found in zip(("counted work alone", f"recordings of {other.name}, scaled"),
                                  errors(model, gpu, other)) if found]


def errors_in_words(model):
    """By kind of estimate its median and its largest errors, of all recorded GPUs."""
    rows = error_rows(model)
    for kind, start in (("Bound", "counted work"), ("Scaled", "recordings")):
        found = [row for row in rows if row[1].startswith(start)]
        if found:
            yield kind, *(" and ".join(f"{row[k]} ({row[0]})" for row in found) for k in (3, 4))


@block("estimate_errors")
def estimate_errors(sources, *_):
    columns = ["estimated", "from", ">estimates", ">median error", ">largest error", "where"]
    return table(columns, error_rows(Model(sources)))


def fastest_first(rows):
    """By problem the stages in the order of their estimates, those that a recording was scaled for first: a bound alone is
    too good to be compared with them."""
    order = {row["problem"]: k for k, row in reversed([*enumerate(rows)])}
    return sorted(rows, key=lambda row: (order[row["problem"]], row["scaled_ms"] is None, row["scaled_ms"] or row["bound_ms"]))


def first_of_each(rows):
    """Of several problems the fastest few stages each, and how many there are besides; of a single one all."""
    found = {}
    for row in rows:
        found.setdefault(row["problem"], []).append(row)
    most = len(rows) if len(found) == 1 else 5
    shown = [row for own in found.values() for row in own[:most]]
    return shown, len(rows) - len(shown)


def table_of(rows, unit):
    return (["not measured", "problem", "stage", ">ms, scaled", ">ms, bound", "bound by", f">{unit}"],
            [["estimate", row["problem"], row["stage"], "-" if row["scaled_ms"] is None else f"{row['scaled_ms']:.3f}",
              f"{row['bound_ms']:.3f}", row["bound_by"].split()[0], rounded(row["rate"], 100)] for row in rows])


def read_shape(text):
    shape = tuple(map(int, text.split(","))) if re.fullmatch(r"\d+(,\d+){5}", text) else ()
    if not shape or min(shape) < 1 or shape[1] % shape[2]:
        raise Failure(f"shape '{text}': expected six sizes B,H,Hkv,Nq,Nk,D above 0, of which Hkv divides H")
    return shape


def read_options():
    """What was asked for, with .for_ if it was `lab list --for`."""
    listing = any(word == "--for" or word.startswith("--for=") for word in sys.argv)
    options = Options("list" if listing else "time")
    options.add_argument("lab")
    if listing:
        options.add_argument("--for", dest="for_", required=True)
        options.add_argument("--backward", action="store_true")
    else:
        options.add_argument("stages", nargs="*")
        options.add_argument("--regime")
        options.add_argument("--shape")
    options.add_argument("--causal", action="store_true")
    options.add_argument("--like", required=True)
    given = options.parse_intermixed_args()
    if listing:
        given.shape, given.regime = (given.for_, None) if "," in given.for_ else (None, given.for_)
    elif given.regime and given.shape:
        options.error("argument --shape: not allowed with argument --regime")
    if given.causal and not given.shape:
        options.error("--causal goes with a shape; the regimes say which of theirs are")
    return given, listing


def main():
    given, listing = read_options()
    sources = Sources(given.lab)
    model = Model(sources)
    gpu = model.gpu(given.like)
    if given.regime and given.regime not in sources.regimes:
        raise Failure(f"there is no regime '{given.regime}'; there are {', '.join(sources.regimes)}")
    shape = read_shape(given.shape) if given.shape else None
    if listing:
        backward = given.backward or bool(given.regime) and sources.regimes[given.regime]["pass"] == "backward"
        stages = [stage for stage in sources.stages.values() if stage.backward == backward and not stage.experiment]
    elif given.stages:
        stages = chosen(sources, given.stages)
    else:
        stages = [stage for stage in sources.stages.values() if stage.part == 0 or stage.last_of_part]
    rows, without = estimates(model, gpu, stages, given.regime, shape, given.causal)
    if not rows:
        raise Failure("; ".join(without), 3)
    if listing:
        rows, without = fastest_first(rows), []
    shown, hidden = first_of_each(rows) if listing else (rows, 0)
    units = list(dict.fromkeys(row["unit"] for row in shown))
    tables = [(f"Estimates for {gpu.name}" + (f", {unit}" if len(units) > 1 else ""),
               table_of([row for row in shown if row["unit"] == unit], unit)) for unit in units]
    bases = list(dict.fromkeys(row["scaled_from"] for row in rows if row["scaled_from"]))
    notes = [f"No time in this table was measured on {gpu.name}. \"Bound\" is the least time that the counted work takes "
             f"at the ceilings of the specification ({'; '.join(gpu.sources)})."]
    if hidden:
        shape = ",".join(str(rows[-1]["shape"][size]) for size in records.SIZES)
        notes.append(f"The five fastest of each problem are shown; {hidden} rows are not. All stages of one problem: "
                     f"{lab_command('list', '--for', shape, '--like', given.like)}")
    if bases:
        notes.append(f"\"Scaled\" is the time recorded on {' or '.join(bases)}, multiplied by the ratio of the two "
                     "GPUs' bounds.")
    if changed := sorted({row["stage"] for row in rows if row["changed_since"]}):
        notes.append(f"Kernels that were changed after those times were recorded: {', '.join(changed)}.")
    if listing and bases and None in [row["scaled_from"] for row in rows]:
        notes.append("Stages without a recording of the problem come last: their bound is not to be compared with the "
                     "scaled times.")
    if "assumed" in gpu:
        notes.append(f"{gpu.assumed}.")
    for name, median, worst in errors_in_words(model):
        notes.append(f"{name} times differ from recorded ones by {median} in the median case and {worst} in the worst.")
    if "recorded_as" not in gpu:
        notes.append("The errors are those of GPUs with the same multiprocessors; for another architecture they are "
                     "not known.")
    notes += [f"No estimate: {why}." for why in without]
    answer = {"like": gpu.name, "estimates": rows, "notes": notes}
    return finish(given, "list" if listing else "time", answer, tables, notes)


if __name__ == "__main__":
    sys.exit(run(main))
