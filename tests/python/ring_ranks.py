"""What each rank of test_distributed.py does, started by torchrun: attention of divided sequences beside that of the whole.

All ranks take part in groups of 1, 2, 3 ... of them. A check that fails on any rank fails the whole run.
"""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
import torch.distributed as dist
from conftest import gradients_of, reference, reference_gradients, relative

import flash_ladder
from flash_ladder import distributed
from flash_ladder.distributed import all_to_all_attention, divide, gather, ring_attention
from flash_ladder.torch import attention

GPU = torch.cuda.is_available() and torch.cuda.device_count() > 1
DEVICE = "cuda" if GPU else "cpu"
STAGES = {} if GPU else {"stage": 5, "backward_stage": "recompute"}
BOUND = {torch.float16: 1e-3, torch.bfloat16: 8e-3}


def whole(dtype, rows, keys, heads=(4, 2)):
    """The same Q, K, V and dO on all ranks."""
    random = torch.Generator().manual_seed(1)
    return [torch.randn(2, h, n, 64, generator=random).to(DEVICE, dtype)
            for h, n in ((heads[0], rows), (heads[1], keys), (heads[1], keys), (heads[0], rows))]


def array(x):
    return x.detach().float().cpu().numpy()


def divided(attend, tensors, causal, group, **options):
    """O, L, dQ, dK and dV of the whole sequence, from all ranks' parts."""
    q, k, v, do = (divide(x, causal=causal, group=group).detach() for x in tensors)
    for x in (q, k, v):
        x.requires_grad_()
    o, lse = attend(q, k, v, group, causal=causal, return_lse=True, **{**STAGES, **options})
    assert o.shape == q.shape and o.dtype == q.dtype and lse.dtype == torch.float32
    gradients = torch.autograd.grad(o, (q, k, v), do)
    return [gather(x.detach(), causal=causal, group=group) for x in (o, lse, *gradients)]


def matches(dtype, rows, keys, causal, group, heads=(4, 2), attend=ring_attention):
    tensors = whole(dtype, rows, keys, heads)
    got = divided(attend, tensors, causal, group)
    q, k, v, do = map(array, tensors)
    O, L = reference(q, k, v, causal)
    assert relative(array(got[0]), O) < BOUND[dtype] and abs(array(got[1]) - L).max() < 1e-4
    for x, exact in zip(got[2:], reference_gradients(q, k, v, do, causal)):
        assert relative(array(x), exact) < 2 * BOUND[dtype]
    if dist.get_world_size(group) < 3:
        return
    again = divided(attend, tensors, causal, group)
    assert all(torch.equal(x, y) for x, y in zip(got[:2] if GPU else got, again))  # default gradients vary in the last bits


def is_the_sequence(group):
    """divide() and gather() are inverse, and zigzag order is what stage 87 says."""
    P, rank = dist.get_world_size(group), dist.get_rank(group)
    positions = torch.arange(4 * P, device=DEVICE)
    zigzag, plain = (divide(positions, causal=causal, dim=0, group=group) for causal in (True, False))
    assert plain.tolist() == list(range(4 * rank, 4 * rank + 4))
    late = 2 * (2 * P - 1 - rank)
    assert P == 1 or zigzag.tolist() == [2 * rank, 2 * rank + 1, late, late + 1]
    x = torch.randn(3, 4 * P, 2, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(1))
    for causal in (True, False):
        assert torch.equal(gather(divide(x, causal=causal, dim=1, group=group), causal=causal, dim=1, group=group), x)


