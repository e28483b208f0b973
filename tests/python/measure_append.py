"""What it takes to put the new rows of a step into a cache, as a record for docs/results:

    measure_append.py FILE      writes JSON: microseconds of a step of decoding, by how it appends. On a GPU

Steps are captured in CUDA graphs, as many at once as a model has layers, so the host's time does not count. Each of them
appends one row with rotary embedding to a cache whose other keys are there already, and decodes.
"""

import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path

import torch
from measure import in_turns

import flash_ladder.flash_attn_interface as flash_attn

LAYERS = 8  # of a graph
H, HKV, D, PAGE = 32, 8, 128, 64


def rotated(x, cos, sin, positions):
    cos, sin = (table[positions].float()[:, :, None] for table in (cos, sin))
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)


def by_pytorch(q, k_cache, v_cache, k, v, cos, sin, cache_seqlens, block_table=None, **options):
    """As flash_attn_with_kvcache, but that PyTorch's operations append."""
    at = cache_seqlens[:, None] + torch.arange(k.shape[1], device=k.device)
    pages, slots = torch.arange(len(k), device=k.device)[:, None].expand_as(at), at
    if block_table is not None:
        pages, slots = block_table.gather(1, at // k_cache.shape[1]).long(), at % k_cache.shape[1]
    k_cache[pages, slots], v_cache[pages, slots] = rotated(k, cos, sin, at), v
    return flash_attn.flash_attn_with_kvcache(rotated(q, cos, sin, at), k_cache, v_cache, block_table=block_table,
                                              cache_seqlens=cache_seqlens + k.shape[1], **options)


def captured(step):
    """A call of LAYERS steps, in a CUDA graph, and what the last of them returns."""
    for _ in range(2):  # compiles, loads and allocates
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAYERS):
            result = step()
    return graph.replay, result


def step_us(replay, repeats=20):
    """Microseconds of one step, by the GPU's clock."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    replay()
    start.record()
    for _ in range(repeats):
        replay()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) * 1000 / repeats / LAYERS


def measured(B, N, in_pages):
    """Of B requests of N keys, the last of them new."""
    make = lambda *axes: torch.randn(*axes, D, device="cuda", dtype=torch.bfloat16)
    q, k, v = make(B, 1, H), make(B, 1, HKV), make(B, 1, HKV)
    axes = (B * N // PAGE, PAGE, HKV) if in_pages else (B, N, HKV)
    caches = make(*axes), make(*axes)
    table = torch.randperm(axes[0], device="cuda", dtype=torch.int32).view(B, -1) if in_pages else None
    angles = torch.arange(N, device="cuda")[:, None] * 10000.0 ** (-torch.arange(D // 2, device="cuda") / (D // 2))
    cos, sin = angles.cos(), angles.sin()
    lengths, all_keys = (torch.full((B,), n, device="cuda", dtype=torch.int32) for n in (N - 1, N))
    turned = rotated(q, cos, sin, lengths[:, None].long())

    ways = {"one kernel": lambda: flash_attn.flash_attn_with_kvcache(q, *caches, k, v, cos, sin, lengths, block_table=table,
                                                                     rotary_interleaved=False),
            "PyTorch": lambda: by_pytorch(q, *caches, k, v, cos, sin, lengths, table),
            "none": lambda: flash_attn.flash_attn_with_kvcache(turned, *caches, cache_seqlens=all_keys, block_table=table)}
    graphs, results = {}, {}
    for name, step in ways.items():
        graphs[name], results[name] = captured(step)
    last = (slice(None), N - 1) if table is None else (table[:, -1].long(), PAGE - 1)
    for name in ways:
        if name != "none":
            caches[0][last] = caches[1][last] = torch.nan  # what it appends is there, and nothing else
        graphs[name]()
    apart = max((results[name] - results["none"]).abs().amax().item() for name in ways)
    assert all(result.isfinite().all() for result in results.values()) and apart < 1e-2, f"results are {apart} apart"
    row = {"B": B, "N": N, "page": PAGE if in_pages else 0, "us": in_turns(graphs, 20, step_us), "apart": apart}
    print(json.dumps(row))
    return row


def main():
    with torch.no_grad():
        rows = [measured(B, N, in_pages) for B, N in ((16, 8192), (1, 65536)) for in_pages in (False, True)]
    record = {"kind": "append", "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "commit": os.environ.get("LADDER_COMMIT", "unknown"), "gpu": torch.cuda.get_device_name(),
              "torch": torch.__version__, "H": H, "Hkv": HKV, "d": D, "layers": LAYERS, "rows": rows}
    Path(sys.argv[1]).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
