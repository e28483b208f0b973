"""What harness/time/peers.py gives FlashAttention-4 for a mask: blocks, and a function of partial ones. Both are put together
here, on a CPU, in place of its kernels."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
PEERS = Path(__file__).resolve().parents[2] / "harness/time/peers.py"
PEERS_ON_A_CPU = """
import importlib.util, random, sys, types
from collections import namedtuple
import torch
from torch.overrides import TorchFunctionMode

torch.cuda.is_available = lambda: True
spec = importlib.util.spec_from_file_location("peers", sys.argv[1])
peers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peers)
peers.FOUND["FlashAttention-4"] = "flash-attn-4", "4"

class OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        return function(*args, **kwargs | ({"device": "cpu"} if kwargs.get("device") == "cuda" else {}))

Lists = namedtuple("Lists", "mask_block_cnt mask_block_idx full_block_cnt full_block_idx block_size")

def mask_of(lists, rows, keys, partial, of_keys=False):
    size = lists.block_size
    assert all(x.dtype == torch.int32 and x.is_contiguous() and x.shape[:2] == (1, 1) for x in lists[:4])
    blocks = [-(-rows // size[0]), -(-keys // size[1])]
    assert lists.mask_block_idx.shape[2:] == lists.full_block_idx.shape[2:] == tuple(blocks[::-1] if of_keys else blocks)
    mask = torch.zeros(blocks[0] * size[0], blocks[1] * size[1], dtype=torch.bool)
    for counts, indices, seen in (lists[:2] + (partial,), lists[2:4] + (torch.ones(rows, keys).bool(),)):
        for i, count in enumerate(counts[0, 0].tolist()):
            chosen = indices[0, 0, i, :count].tolist()
            assert chosen == sorted(chosen)  # the rest of the keys is in the block that comes first: the last
            for j in chosen:
                row, key = (j * size[0], i * size[1]) if of_keys else (i * size[0], j * size[1])
                block = seen[row:row + size[0], key:key + size[1]]
                assert not mask[row:row + size[0], key:key + size[1]].any(), "a block in two lists is computed twice"
                mask[row:row + block.shape[0], key:key + block.shape[1]] = block
                assert block.shape == size or counts is lists[0], "a full block has all rows and keys"
    return mask[:rows, :keys]

def flash_attn_func(q, k, v, causal, mask_mod, aux_tensors, block_sparse_tensors, block_sparse_tensors_bwd):
    rows, keys = q.shape[1], k.shape[1]
    assert not causal and all(x.dtype == torch.int32 for x in aux_tensors)
    row, key = torch.arange(rows, dtype=torch.int32)[None, :, None], torch.arange(keys, dtype=torch.int32)[None, None]
    partial = mask_mod(None, None, row, key, None, aux_tensors)[0]
    got.append(mask_of(block_sparse_tensors, rows, keys, partial))
    got.append(mask_of(block_sparse_tensors_bwd, rows, keys, partial, of_keys=True))
    sizes.append((block_sparse_tensors.block_size, block_sparse_tensors_bwd.block_size))
    return q, None

cute = types.SimpleNamespace(jit=lambda function: function)
sys.modules |= {
    "cutlass": types.SimpleNamespace(Int32=torch.int32), "cutlass.cute": cute,
    "flash_attn.cute": types.SimpleNamespace(flash_attn_func=flash_attn_func),
    "flash_attn.cute.block_sparsity": types.SimpleNamespace(BlockSparseTensorsTorch=Lists),
    "flash_attn.cute.utils": types.SimpleNamespace(scalar_to_ssa=lambda value, dtype: value[None])}

def run(rows, keys, d, causal, want, **mask):
    got.clear(), sizes.clear()
    Q, K = torch.zeros(1, 1, rows, d), torch.zeros(1, 1, keys, d)
    with OnCpu():
        peers.MAKERS["FlashAttention-4"](Q, K, K, causal, mask.pop("window", (None, None)), **mask)()
    assert all((mask == want).all() for mask in got) and len(got) == 2
    return sizes[0]

got, sizes = [], []
random.seed(1)
"""
COLUMNS = """
def columns(rows, keys, causal, four):
    bounds = [[random.randrange(rows + 1), rows, 0, 0] for _ in range(keys)]
    for k in range(keys):
        b = bounds[k] if k % 40 == 0 else bounds[k - 1]
        bounds[k] = [random.randrange(rows + 3) for _ in range(4)] if four and k % 40 == 0 else list(b)
        bounds[k][3] = bounds[k][3] if four or causal else max(0, min(k - 60, rows))
    row, key = torch.arange(rows)[:, None], torch.arange(keys)[None]
    LTS, LTE, UTS, UTE = torch.tensor(bounds).T
    hidden = (row >= LTS) & (row < LTE) | (row >= UTS) & (row < UTE)
    hidden |= key > row + keys - rows if causal else hidden
    return bounds, ~hidden
for rows, keys, causal, four, side in ((300, 300, False, False, 128), (200, 330, True, False, 64), (256, 384, False, True, 128)):
    bounds, want = columns(rows, keys, causal, four)
    assert 0 < want.sum() < want.numel()
    assert run(rows, keys, 128, causal, want, columns=bounds) == ((side, side), (side, 128))
for causal, window in ((True, (None, None)), (False, (9, 9))):
    try:
        run(256, 384, 128, causal, want, columns=bounds, window=window)
        assert False
    except ValueError as why:
        assert str(why) == "is timed with four column bounds, or with two and a causal mask"
"""
TILES = """
for rows, keys, d, kinds_of, side in ((256, 384, 128, [-1, -1, 0, 0, 0, -2], 128), (150, 333, 64, [-1, -1, 0, 0, 0, -2], 128),
                                      (512, 512, 128, [-1, -2, -2, 0, 0], 64),
                                      (512, 800, 128, [-1, -2, -2, -2, -2], 64), (512, 800, 64, [-1, 0, *[-2] * 6], 64)):
    Tr, Tc = -(-rows // 64), -(-keys // 64)
    kinds, bits, want = [], [], torch.zeros(Tr * 64, Tc * 64, dtype=torch.bool)
    for i in range(Tr):
        for j in range(Tc):
            edge = i * 64 + 64 > rows or j * 64 + 64 > keys
            kind = 0 if edge else random.choice(kinds_of)
            kinds.append(kind if kind else len(bits) // 64)
            words = [random.getrandbits(64) if kind == 0 else -kind % 2 * (2**64 - 1) for _ in range(64)]
            words = [word & 2**max(0, min(64, keys - j * 64)) - 1 if i * 64 + r < rows else 0 for r, word in enumerate(words)]
            bits += [[word % 2**32, word >> 32] for word in words] if kind == 0 else []
            want[i * 64:i * 64 + 64, j * 64:j * 64 + 64] = torch.tensor([[word >> b & 1 for b in range(64)] for word in words])
    assert (run(rows, keys, d, False, want[:rows, :keys], tiles={"kinds": kinds, "bits": bits})
            == ((side, side), (side if d > 64 else 128, 128)))
"""


@pytest.mark.parametrize("masks", [COLUMNS, TILES], ids=["columns", "tiles"])
def test_blocks_and_their_function_are_the_mask(masks):
    run = subprocess.run([sys.executable, "-c", PEERS_ON_A_CPU + masks, PEERS], capture_output=True, text=True,
                         env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    assert run.returncode == 0, run.stderr
