"""Keeps of the FlashAttention project's tests those that a stage takes, counts the others by reason, and writes the
record that tests/peer_tests.sh --json asks for."""

import functools
import json
import os
import random
import time
from collections import Counter
from datetime import datetime, timezone

import flash_attn
import torch
from flash_ladder import torch as ladder

left_out, outcomes, began = Counter(), Counter(), time.monotonic()
collected = 0


@functools.lru_cache(None)
def has_gradients(d, window=None, packed=False, dropout_p=0.0):
    """Whether the package has them for this head dimension, in a window or not, packed or not, with dropout or without:
    it is asked."""
    q, k, v = (torch.zeros(1, 1, 1, d, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
    try:
        ladder.attention(q, k, v, window=window, cu_seqlens_q=[0, 1] if packed else None, dropout_p=dropout_p,
                         seed=1 if dropout_p else None).sum().backward()
    except ValueError:
        return False
    return True


@functools.lru_cache(None)
def decodes(d):
    """Whether a cache can have this head dimension."""
    try:
        ladder.decode(*(torch.zeros(1, 1, 1, d, device="cuda", dtype=torch.float16) for _ in range(3)))
    except ValueError:
        return False
    return True


def why_not(item):
    """Why no stage takes a test; empty if one does."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    test = item.name.partition("[")[0]
    for word, what in flash_attn.MISSING_IN_NAME.items():
        if word in test:
            return what
    for name, what in flash_attn.MISSING.items():
        if parameters.get(name):
            return what
    d, window = parameters.get("d", 64), (0, 0) if parameters.get("local") else None
    packed = "varlen" in test
    if "kvcache" in test:
        return "a window in a cache" if window else "" if decodes(d) else f"a cache of head dimension {d}"
    if packed and parameters.get("paged_kv_block_size"):
        return "packed sequences in pages"
    dropout_p = parameters.get("dropout_p", 0.0)
    features = [name for name, asked in (("packed sequences", packed), ("windows", window), ("dropout", dropout_p)) if asked]
    special = " and ".join(features)
    if len(features) > 1 and not has_gradients(64, window, packed, dropout_p):
        return special
    if special and parameters.get("deterministic", "deterministic" in test):
        return f"gradients of {special} that repeat exactly"
    if has_gradients(d, window, packed, dropout_p):
        return ""
    return f"gradients of {special} at head dimension {d}" if has_gradients(d) else f"head dimension {d}"


def pytest_collection_modifyitems(items):
    global collected
    collected = len(items)
    kept = []
    for item in items:
        if why := why_not(item):
            left_out[why] += 1
        else:
            kept.append(item)
    random.Random(11).shuffle(kept)
    items[:] = kept[:int(os.environ.get("PEER_TESTS_SAMPLE") or len(kept))]
    left_out["not drawn"] += len(kept) - len(items)


def pytest_runtest_logreport(report):
    if report.failed or report.skipped or report.when == "call":
        outcomes[report.outcome] += 1


def pytest_terminal_summary(terminalreporter):
    write = terminalreporter.write_line
    write(f"{collected} tests collected: {outcomes['passed']} passed, {outcomes['failed']} failed, "
          f"{outcomes['skipped']} skipped by their own conditions")
    for why, count in left_out.most_common():
        if count:
            write(f"left out: {count:7} for {why}")


def pytest_sessionfinish():
    if not (file := os.environ.get("PEER_TESTS_JSON")):
        return
    record = {"kind": "peer-tests", "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "commit": os.environ["LADDER_COMMIT"], "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
              "project": "FlashAttention", "project_commit": os.environ["PEER_COMMIT"], "collected": collected,
              "passed": outcomes["passed"], "failed": outcomes["failed"], "skipped": outcomes["skipped"],
              "left_out": {why: count for why, count in left_out.most_common() if count},
              "seconds": round(time.monotonic() - began)}
    with open(file, "w") as out:
        json.dump(record, out, indent=1)
        out.write("\n")
