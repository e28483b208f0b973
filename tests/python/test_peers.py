"""What harness/time/peers.py gives FlashAttention-4 for a mask: blocks, and a function of partial ones; and for softcap, ALiBi
and sinks: options, and functions of scores. They are put together here, on a CPU, in place of its kernels. flex_attention
itself runs on the CPU, not compiled."""

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

available, torch.cuda.is_available = torch.cuda.is_available, lambda: True
spec = importlib.util.spec_from_file_location("peers", sys.argv[1])
peers = importlib.util.module_from_spec(spec)
sys.modules["peers"] = peers  # dynamo imports what it traces by its name
spec.loader.exec_module(peers)
torch.cuda.is_available = available
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

def create_softcap_scoremod_bwd(softcap):
    return lambda gradient, score, *_, **__: gradient * (1 - torch.tanh(score / softcap) ** 2)

cute = types.SimpleNamespace(jit=lambda function: function, math=types.SimpleNamespace(
    absf=torch.abs, tanh=lambda x, fastmath: torch.tanh(x)))
cutlass = types.SimpleNamespace(Int32=torch.int32, Float32=torch.float32, const_expr=lambda value: value)
sys.modules |= {
    "cutlass": cutlass, "cutlass.cute": cute,
    "flash_attn.cute": types.SimpleNamespace(flash_attn_func=flash_attn_func),
    "flash_attn.cute.block_sparsity": types.SimpleNamespace(BlockSparseTensorsTorch=Lists),
    "flash_attn.cute.utils": types.SimpleNamespace(
        scalar_to_ssa=lambda value, dtype: torch.as_tensor(value, dtype=dtype)[None],
        create_softcap_scoremod_bwd=create_softcap_scoremod_bwd)}

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
SCORES = """
torch.manual_seed(1)
compile = torch.compile  # which flex_attention calls, too
torch.compile = lambda function, **options: compile(function, **options) if "backend" in options else function
library = peers.importlib.import_module("torch.nn.attention.flex_attention")

def scores_of(Q, K):
    return Q @ K.repeat_interleave(Q.shape[1] // K.shape[1], 1).transpose(2, 3) / Q.shape[3] ** 0.5

def output_of(scores, V, causal, window, sinks=None):
    rows, keys = scores.shape[2:]
    after = torch.arange(keys) - torch.arange(rows)[:, None] - (keys - rows)
    left, right = window[0], 0 if causal else window[1]
    hidden = torch.zeros(rows, keys, dtype=torch.bool)
    hidden |= after < -left if left is not None else hidden
    hidden |= after > right if right is not None else hidden
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        column = torch.as_tensor(sinks, dtype=scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], 3)
    return scores.softmax(3)[..., :keys] @ V.repeat_interleave(scores.shape[1] // V.shape[1], 1)

def expected(Q, K, V, causal, window, softcap=None, alibi=None, sinks=None):
    (B, H, rows, _), keys = Q.shape, K.shape[2]
    scores = scores_of(Q, K)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    for b in range(B if alibi else 0):
        for h in range(H):
            for i in range(rows):
                distances = [abs(i + keys - rows - j) for j in range(keys)]
                slope = alibi[b * H + h] if len(alibi) == B * H else alibi[h]
                scores[b, h, i] -= slope * torch.tensor(distances)
    return output_of(scores, V, causal, window, sinks)

def flash_attn_func(q, k, v, causal, window_size=(None, None), softcap=0.0, score_mod=None, score_mod_bwd=None,
                    aux_tensors=None, learnable_sink=None, mask_mod=None, block_sparse_tensors=None,
                    block_sparse_tensors_bwd=None):
    assert learnable_sink is None or learnable_sink.shape == (q.shape[2],) and learnable_sink.dtype == torch.float32
    assert not (softcap and score_mod) and (score_mod is None) == (score_mod_bwd is None)
    scores = scores_of(q.transpose(1, 2), k.transpose(1, 2))
    B, H, rows, keys = scores.shape
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    at = {"q_idx": torch.arange(rows, dtype=torch.int32)[:, None], "kv_idx": torch.arange(keys, dtype=torch.int32)[None],
          "seqlen_info": types.SimpleNamespace(seqlen_q=rows, seqlen_k=keys), "aux_tensors": aux_tensors}
    for b in range(B if score_mod else 0):
        for h in range(H):
            before = scores[b, h].detach().requires_grad_()
            heads = torch.tensor([b]), torch.tensor([h])
            changed = score_mod(before, *heads, **at)
            gradient = torch.randn_like(changed)
            wanted, = torch.autograd.grad(changed, before, gradient)
            assert torch.allclose(score_mod_bwd(gradient, before, *heads, **at), wanted, atol=1e-5)
            scores[b, h] = changed.detach()
    if mask_mod:
        seen = mask_mod(None, None, at["q_idx"][None], at["kv_idx"][None], None, aux_tensors)[0]
        scores = scores.masked_fill(~seen, -torch.inf)
    return output_of(scores, v.transpose(1, 2), causal, window_size, learnable_sink).transpose(1, 2), None

sys.modules["flash_attn.cute"].flash_attn_func = flash_attn_func
SLOPES, OF_ENTRIES, SINKS = [0.5, 0.0, 1.0, 0.25], [0.5, 0.0, 1.0, 0.25, 0.125, 0.75, 0.0, 2.0], [-3.0, 0.5, 2.0, 40.0]
CASES = [({"softcap": 1.5}, True, (None, None)), ({"alibi": SLOPES}, True, (None, None)), ({"alibi": SLOPES}, False, (9, 4)),
         ({"alibi": OF_ENTRIES}, False, (None, None)), ({"sinks": SINKS}, True, (None, None)),
         ({"sinks": SINKS, "softcap": 0.5}, True, (7, None)),
         ({"softcap": 1.5, "alibi": OF_ENTRIES, "sinks": SINKS}, True, (None, None))]

def check(name, features, causal, window, gradients=False):
    B, H, Hkv, rows, keys, d = 2, 4, 2, 19, 29, 16
    inputs = [torch.randn(B, heads, n, d, requires_grad=gradients) for heads, n in ((H, rows), (Hkv, keys), (Hkv, keys))]
    with OnCpu():
        call = peers.MAKERS[name](*inputs, causal, window, **features)
    got = [call() if name == "flex" else call().transpose(1, 2)]
    want = [expected(*inputs, causal, window, **features)]
    if gradients:
        direction = torch.randn_like(want[0])
        got += torch.autograd.grad(got[0], inputs, direction)
        want += torch.autograd.grad(want[0], inputs, direction)
    plain = expected(*inputs, causal, window)
    assert not torch.allclose(want[0], plain, atol=1e-2), "the features change nothing"
    assert all(torch.allclose(a, b, atol=2e-5) for a, b in zip(got, want, strict=True)), (name, features)

def check_documents(name, in_heads):  # which have distances of their own
    inputs, features = [torch.randn(1, 2, n, 16) for n in (20, 30, 30)], {"alibi": [0.5, 0.25], "sinks": [1.0, 2.0]}
    with OnCpu():
        call = peers.MAKERS[name](*inputs, True, (None, None), documents=[0, 8, 20, 0, 10, 30], **features)
    parts = [[x[:, :, a:b] for x, a, b in zip(inputs, begins, ends)] for begins, ends in (
        ((0, 0, 0), (8, 10, 10)), ((8, 10, 10), (20, 30, 30)))]
    want = torch.cat([expected(*part, True, (None, None), **features) for part in parts], 2)
    assert torch.allclose(in_heads(call()), want, atol=1e-5)

"""
OF_FLASH = """
for features, causal, window in CASES:
    check("FlashAttention-4", features, causal, window)
inputs = [torch.randn(1, 2, n, 16) for n in (40, 60, 60)]  # a mask's tensors, and then the slopes
bounds = [[40, 40, 0, max(0, k - 25)] for k in range(60)]
with OnCpu():
    call = peers.MAKERS["FlashAttention-4"](*inputs, True, (None, None), columns=bounds, alibi=[0.5, 0.1], softcap=2.0)
seen = (torch.arange(40)[:, None] >= torch.tensor([b[3] for b in bounds])) & (torch.arange(60) <= torch.arange(40)[:, None] + 20)
slopes, distances = torch.tensor([0.5, 0.1]), (torch.arange(40)[:, None] + 20 - torch.arange(60)).abs()
scores = 2 * torch.tanh(scores_of(*inputs[:2]) / 2) - slopes[:, None, None] * distances
want = scores.masked_fill(~seen, -torch.inf).softmax(3) @ inputs[2]
assert torch.allclose(call().transpose(1, 2), want, atol=1e-5)
try:
    check("FlashAttention-4", {"alibi": SLOPES}, True, (None, None), gradients=True)
    assert False
except ValueError as why:
    assert "ALiBi's slopes would be wrong" in str(why)

def flash_attn_varlen_func(q, k, v, causal, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, aux_tensors, **options):
    assert aux_tensors[0].shape == (len(cu_seqlens_q) - 1, q.shape[1])
    O = [flash_attn_func(q[None, a:b], k[None, c:e], v[None, c:e], causal, aux_tensors=[aux_tensors[0][i:]], **options)[0]
         for i, (a, b, c, e) in enumerate(zip(cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_k, cu_seqlens_k[1:]))]
    return torch.cat(O, 1)[0], None
sys.modules["flash_attn.cute"].flash_attn_varlen_func = flash_attn_varlen_func
check_documents("FlashAttention-4", lambda output: output.transpose(0, 1)[None])
"""
OF_FLEX = """
library._validate_device = lambda *inputs: None  # which refuses gradients on a CPU: its unfused form has them
for features, causal, window in CASES:
    check("flex", features, causal, window, gradients=True)
if not hasattr(library, "AuxRequest"):  # as PyTorch 2.9 has it
    library.AuxRequest = namedtuple("AuxRequest", "lse")
    before = library.flex_attention
    def flex_attention(*inputs, return_aux=None, **options):
        if return_aux is None:
            return before(*inputs, **options)
        O, L = before(*inputs, **options, return_lse=return_aux.lse)
        return O, types.SimpleNamespace(lse=L)
    library.flex_attention = flex_attention
    check("flex", *CASES[-1], gradients=True)
check_documents("flex", lambda output: output)
"""


@pytest.mark.parametrize("script", [COLUMNS, TILES, SCORES + OF_FLASH, SCORES + OF_FLEX],
                         ids=["columns", "tiles", "scores", "flex-scores"])
def test_what_libraries_are_given_is_the_problem(script):
    run = subprocess.run([sys.executable, "-c", PEERS_ON_A_CPU + script, PEERS], capture_output=True, text=True,
                         env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    assert run.returncode == 0, run.stderr
