"""Records for tests of what makes tables and plots of the recordings."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs/publish"))
from records import VERSION, Fields, derive  # noqa: E402


def named(sources, name):
    """The stage of this name, which it keeps when its number changes."""
    return next(stage for stage in sources.stages.values() if stage.folder[3:] == name)


def free_number(sources):
    """The first number of two digits that no stage has."""
    return next(number for number in range(10, 100) if number not in sources.stages)


def fields(value):
    return json.loads(json.dumps(value), object_hook=Fields)


def cells(shown):
    """The rows of a table in Markdown, by the words of its head."""
    lines = [[cell.strip() for cell in line[1:-1].split("|")] for line in shown.split("\n") if line.startswith("|")]
    return [dict(zip(lines[0], line)) for line in lines[2:]]


def row_of(regime, stage, ms, **changes):
    """One that a GPU verified. What depends on time is left to `derived`."""
    row = {"regime": regime, "shape": {"B": 8, "H": 16, "Hkv": 16, "Nq": 2048, "Nk": 2048, "d": 128}, "dtype": "bf16",
           "causal": False, "features": {}, "stage": stage, "parent": stage - 1, "folder": f"{stage:02}_stage",
           "shows_here": False, "timing": {"median_ms": ms, "noise": 0.01} if ms else None, "verified": bool(ms),
           "why_not": "", "over_parent": None}
    s = Fields(row["shape"] | {key: changes.pop(key) for key in list(changes) if key in row["shape"]})
    row["flops"] = 4 * s.B * s.H * s.Nq * s.Nk * s.d // (2 if changes.get("causal") else 1)
    if s.Nq == 1:
        row["bytes"] = 4 * (s.B * s.H * s.Nq + s.B * s.Hkv * s.Nk) * s.d
    return fields(row | changes | {"shape": s})


def peer_of(row, name, ms, **changes):
    timing = {"median_ms": ms, "noise": 0.01} if ms else None
    return fields(dict(row, peer=name, timing=timing, **changes))


def derived(rows, own_peers=(), **changes):
    """A record of these rows, with rates and speedups."""
    record = {"kind": "timing", "version": VERSION, "date": "2026-11-21T07:52:00Z", "commit": "0123456789abcdef",
              "kernels": {}, "hardware": {"gpu": "Test GPU", "sm_count": 512}, "libraries": {},
              "ceilings": {"bf16_tflops": 800.0, "fp16_tflops": None, "copy_gbs": 4000.0}}
    return derive(Fields(fields(record), rows=list(rows), peers=list(own_peers), **changes))


def branched(other):
    """A ladder with a branch: 0 <- 1 <- 2 for decoding and 1 <- other for long queries. 2 is slower than its parent there.
    Two peers, one of them with a name to escape."""
    rows = []
    for regime, queries in (("train", 2048), ("decode", 1)):
        for shows_in, stage, parent, ms in (("train", 0, -1, 0.8), ("train", 1, 0, 0.4), ("decode", 2, 1, 0.5),
                                            ("train", other, 1, 0.1)):
            rows.append(row_of(regime, stage, ms, parent=parent, shows_here=shows_in == regime, B=1, Nq=queries))
    return derived(rows, [peer_of(rows[0], "<A & B>", 0.2), peer_of(rows[0], "unfused", 0.2)])


def sample(sources):
    """Three stages timed on one problem: 00 cannot run, 02 is wrong."""
    rows = [row_of("train", stage, ms, folder=sources.stage(stage).folder, shows_here=stage == 1)
            for stage, ms in ((0, None), (1, 4.0), (2, 2.0))]
    rows[0]["why_not"], rows[2]["verified"] = "it needs 12 GiB", False
    return derived(rows)