def refuses(group):
    """What differs between ranks ends with an error on all of them, and what no ring takes is named."""
    rank = dist.get_rank(group)
    q, k, v, _ = (divide(x, causal=True, group=group) for x in whole(torch.float16, 64, 64))
    cut = [x[:, :, :16 + 16 * rank] for x in (q, k, v)]
    with pytest.raises(ValueError, match=rf"rank {rank} has Q \(2, 4, {16 + 16 * rank}, 64\).*, and rank {1 - rank} has "
                                         rf"Q \(2, 4, {32 - 16 * rank}, 64\), .*: they must agree"):
        ring_attention(*cut, group, causal=True, **STAGES)
    with pytest.raises(ValueError, match="scale=.*they must agree"):
        ring_attention(q, k, v, group, scale=0.1 + rank, **STAGES)
    with pytest.raises(TypeError if rank else ValueError,
                       match="K is float32; expected float16 or bfloat16" if rank else "rank 1 refuses its call"):
        ring_attention(q, k.float() if rank else k, v, group, **STAGES)
    with pytest.raises(ValueError, match=f"{gradients_of()} computes D from a step's keys alone"):
        ring_attention(q.detach().requires_grad_(), k, v, group, stage=5, backward_stage=gradients_of())
    for (x, y, z), options, error, text in (
            ((q, k, v), {"causal": "no"}, TypeError, "causal is 'no'; expected True or False"),
            ((q[0], k, v), {}, ValueError, r"Q is \(4, 32, 64\), of rank 3; expected \(B, H, N, d\)"),
            ((q, k.bfloat16(), v), {}, ValueError, "Q is torch.float16 on .* and K torch.bfloat16 on .*: they must agree"),
            ((q, k[:, :1], v), {}, ValueError, r"K is \(2, 1, 32, 64\) and V is \(2, 2, 32, 64\): they must agree"),
            ((q, k[:, :, 1:], v[:, :, 1:]), {"causal": True}, ValueError, "Nq is 32 and Nk is 31: under a causal mask"),
            ([x[:, :, :31] for x in (q, k, v)], {"causal": True}, ValueError, "a part has 31 rows: under a causal mask"),
            ((q[:, :3], k, v), {}, ValueError, "H = 3 is not a multiple of Hkv = 2"),
            ((q, k, array(v)), {}, TypeError, "V is numpy.ndarray; expected torch.Tensor")):
        with pytest.raises(error, match=text):
            ring_attention(x, y, z, group, **options, **STAGES)
    with pytest.raises(ValueError, match="66 elements of axis 2 do not divide into 4 parts, two for each of 2 ranks"):
        divide(torch.zeros(1, 1, 66, 64), causal=True, group=group)
    with pytest.raises(ValueError, match="gather has no gradients: call it under torch.no_grad()"):
        gather(q.float().requires_grad_(), causal=True, group=group)
    with pytest.raises(ValueError, match="they must agree"):
        gather(q[:, :, :2 + 2 * rank], causal=True, group=group)


@contextmanager
def failing(name, error, step):
    """During the block, that call of flash_ladder.distributed's function raises the error; 0 is the first."""
    whole, steps = getattr(distributed, name), iter(range(10**6))

    def fails(*tensors, **options):
        if next(steps) == step:
            raise error
        return whole(*tensors, **options)

    setattr(distributed, name, fails)
    try:
        yield
    finally:
        setattr(distributed, name, whole)


def ends_together(group):
    """Whatever goes wrong on one rank, all ranks raise an error, and the next call is as ever."""
    rank, P = dist.get_rank(group), dist.get_world_size(group)
    q, k, v = (divide(x, causal=True, group=group) for x in whole(torch.float16, 24 * P, 24 * P, (2 * P, P))[:3])
    q.requires_grad_()
    for attend in ring_attention, all_to_all_attention:
        expected = attend(q, k, v, group, causal=True, **STAGES)
        for option, wrong in ("stage", 999), ("backward_stage", 43), ("backend", "checked"):
            with pytest.raises(ValueError, match=f"{option}=.*they must agree"):
                attend(q, k, v, group, causal=True, **{**STAGES, **({option: wrong} if rank == 1 else {})})
        with pytest.raises(ValueError, match="there is no stage '999'"):
            attend(q, k, v, group, stage=999)
        for error in torch.OutOfMemoryError("no memory"), flash_ladder.CheckFailed("a race"), ZeroDivisionError("0"):
            steps = range(P if attend is ring_attention else 1)
            for name, step in [(name, step) for name in ("attention", "attention_backward") for step in steps]:
                kind, said = (type(error), str(error)) if rank == 1 else (RuntimeError, f"rank 1 has an error: "
                                                                         f"{type(error).__name__}: {error}")
                with failing(name, error, step if rank == 1 else -1), pytest.raises(kind, match=said):
                    o = attend(q, k, v, group, causal=True, **STAGES)
                    assert name == "attention_backward"
                    o.sum().backward()
        assert torch.equal(attend(q, k, v, group, causal=True, **STAGES), expected)
    unaligned = torch.cat([q, q], -1)[..., 1:65].detach()
    with pytest.raises(ValueError, match=("" if rank == 1 else "rank 1 refuses its call: ") + "Q: it must begin at"):
        ring_attention(unaligned if rank == 1 else q.detach(), k, v, group, **STAGES)


