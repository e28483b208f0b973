"""Chooses of the FlashAttention project's tests those that a stage takes, and counts the others by reason.

    python choose.py PLAN [SAMPLE]      writes PLAN, which conftest.py runs: all of them, or SAMPLE, always the same ones
    python choose.py                    prints the counts alone, without a GPU as for one of compute capability 9.0
"""

import ast
import inspect
import itertools
import json
import random
import sys
from collections import Counter
from types import SimpleNamespace

import flash_attn
import torch
from flash_attn import at_once, features_of, is_decoding, stage_of


def cases(function):
    """The parameters of each of a test's cases, in the order of its marks."""
    axes = []
    for mark in getattr(function, "pytestmark", []):
        if mark.name == "parametrize":
            names = [name.strip() for name in mark.args[0].split(",")]
            axes.append([dict(zip(names, values if len(names) > 1 else (values,))) for values in mark.args[1]])
    for parts in itertools.product(*axes):
        yield {name: x for part in parts for name, x in part.items()}


def own_conditions(function):
    """Those under which a test skips itself, before it does anything else."""
    return [compile(ast.Expression(step.test), function.__name__, "eval")
            for step in ast.parse(inspect.getsource(function)).body[0].body
            if isinstance(step, ast.If) and ast.unparse(step.body[0]).startswith("pytest.skip(")]


def why_not(test, case):
    """(why no stage takes a case, empty if one does; what is asked by a call for each document or request, empty if nothing)"""
    for word, what in flash_attn.MISSING.items():
        if word in test:
            return what, ""
    d, alibi, window = case.get("d", 64), case.get("alibi"), case.get("local")
    features = features_of(window, case.get("dropout_p"), case.get("softcap"), alibi)
    if "kvcache" in test or case.get("paged_kv_block_size"):  # of which tests take no gradients
        if stage_of(d, features) is None:
            return f"{' and '.join(sorted(features))} at head dimension {d}", ""
        if "kvcache" not in test:
            return "", "packed sequences in pages"
        return "", "" if is_decoding(d, case["has_leftpad"]) else "a cache"
    exactly = case.get("deterministic", "deterministic" in test)
    if stage_of(d, features, True, exactly) is None:
        above = "" if exactly else f" at head dimension {d}"
        return f"gradients of more than a causal mask{' that repeat exactly' if exactly else above}", ""
    return "", "packed sequences" if "varlen" in test and not at_once(d, features, exactly) else ""


def choose(module, sample=None):
    """(cases by test, each by its number; what conftest.py says and records of all)"""
    kept, left_out, alone, total, skipped = [], Counter(), Counter(), 0, 0
    for test, function in vars(module).items():
        if not test.startswith("test_"):
            continue
        conditions = own_conditions(function)
        for i, case in enumerate(cases(function)):
            total += 1
            if any(eval(condition, vars(module), case) for condition in conditions):
                skipped += 1
                continue
            why, several = why_not(test, case)
            if why:
                left_out[why] += 1
                continue
            kept.append((test, i))
            if several:
                alone[several] += 1
    drawn = random.Random(11).sample(kept, min(len(kept), sample or len(kept)))
    plan = {}
    for test, i in drawn:
        plan.setdefault(test, []).append(i)
    return plan, {"collected": total, "skipped": skipped, "asked": len(kept),
                  "each_alone": dict(alone.most_common()), "left_out": dict(left_out.most_common())}


def lines(counts):
    """The counts as text."""
    yield f"{counts['collected']:9,} tests, of which"
    yield f"{counts['skipped']:9,} skip themselves, and"
    yield f"{counts['asked']:9,} are asked. Of these one call for each document or request is made for"
    for what, count in counts["each_alone"].items():
        yield f"{count:17,} {what}"
    yield f"{sum(counts['left_out'].values()):9,} are left out, since they need"
    for why, count in counts["left_out"].items():
        yield f"{count:17,} {why}"


if __name__ == "__main__":
    if not torch.cuda.is_available():
        torch.cuda.get_device_capability = lambda *_: (9, 0)
        torch.cuda.get_device_properties = lambda *_: SimpleNamespace(total_memory=2**37)
        sys.modules["flash_attn.layers.rotary"] = SimpleNamespace(apply_rotary_emb=None)  # it needs Triton
    import test_flash_attn
    plan, counts = choose(test_flash_attn, int(sys.argv[2]) if len(sys.argv) > 2 else None)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as out:
            json.dump({"cases": plan, "counts": counts}, out)
    else:
        print("\n".join(lines(counts)))
