"""The recordings of docs/results: timings, profiles and others, as objects with the fields of their JSON."""

import json
import math
import re
from pathlib import Path

from blocks import Failure
from markdown import short_size

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results"
WHAT = {"timing": "a timing measurement", "profile": "a profile", "verification": "a verification",
        "python": "of the Python package", "aarch64": "of the stages on aarch64",
        "peer-tests": "of another project's tests", "triton": "of the kernels in Triton", "ring": "of ring attention",
        "fp8-prefill": "of a prefill in 8 bits"}
# That a problem may have, in this order
FEATURES = ("window", "columns", "documents", "lengths", "pages", "prefix", "tiles", "dropout", "ranks")


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
    if kind and (not isinstance(record, Fields) or record.get("kind") != kind):
        raise Failure(f"cannot read {path}: not {WHAT[kind]}")
    return record


def fingerprint(source):
    """kernel_fingerprint() of harness/time/results.cpp, of its kernel_text(): of its code, and not of its comments."""
    code = re.sub(r"//[^\n]*", "", source[:source.rindex("LADDER_STAGE(")])
    value = 0xcbf29ce484222325  # FNV-1a
    for c in re.sub(r"[ \t\n\v\f\r]", "", code).encode():
        value = (value ^ c) * 0x100000001b3 % 2**64
    return f"{value:016x}"


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
    return "".join(f" {feature}={','.join(map(str, row.window)) if feature == 'window' else row[feature]}"
                   for feature in FEATURES if feature in row)


def is_plain(row):
    """Whether its mask is the causal one or none, on one GPU."""
    return not any(feature in row for feature in FEATURES)


def key_of(row):
    """Equal for rows of the same problem in the same regime."""
    return row.regime, tuple(sorted(row.shape.items())), row.dtype, row.causal, pass_of(row), mask_in_words(row)


def long_name(row):
    shape = " ".join(f"{name}={row.shape[name]}" for name in ("B", "H", "Hkv", "Nq", "Nk", "d"))
    gradients = " backward" if pass_of(row) == "backward" else ""
    return f"{row.regime}: {shape} {row.dtype}{gradients}{' causal' if row.causal else ''}{mask_in_words(row)}"


def counts_bytes(row):
    """Whether the bytes bound the problem and not the products: see harness/problem/shape.h."""
    s = row.shape
    return s.Nq == 1 or (s.Nq * s.H <= 64 * s.Hkv and 16 * s.Nq <= s.Nk)


def flops(row):
    """As the FlashAttention papers count them: see harness/problem/shape.h."""
    if {"columns", "documents", "lengths", "tiles"} & row.keys():  # whose bounds it does not hold, and whose lengths are a text
        return row.rate * 1e9 * ms_of(row)
    s = row.shape
    square = min(s.Nq, s.Nk)  # of scores that the mask halves, bottom-right
    scores = square * s.Nk - square * square / 2 if row.causal else s.Nq * s.Nk
    if "window" in row:
        left, right = row.window
        right = 0 if row.causal else right
        positions = range(s.Nk - s.Nq, s.Nk)
        scores = sum(max(0, min(s.Nk, s.Nk if right < 0 else position + right + 1) - max(0, 0 if left < 0 else position - left))
                     for position in positions)
    forward = 4.0 * s.B * s.H * scores * s.d
    return forward if pass_of(row) == "forward" else 2.5 * forward


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
        self.first, self.shape, self.rows, self.peers = first, first.shape, [], []
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

    def over_peer(self, row, name):
        """How many times as fast as the peer the stage of a row is."""
        peer = self.peer(name)
        found = peer and row and peer.stage_speedups.get(row.folder)
        return found.value if found else None


def by_problem(results):
    """In the order of the record."""
    problems = {}
    for row in results["rows"]:
        problems.setdefault(key_of(row), Problem(row)).rows.append(row)
    for peer in results.get("peers", []):
        if key_of(peer) in problems:
            problems[key_of(peer)].peers.append(peer)
    return list(problems.values())


def part_of(number):
    """The first number of a stage's part: tens are parts, and from 80 on fives are."""
    return number // 10 * 10 if number < 80 else number // 5 * 5


def telling_problem(problems, regime):
    """The problem of a regime that pictures and headlines are about, the middle one of its sizes; None if it was not
    timed."""
    found = [problem for problem in problems if problem.first.regime == regime]
    return found[len(found) // 2] if found else None


def peer_names(results):
    return list(dict.fromkeys(peer.peer for peer in results.get("peers", [])))
