"""A ring and an all-to-all over heads beside one GPU and PyTorch's context_parallel, causal, 32 query heads over 8 of 128, bf16:

    NCCL_NVLS_ENABLE=0 torchrun --nproc-per-node 2 measure_ring.py [--json FILE] [--lengths 16384,65536,262144]

Each call is timed by events on all GPUs, which start together; its time is that of the slowest. Calls take turns in a
drawn order, and the table has medians in milliseconds. One GPU computes the whole sequence, each for itself. Results are
first compared with those of one GPU.

FILE is written after each length. Rows of other lengths that it has are kept, if they are of the same commit, GPUs and
PyTorch: several calls, each with a part of the lengths, make one record.
"""

import argparse
import json
import os
import random
import statistics
from datetime import datetime, timezone
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.attention import SDPBackend, sdpa_kernel

from flash_ladder.distributed import all_to_all_attention, divide, ring_attention
from flash_ladder.torch import attention

HEADS, KEY_HEADS, D = 32, 8, 128
PEERS = {"context_parallel, cuDNN": SDPBackend.CUDNN_ATTENTION,
         "context_parallel, FlashAttention-2": SDPBackend.FLASH_ATTENTION}


def inputs(N):
    """The same on all ranks."""
    random_numbers = torch.Generator("cuda").manual_seed(1)
    return [torch.randn(1, heads, N, D, device="cuda", generator=random_numbers).bfloat16()
            for heads in (HEADS, KEY_HEADS, KEY_HEADS, HEADS)]


def milliseconds(call):
    """Of the slowest GPU. While it sleeps the host queues the whole call, so no time of the host counts."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(40_000_000)
    dist.all_reduce(torch.zeros(1, device="cuda"))
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    slowest = torch.tensor(begin.elapsed_time(end), device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def passes(attend, q, k, v, do):
    """The two calls that are timed of an attention of these tensors."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]

    @torch.no_grad()
    def forward():
        return attend(q, k, v)

    def both():
        return torch.autograd.grad(attend(*leaves), leaves, do)

    return {"forward": forward, "forward and backward": both}


def difference(got, expected):
    return ((got - expected).float().norm() / expected.float().norm()).item()


def measure(N, repeats, mesh):
    """Rows of a table, each of one way to compute a sequence."""
    whole = inputs(N)
    q, k, v, do = (divide(x, causal=True) for x in whole)
    calls = {"one GPU": passes(lambda q, k, v: attention(q, k, v, causal=True), *whole),
             "ring": passes(lambda q, k, v: ring_attention(q, k, v, causal=True), q, k, v, do)}
    if KEY_HEADS % dist.get_world_size() == 0:
        calls["all-to-all"] = passes(lambda q, k, v: all_to_all_attention(q, k, v, causal=True), q, k, v, do)
    expected = [divide(x, causal=True) for x in (calls["one GPU"]["forward"](), *calls["one GPU"]["forward and backward"]())]
    names = ("O", "dQ", "dK", "dV")
    rows, failed = {"one GPU": {"name": "one GPU", "N": N, "ranks": 1}}, {}

    def judge(name, ways):
        got = [ways["forward"](), *ways["forward and backward"]()]
        rows[name] = {"name": name, "N": N, "ranks": dist.get_world_size(),
                      "difference": {x: difference(*pair) for x, pair in zip(names, zip(got, expected))}}

    for name in list(calls)[1:]:
        judge(name, calls[name])

    def peer(backend):
        def attend(q, k, v):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return attend

    def time_all():
        times = {(name, what): [] for name in calls for what in calls[name]}
        for _ in range(repeats):
            for name, what in random.sample(list(times), len(times)):  # the same order on all ranks
                times[name, what].append(milliseconds(calls[name][what]))
        for (name, what), some in times.items():
            rows[name][what] = statistics.median(some)

    try:
        from torch.distributed.tensor.experimental import context_parallel
    except ImportError as error:
        failed["context_parallel"] = str(error)
        time_all()
        return list(rows.values()), failed
    buffers = [x.clone() for x in whole]  # which it divides in place, in zigzag order
    with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 4, no_restore_buffers=set(buffers)):
        for name, backend in PEERS.items():
            ways = passes(peer(backend), *buffers)
            try:
                judge(name, ways)
                calls[name] = ways
            except (RuntimeError, NotImplementedError, AssertionError) as error:
                rows.pop(name, None)
                failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        time_all()
    return list(rows.values()), failed


def merged(old, new):
    """A record with the rows of both, by their lengths. ValueError if they are not of the same code and machine."""
    for name in ("kind", "commit", "gpu", "ranks", "torch", "heads", "d"):
        if old.get(name) != new[name]:
            raise ValueError(f"{name} is {old.get(name)} in the file and {new[name]} here: they must agree")
    measured = {row["N"] for row in new["rows"]}
    rows = [row for row in old["rows"] if row["N"] not in measured] + new["rows"]
    return {**new, "rows": sorted(rows, key=lambda row: row["N"]), "failed": {**old["failed"], **new["failed"]}}


def write(result, file):
    """Whole or not at all: a run may be cut off at any time."""
    half = file.with_name(f"{file.name}.part")
    half.write_text(json.dumps(result, indent=1) + "\n")
    half.replace(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table to this file, too, or add to it")
    parser.add_argument("--lengths", default="16384,65536,262144", help="tokens of the whole sequences [%(default)s]")
    parser.add_argument("--repeats", type=int, default=11, help="of each call; 5 from 200,000 tokens on [%(default)s]")
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    os.environ.setdefault("TORCH_NCCL_HIGH_PRIORITY", "1")  # messages begin before a kernel fills the GPU
    dist.init_process_group("nccl")
    ranks, first = dist.get_world_size(), dist.get_rank() == 0
    mesh = init_device_mesh("cuda", (ranks,))
    random.seed(1)
    result = {"kind": "ring", "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "commit": os.environ.get("LADDER_COMMIT", "unknown"), "gpu": torch.cuda.get_device_name(), "ranks": ranks,
              "torch": torch.__version__, "heads": [HEADS, KEY_HEADS], "d": D, "rows": [], "failed": {}}
    try:
        before = json.loads(options.json.read_text()) if options.json and options.json.exists() else None
        if before:
            merged(before, result)
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # on all ranks, before anything is measured
        parser.error(f"{options.json}: {error}")
    for N in map(int, options.lengths.split(",")):
        rows, failed = measure(N, options.repeats if N < 200_000 else min(5, options.repeats), mesh)
        result["rows"] += rows
        result["failed"].update(failed)
        alone = next(row for row in rows if row["name"] == "one GPU")
        if not first:
            continue
        print(f"N = {N:,}, {ranks} x {result['gpu']}")
        for row in rows:
            times = "".join(f"  {what} {row[what]:9.3f} ms ({alone[what] / row[what]:.2f}x)"
                            for what in ("forward", "forward and backward"))
            apart = max(row.get("difference", {"": 0}).values())
            print(f"  {row['name']:36}{times}  largest difference {apart:.1e}")
        for name, why in failed.items():
            print(f"  {name}: {why}")
        if options.json:
            write(merged(before, result) if before else result, options.json)  # what has been measured is worth keeping
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