def has_masks(group):
    """An all-to-all takes a window and documents of the whole sequence. On the CPU back-end O is that of one rank, bit for
    bit; on a GPU the stage that is fast for all heads may be another one than for a part of them."""
    P = dist.get_world_size(group)
    q, k, v = (x[:1] for x in whole(torch.float16, 40 * P, 40 * P, (2 * P, P))[:3])
    stages = (None, None) if GPU else (60, 61)
    for stage, causal, options in ((stages[0], True, {"window": (17, -1)}), (stages[0], False, {"window": (30, 9)}),
                                   (stages[1], True, {"cu_seqlens_q": [0, 31, 31, 40 * P]})):
        o, L = attention(q, k, v, causal=causal, stage=stage, return_lse=True, **options)
        parts = all_to_all_attention(*(divide(x, causal=causal, group=group) for x in (q, k, v)), group, causal=causal,
                                     stage=stage, return_lse=True, **options)
        for part, x in zip(parts, (o, L)):
            got = gather(part, causal=causal, group=group)
            assert relative(array(got), array(x)) < BOUND[q.dtype] if GPU else torch.equal(got, x)


def refuses_heads(group):
    """What an all-to-all refuses besides what a ring does, on all ranks."""
    rank = dist.get_rank(group)
    q, k, v, _ = (divide(x, causal=True, group=group) for x in whole(torch.float16, 64, 64))
    for (x, y, z), options, error, text in (
            ((q, k[:, :1], v[:, :1]), {}, ValueError, "Hkv = 1 does not divide over 2 ranks: each computes whole groups"),
            ((q[:, :3], k, v), {}, ValueError, "H = 3 is not a multiple of Hkv = 2"),
            ((q, k[:, :, 1:], v[:, :, 1:]), {"causal": True}, ValueError, "a part has 31 rows: under a causal mask"),
            ((q, k, v), {"window": 3}, ValueError, r"window is 3; expected \(left, right\)"),
            ((q, k, v), {"window": (3 + rank, 0)}, ValueError, "window=.*they must agree"),
            ((q, k, v), {"return_lse": bool(rank)}, ValueError, "return_lse=.*they must agree"),
            ((q, k, v), {"cu_seqlens_q": [0, 10 + rank, 64]}, ValueError, "cu_seqlens_q torch.int32 .*they must agree"),
            ((q, k.float() if rank else k, v), {}, TypeError if rank else ValueError, "float32|rank 1 refuses its call")):
        with pytest.raises(error, match=text):
            all_to_all_attention(x, y, z, group, **options, **STAGES)


def refuses_strangers(group):
    with pytest.raises(ValueError, match="this process is not in the group"):
        ring_attention(*whole(torch.float16, 64, 64)[:3], group)


def main():
    dist.init_process_group("nccl" if GPU else "gloo")
    if GPU:
        torch.cuda.set_device(dist.get_node_local_rank())
    rank, ranks = dist.get_rank(), dist.get_world_size()
    groups = {P: None if P == ranks else dist.new_group(list(range(P))) for P in range(1, ranks + 1)}
    for P, group in groups.items():
        if rank >= P:
            if P == 2:
                refuses_strangers(group)
            continue
        is_the_sequence(group)
        matches(torch.float16, 24 * P, 24 * P, True, group)
        matches(torch.bfloat16, 20 * P, 40 * P, False, group)
        matches(torch.float16, 24 * P, 32 * P, True, group, (2 * P, P), all_to_all_attention)
        matches(torch.bfloat16, 15 * P, 20 * P, False, group, (2 * P, P), all_to_all_attention)
        has_masks(group)
        if 1 < P < 4:
            ends_together(group)
        if P == 2:
            refuses(group)
            refuses_heads(group)
            matches(torch.float16, 300, 300, True, group, (2, 2))  # a chunk is more than one tile
    dist.barrier()
    if rank == 0:
        print(f"groups of {', '.join(map(str, groups))} ranks on {DEVICE}: ok")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
