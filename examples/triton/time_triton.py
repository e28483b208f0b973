#!/usr/bin/env python3
"""Verifies attention.py by the judge that verifies the stages, and times it in turn with stages 04, 05, 06, 36 and 17.

    time_triton.py [--json FILE] [--no-judge]

Needs a GPU, PyTorch, Triton and the package flash_ladder ($LADDER_BUILD/python, if that names a build of it). The
clock is that of `lab time --peers`: a captured CUDA graph, a cold L2 cache; medians of rounds in a drawn order. Each
output is verified after it was timed. --json writes the record for docs/results; LADDER_COMMIT names its commit. Exit
code 1 if a result was wrong, 3 without a GPU.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "harness/time"), str(ROOT / "docs/publish"), str(Path(__file__).parent)]
sys.path[:0] = [os.environ["LADDER_BUILD"] + "/python"] if "LADDER_BUILD" in os.environ else []
sys.dont_write_bytecode = True

import torch  # noqa: E402

if not torch.cuda.is_available():
    print("time_triton.py: PyTorch finds no GPU here", file=sys.stderr)
    sys.exit(3)
output = os.dup(1)
import peers  # noqa: E402  # the one of harness/time, which sends standard output elsewhere
from records import VERSION  # noqa: E402
from sources import Sources  # noqa: E402
os.dup2(output, 1)
sys.path.remove(str(ROOT / "docs/publish"))  # whose modules have names that PyTorch's packages may want

import triton  # noqa: E402

import attention as ours  # noqa: E402
import flash_ladder  # noqa: E402
import flash_ladder.torch as ladder  # noqa: E402

LAB = Sources(ROOT / "lab")
# As attention() and decode() take them. By default they have the stages' tile, and no software pipelining.
QUERIES = {"Triton 04": dict(skip=False), "Triton 05": dict(), "Triton 05, num_stages=3": dict(num_stages=3),
           "Triton 05, 128 x 64": dict(Br=128, num_warps=8, num_stages=3)}
DECODING = {"Triton 06": dict(), "Triton 06, num_stages=3": dict(num_stages=3),
            "Triton 06, 16 x 64": dict(Br=16, num_stages=3)}
SMALL, TRAIN, LONG = [(2, 4, 4, N, N, 64) for N in (512, 1024, 2048, 4096)], (8, 16, 16, 2048, 2048, 128), \
    (1, 4, 4, 16384, 16384, 128)
# (regime, shape, whether there is a causal mask), by the regimes of `lab time`
PROBLEMS = [*(("causal-small", shape, True) for shape in SMALL), ("train", TRAIN, False), ("causal", TRAIN, True),
            ("causal", LONG, True), *(("decode", (1, 32, 8, 1, N, 128), False) for N in (8192, 65536))]


def maker_of_stage(stage, q, k, v, causal):
    return lambda: ladder.attention(q, k, v, causal=causal, stage=stage, return_lse=True)


def maker_of_ours(function, options, q, k, v, causal):
    return lambda: function(q, k, v, causal, **options)


def timing_of(ms):
    """As summarize() of harness/time/timing.cpp has it."""
    p20, median, p80 = (statistics.quantiles(ms, n=10, method="inclusive")[k] for k in (1, 4, 7))
    return {"median_ms": median, "p20_ms": p20, "p80_ms": p80, "repeats": len(ms),
            "noise": 1.253 * (p80 - p20) / 1.683 / len(ms)**0.5 / median}


def wants_more(ms):
    """The rule of harness/time/timing.h."""
    if len(ms) < 10:
        return len(ms) < 3 or sum(ms) < 1000
    return len(ms) < 200 and sum(ms) < 1000 and timing_of(ms)["noise"] > 0.005


def occupancy(kernel):
    """Registers, spills and shared memory of a compiled kernel, and the blocks that fit a multiprocessor with them."""
    gpu = torch.cuda.get_device_properties(0)
    warps, shared = kernel.metadata.num_warps, kernel.metadata.shared
    quarter, of_warp = gpu.regs_per_multiprocessor // 4, (kernel.n_regs + 7) // 8 * 8 * 32
    limits = {"registers": 4 * (quarter // of_warp) // warps,
              "shared memory": gpu.shared_memory_per_multiprocessor // ((shared + 1024 + 127) // 128 * 128),
              "threads": gpu.max_threads_per_multi_processor // (32 * warps)}
    blocks = min(*limits.values(), 32)
    return {"registers": kernel.n_regs, "spilled_words": kernel.n_spills, "shared_bytes": shared, "threads": 32 * warps,
            "blocks_per_sm": blocks, "warps_per_sm": blocks * warps,
            "limited_by": ", ".join(name for name, limit in limits.items() if limit == blocks)}


def time_problem(regime, shape, causal):
    """A row for each stage and each kernel of ours, on one problem in bf16."""
    decoding = shape[3] == 1
    contenders = {stage: partial(maker_of_stage, stage) for stage in (("6", "17") if decoding else ("4", "5", "36"))}
    function, variants = (ours.decode, DECODING) if decoding else (ours.attention, QUERIES)
    contenders |= {name: partial(maker_of_ours, function, options) for name, options in variants.items()}
    peers.MAKERS.update(contenders)
    runner = peers.Peers()
    names = dict(zip(("B", "H", "Hkv", "Nq", "Nk", "d"), shape))
    why_not = runner.prepare({**names, "dtype": "bf16", "causal": causal, "pass": "forward", "peers": list(contenders)})
    ms = {name: [] for name in contenders if not why_not[name]}
    while racing := [name for name in ms if wants_more(ms[name])]:
        for name in random.sample(racing, len(racing)):
            ms[name].append(runner.time(name))
    rows = []
    for name in contenders:
        row = {"regime": regime, "shape": shape, "causal": causal, "dtype": "bf16", "verified": False,
               "why_not": why_not[name], "timing": None, **LAB.counted_as(shape, causal, False)}
        row |= {"kernel": name} if name in variants else {"folder": flash_ladder.stages(name)[0].folder}
        if name in ms:
            ours.compiled.clear()
            with torch.no_grad():
                said = ladder.verdict(*runner.inputs, *runner.calls[name][1](), causal=causal, sampled_rows=8)
            row |= {"timing": timing_of(ms[name]), "verified": said["passed"], "max_error": said["max_error"],
                    "why_not": said["report"].partition("\n")[0],
                    "compiled": {kernel: occupancy(code) for kernel, code in ours.compiled.items()}}
        rows.append(row)
        print(f"{regime} {'x'.join(map(str, shape))} {row.get('kernel') or row['folder']}: "
              + (f"{row['timing']['median_ms']:.4f} ms, noise {row['timing']['noise']:.1%}, " if row["timing"] else "")
              + (row["why_not"] or "verified"), flush=True)
        for kernel, used in row.get("compiled", {}).items():
            print(f"    {kernel}: {used}", flush=True)
    runner.release()
    return rows


def judge():
    """The verdict on 04, 05 and 06 in the cases that the stages are verified on."""
    said = {}
    for name, function, options in (("Triton 04", ours.attention, QUERIES["Triton 04"]),
                                    ("Triton 05", ours.attention, {}), ("Triton 06", ours.decode, {})):
        result = ladder.judge(lambda q, k, v, causal, scale: function(q, k, v, causal, scale, **options),
                              like=int(name[-2:]), device="cuda")
        said[name] = {key: result[key] for key in ("cases", "passed", "failed", "max_error", "max_L_error")}
        print(name, said[name], *result["reports"], sep="\n    ", flush=True)
    return said


def driver():
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                               capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return asked.stdout.partition("\n")[0] or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="the record, to this file")
    parser.add_argument("--no-judge", action="store_true", help="verify what is timed, and no small cases")
    options = parser.parse_args()
    flash_ladder.prepare(["4", "5", "6", "17", "36"], "gpu")
    gpu = torch.cuda.get_device_properties(0)
    stages = flash_ladder.stages("4-6,17,36")
    record = {"kind": "triton", "version": VERSION, "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "commit": os.environ.get("LADDER_COMMIT", "unknown"),
              "hardware": {"gpu": gpu.name, "sm_count": gpu.multi_processor_count, "driver": driver(),
                           "device_arch": 10 * gpu.major + gpu.minor, "toolkit": torch.version.cuda},
              "libraries": {"PyTorch": torch.__version__, "Triton": triton.__version__},
              "kernels": {stage.folder: LAB.stage(stage.number).fingerprint for stage in stages},
              "judged": {} if options.no_judge else judge(), "rows": []}
    for problem in PROBLEMS:
        record["rows"] += time_problem(*problem)
        if options.json:
            options.json.write_text(json.dumps(record, indent=1) + "\n")  # what there is is worth keeping
    wrong = [row for row in record["rows"] if not row["verified"]]
    return 1 if wrong or any(said["failed"] for said in record["judged"].values()) else 0


if __name__ == "__main__":
    with torch.cuda.stream(torch.cuda.Stream()):  # since the default stream cannot be captured
        sys.exit(main())
