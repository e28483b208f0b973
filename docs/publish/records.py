"""The recordings of docs/results: timings, profiles and others, as objects with the fields of their JSON."""

import json
import math
from pathlib import Path

from blocks import Failure
from markdown import short_size

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results"
WHAT = {"timing": "a timing measurement", "profile": "a profile", "verification": "a verification",
        "python": "of the Python package", "aarch64": "of the stages on aarch64",
        "peer-tests": "of another project's tests", "triton": "of the kernels in Triton", "ring": "of ring attention",
        "fp8-prefill": "of a prefill in 8 bits", "append": "of steps that append to a cache"}
# record_version and usual_fields of harness/time/record_json.h
VERSION = 2
SIZES = ("B", "H", "Hkv", "Nq", "Nk", "d")  # of a problem's shape, in the order of --shape
USUAL = {"causal": False, "timing": None, "why_not": ""}
USUAL_OF_STAGES = USUAL | {"max_error": None, "shows_here": False, "verified": False}


# Identical code differs by this much between two runs: of the pairs of recordings of one kernel on one problem nine in
# ten differ by less in its speed over its parent.
DRIFT = 0.02


class Fields(dict):
    """A JSON object whose fields are attributes too."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(f"there is no {name}")
        return self[name]


def read(path, kind=None):
    """A record, of this kind unless it is None."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"), object_hook=Fields)
    except (OSError, ValueError) as error:
        raise Failure(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    of_kind(kind, record, path)
    if isinstance(record, Fields) and record.get("kind") in ("timing", "profile", "triton"):
        if record.get("version") != VERSION:
            raise Failure(f"cannot read {path}: its form is that of another version; record it again with this one")
        try:
            derive(record)
        except (AttributeError, KeyError, TypeError) as error:
            raise Failure(f"cannot read {path}: it makes no sense: {error}") from error
    return record


def of_kind(kind, record, path):
    """The record, if it is of this kind or that is None."""
    if kind and (not isinstance(record, Fields) or record.get("kind") != kind):
        raise Failure(f"cannot read {path}: not {WHAT[kind]}")
    return record


def derive(record):
    """Fills in what follows from what was measured. A feature of a problem becomes a field of its row; what was timed has
    a rate, its share of the ceiling, and for the right answer of a stage a speedup over the right one of its parent."""
    ceilings, right = record.get("ceilings", {}), {}
    for row in [*record.rows, *record.get("peers", ())]:
        if isinstance(row.shape, (list, tuple)):
            row["shape"] = Fields(zip(SIZES, row.shape))
        row.update((USUAL if "peer" in row else USUAL_OF_STAGES) | row | row.setdefault("features", Fields()))
        if "flops" not in row:
            continue
        ms, in_bytes = ms_of(row), counts_bytes(row)
        ceiling = ceilings.get("copy_gbs" if in_bytes else f"{row.dtype}_tflops")
        row["unit"], row["rate"] = ms and ("GB/s" if in_bytes else "TFLOP/s"), ms and rate_at(row, ms)
        row["ceiling_share"] = row.rate / row.get("ranks", 1) / ceiling if ms and ceiling else None
        if "stage" in row and "peer" not in row:
            row["over_parent"] = None
            if right_ms(row):
                right.setdefault((row.stage, key_of(row)), row)
    for row in right.values():
        if before := right.get((row.parent, key_of(row))):
            row["over_parent"] = Fields(value=ms_of(before) / ms_of(row))
    return record


def machine_label(record):
    """Who made it, in one line: "NVIDIA H200, 2026-11-21, commit 0123456" """
    gpu = record.hardware.gpu if "hardware" in record else record.get("gpu") or record.device
    return f"{gpu}, {record.date[:10]}, commit {record.commit[:7]}"


def since(changed):
    """What marks numbers of stages whose kernels were changed after they were recorded."""
    return f"since then changed: {', '.join(f'{stage.number:02}' for stage in changed)}" if changed else ""


def label(record, changed=()):
    return "; ".join(filter(None, [f"Recorded on {machine_label(record)}", since(changed)]))


def libraries(results):
    return ", ".join(f"{name} {version}" for name, version in sorted(results.get("libraries", {}).items()))


def pass_of(row):
    return row.get("pass", "forward")


def mask_in_words(row):
    """" window=1023,0 columns=documents", and " ranks=2" of several; empty for none of them"""
    return "".join(f" {feature}={','.join(map(str, value)) if isinstance(value, list) else value}"
                   for feature, value in sorted(row.features.items()))


def is_plain(row):
    """Whether its mask is the causal one or none, on one GPU."""
    return not row.features


def key_of(row):
    """Equal for rows of the same problem in the same regime."""
    return row.regime, tuple(sorted(row.shape.items())), row.dtype, row.causal, pass_of(row), mask_in_words(row)


def long_name(row):
    shape = " ".join(f"{name}={row.shape[name]}" for name in SIZES)
    gradients = " backward" if pass_of(row) == "backward" else ""
    return f"{row.regime}: {shape} {row.dtype}{gradients}{' causal' if row.causal else ''}{mask_in_words(row)}"


def counts_bytes(row):
    """Whether the bytes bound the problem and not the products."""
    return "bytes" in row


def rate_at(row, ms):
    """GB/s of the least bytes that must move where they count, else TFLOP/s as the FlashAttention papers count them."""
    return row.bytes / ms * 1e-6 if counts_bytes(row) else row.flops / ms * 1e-9


def ms_of(row):
    """None if there is no row, or no time in it."""
    return row.timing.median_ms if row and row.timing else None


def right_ms(row):
    """The same of a stage's row; a wrong answer has no time."""
    return ms_of(row) if row and row.verified else None


def geometric_mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def ratio(a, b):
    return None if a is None or b is None else a / b


class Problem:
    """The rows of one problem."""

    def __init__(self, first):
        self.first, self.shape, self.rows, self.peers, self.left = first, first.shape, [], [], []
        seen = f"{short_size(sum(first.window) + 1)} of " if "window" in first else ""  # keys of a window
        columns = f"{first.columns.replace('_', ' ')} " if "columns" in first else ""
        tiles = f"{first.tiles.replace('_', ' ')} " if "tiles" in first else ""
        documents = f"{first.documents.count(',') + 1} in " if "documents" in first else ""
        lengths = f"{first.lengths.count(',') + 1} in " if "lengths" in first else ""
        pages = f"{first.pages}s of " if "pages" in first else ""
        pages += f"{short_size(first.prefix)} in " if "prefix" in first else ""
        ranks = f" on {first.ranks}" if "ranks" in first else ""
        self.short_name = (f"{first.regime} {columns}{tiles}{documents}{lengths}{pages}{seen}{short_size(first.shape.Nk)}"
                           f"{ranks}")  # what tells its problems apart

    @property
    def full_name(self):
        """ "d=64 N=2k B=8 H=32 causal": what tells the problems of a sweep apart"""
        s = self.shape
        rows = "" if s.Nq in (1, s.Nk) else f" Nq={short_size(s.Nq)}"
        groups = "" if s.H == s.Hkv else f" Hkv={s.Hkv}"
        mask = (" causal" if self.first.causal else "") + mask_in_words(self.first)
        return f"d={s.d} N={short_size(s.Nk)}{rows} B={s.B} H={s.H}{groups}{mask}"

    def row(self, stage):
        return next((row for row in self.rows if row.stage == stage), None)

    def peer(self, name):
        return next((row for row in self.peers if row.peer == name), None)

    def left_row(self, folder):
        """Of a stage that left the ladder, by the folder that it had."""
        return next((row for row in self.left if row.folder == folder), None)

    def over_peer(self, row, name):
        """How many times as fast as the peer the stage of a row is."""
        return ratio(ms_of(self.peer(name)), right_ms(row))


def by_problem(results):
    """In the order of the record."""
    problems = {}
    for row in results["rows"]:
        problems.setdefault(key_of(row), Problem(row)).rows.append(row)
    for peer in results.get("peers", []):
        if key_of(peer) in problems:
            problems[key_of(peer)].peers.append(peer)
    for row in results.get("left", []):
        if key_of(row) in problems:
            problems[key_of(row)].left.append(row)
    return list(problems.values())


def telling_problem(problems, regime):
    """The problem of a regime that pictures and headlines are about, the middle one of its sizes; None if it was not
    timed."""
    found = [problem for problem in problems if problem.first.regime == regime]
    return found[len(found) // 2] if found else None


def peer_names(results):
    return list(dict.fromkeys(peer.peer for peer in results.get("peers", [])))
