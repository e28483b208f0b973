"""One sequence on several processes: attention over torch.distributed, with gradients.

    torchrun --nproc-per-node 2 program.py

    from flash_ladder.distributed import divide, gather, ring_attention
    q, k, v = (divide(x, causal=True) for x in (q, k, v))  # this rank's part of (B, H, N, d)
    o = ring_attention(q, k, v, causal=True)
    whole = gather(o.detach(), causal=True)

Each rank holds a part of the sequence. In ring_attention() K and V travel around a ring of ranks while kernels run: stages
87 and 88 of the ladder, with their choreography in Python and one call of flash_ladder.torch in each step. In
all_to_all_attention() ranks exchange rows for heads, and each computes some heads of the whole sequence. Both run on gloo
with tensors in the CPU's memory, and on NCCL with a GPU for each process, on one host or on several.
"""

import math
from collections import Counter
from contextlib import contextmanager
from typing import Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import StageName, _arguments, stages
from .torch import (Integers, _autocast, _integers, _require_agreement, _require_tensors, attention,
                    attention_backward)

__all__ = ["all_to_all_attention", "divide", "gather", "ring_attention"]


@torch.compiler.disable
def ring_attention(q: Tensor, k: Tensor, v: Tensor, group: Optional[dist.ProcessGroup] = None, *, causal: bool = False,
                   scale: Optional[float] = None, stage: Optional[StageName] = None,
                   backward_stage: Optional[StageName] = None, return_lse: bool = False,
                   backend: str = "cpu") -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """attention() of a sequence that the ranks of `group` divide, with gradients by q, k and v. All ranks call it.

    q: (B, H, Nq, d); k, v: (B, Hkv, Nk, d): this rank's part of P parts of one size, fp16 or bf16, as divide() gives it;
        in an autocast region they are cast to its type first. Strides are as in attention(); K and V are copied.
    group: a process group with P ranks, by default all processes. The backend is gloo for tensors in the CPU's memory
        and NCCL for those on a GPU, where each process has called torch.cuda.set_device().
    causal: parts are in zigzag order: rank r holds chunks r and 2P - 1 - r of 2P chunks, which gives all ranks equal
        work. Nq = Nk. Otherwise rank r holds the r-th of P parts, and Nq may differ from Nk.
    scale, stage, backward_stage, backend: as in attention(), for each step's kernel. The backward stage computes D from O,
        as all but 40 do.
    Returns this rank's part of O (B, H, Nq, d), or of O and L (B, H, Nq), fp32. No gradient flows through L.

    What a step's kernel returns is rounded to 16 bits. Steps are merged in fp32 by their L, and sums of dK and dV travel
    in fp32. ValueError or TypeError: a part or a mask that no ring takes. The ranks' hosts compare their calls first, and
    at the end whether all went well: where calls differ, or one rank has an error of any kind, all ranks raise one.
    """
    ring, call, messages = _Ring(group), None, None
    with ring.keeping_its_error():
        causal, scale = _arguments.flag("causal", causal), _arguments.scale_of(scale)
        _require_tensors(Q=q, K=k, V=v)
        q, k, v = _autocast(q, k, v)
        _require_agreement(q, k, v)
        if causal and q.shape[2] != k.shape[2]:
            raise ValueError(f"Nq is {q.shape[2]} and Nk is {k.shape[2]}: under a causal mask a ring needs the same")
        if causal:
            _require_chunks(q.shape[2], ring.ranks)
        gradients = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
        if gradients and ring.ranks > 1:
            _require_D_from_O(backward_stage)
        call = (f"Q {tuple(q.shape)}, K {tuple(k.shape)}, {q.dtype}, {causal=}, {scale=}, {stage=}, {backward_stage=}, "
                f"{backend=}, {gradients=}")
        messages = _two_of(torch.stack((k.detach(), v.detach())))
    ring.agree(call)
    o, lse = _RingAttention.apply(q, k, v, messages, ring, causal, {"scale": scale, "backend": backend}, stage,
                                  backward_stage)
    return (o, lse) if return_lse else o


@torch.compiler.disable
def all_to_all_attention(q: Tensor, k: Tensor, v: Tensor, group: Optional[dist.ProcessGroup] = None, *,
                         causal: bool = False, window: Optional[Sequence[int]] = None,
                         cu_seqlens_q: Optional[Integers] = None, cu_seqlens_k: Optional[Integers] = None,
                         scale: Optional[float] = None, stage: Optional[StageName] = None,
                         backward_stage: Optional[StageName] = None, return_lse: bool = False,
                         backend: str = "cpu") -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """The same as ring_attention(), with two exchanges and one kernel (DeepSpeed-Ulysses). All ranks call it.

    An all-to-all turns a rank's rows of all heads into all rows of H / P heads, which the rank computes; another one turns
    O back. P must divide Hkv, so that each rank has whole groups of heads. A gradient takes the same two ways back. What
    travels is of 16 bits, and nothing is rounded more often than on one GPU.

    q, k, v, group: as in ring_attention(), and in the same order: zigzag under a causal mask. Nq may differ from Nk.
    causal, window, cu_seqlens_q, cu_seqlens_k, scale, stage, backward_stage, backend: as in attention(), of the whole
        sequence.
    Returns this rank's part of O (B, H, Nq, d), or of O and L (B, H, Nq), fp32. No gradient flows through L.

    ValueError or TypeError, on all ranks, as ring_attention() raises them.
    """
    ring, call = _Ring(group), None
    with ring.keeping_its_error():
        causal, window, scale = (_arguments.flag("causal", causal), _arguments.window_of(window),
                                 _arguments.scale_of(scale))
        documents = {name: _integers(name, x)
                     for name, x in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k))}
        _require_tensors(Q=q, K=k, V=v)
        q, k, v = _autocast(q, k, v)
        _require_agreement(q, k, v)
        if k.shape[1] % ring.ranks:
            raise ValueError(f"Hkv = {k.shape[1]} does not divide over {ring.ranks} ranks: each computes whole groups of "
                             "heads")
        if causal:
            _require_chunks(q.shape[2], ring.ranks)
            _require_chunks(k.shape[2], ring.ranks)
        gradients = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
        said = ", ".join(f"{name} {_brief(x)}" for name, x in documents.items())
        call = (f"Q {tuple(q.shape)}, K {tuple(k.shape)}, {q.dtype}, {causal=}, {window=}, {said}, {scale=}, "
                f"{stage=}, {backward_stage=}, {backend=}, {gradients=}, return_lse={bool(return_lse)}")
    ring.agree(call)
    options = dict(causal=causal, window=window, **documents, scale=scale, backend=backend)
    if ring.ranks == 1:
        return attention(q, k, v, stage=stage, backward_stage=backward_stage, return_lse=return_lse, **options)
    o, lse = _AllToAll.apply(q, k, v, ring, options, stage, backward_stage, return_lse)
    return (o, lse) if return_lse else o


def divide(x: Tensor, *, causal: bool, dim: int = 2, group: Optional[dist.ProcessGroup] = None) -> Tensor:
    """This rank's part of x, which all ranks hold whole, along axis `dim`; gradients flow to this part of x.

    causal: in zigzag order, chunks r and 2P - 1 - r of 2P in one tensor; otherwise the r-th of P parts, a view of x.
    The positions of a part, which embeddings need, are divide(torch.arange(N), causal=causal, dim=0).
    ValueError: the axis does not divide into so many parts.
    """
    _require_tensors(x=x)
    rank, ranks = _place(group)
    parts = 2 * ranks if _arguments.flag("causal", causal) else ranks
    if ranks == 1:
        return x
    if x.shape[dim] % parts:
        raise ValueError(f"{x.shape[dim]} elements of axis {dim} do not divide into {parts} parts"
                         + (f", two for each of {ranks} ranks" if causal else ""))
    part = _chunks(x, rank, ranks, causal, dim)
    return torch.cat(part, dim) if causal else part[0]


def gather(x: Tensor, *, causal: bool, dim: int = 2, group: Optional[dist.ProcessGroup] = None) -> Tensor:
    """The whole of what divide() divides, from the parts x of all ranks. All ranks call it, and each gets the whole.

    causal, dim, group: as in divide().
    ValueError: parts differ in their sizes, or x requires a gradient, which gather() does not have.
    """
    ring, call, parts = _Ring(group), None, None
    with ring.keeping_its_error():
        _require_tensors(x=x)
        zigzag = _arguments.flag("causal", causal) and ring.ranks > 1
        if torch.is_grad_enabled() and x.requires_grad:
            raise ValueError("gather has no gradients: call it under torch.no_grad()")
        if zigzag and x.shape[dim] % 2:
            raise ValueError(f"{x.shape[dim]} elements of axis {dim} do not divide into two chunks")
        call = f"{tuple(x.shape)}, {x.dtype}, {causal=}, {dim=}"
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(ring.ranks)]
    ring.agree(call)
    dist.all_gather(parts, x, ring.group)
    return _whole(parts, zigzag, dim)


class _RingAttention(torch.autograd.Function):
    """In step t a rank computes with the keys of rank - t. The next ones arrive meanwhile."""

    @staticmethod
    def forward(ctx, q, k, v, messages, ring, causal, options, stage, backward_stage):
        kv, arriving = messages  # each K and V in one
        for t in range(ring.ranks):
            rows, keys, diagonal = _square(t, ring.rank, causal, q.shape[2])
            with ring.exchange(*[(kv, arriving)] * (t + 1 < ring.ranks)), ring.keeping_its_error():
                part = attention(q[:, :, rows], *kv[:, :, :, keys], causal=diagonal, stage=stage, return_lse=True,
                                 **options)
                if t == 0:
                    o, lse = _sums(part[0], ring.ranks), part[1]
                else:
                    _merge(o[:, :, rows], lse[:, :, rows], *part)
            kv, arriving = arriving, kv
        with ring.keeping_its_error():
            o = o.to(q.dtype)
        ring.agree()
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.mark_non_differentiable(lse)
        ctx.ring, ctx.causal, ctx.options = ring, causal, {**options, "stage": backward_stage}
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, do, _):
        """By O and L of all keys, each step's dQ, dK and dV are summands of the whole ones. Sums of dK and dV follow
        their keys around the ring one step later; those for a rank's own keys do not travel."""
        (q, k, v, o, lse), ring = ctx.saved_tensors, ctx.ring
        kv = of_previous = sums = arriving_sums = None
        with ring.keeping_its_error():
            kv, of_previous = _two_of(torch.stack((k, v)))
            sums, arriving_sums = _two_of(torch.zeros_like(kv, dtype=torch.float32))
        ring.agree()
        for t in range(ring.ranks):
            rows, keys, diagonal = _square(t, ring.rank, ctx.causal, q.shape[2])
            sends_keys, sends_sums = t + 1 < ring.ranks, t > 1
            moving = [(kv, of_previous)] * sends_keys + [(sums, arriving_sums)] * sends_sums
            with ring.exchange(*moving), ring.keeping_its_error():
                dq_part, *dkv = attention_backward(q[:, :, rows], *kv[:, :, :, keys], o[:, :, rows], lse[:, :, rows],
                                                   do[:, :, rows], causal=diagonal, **ctx.options)
                if t == 0:
                    dq, own = _sums(dq_part, ring.ranks), torch.stack([x.float() for x in dkv])
                else:
                    dq[:, :, rows] += dq_part
            if sends_sums:
                sums, arriving_sums = arriving_sums, sums  # of this step's keys
            with ring.keeping_its_error():
                for x, part in zip(sums, dkv if t > 0 else ()):
                    x[:, :, keys] += part
            kv, of_previous = of_previous, kv
        if ring.ranks > 1:
            with ring.exchange((sums, arriving_sums)):
                pass
        with ring.keeping_its_error():
            dq, (dk, dv) = dq.to(q.dtype), (own + arriving_sums if ring.ranks > 1 else own).to(k.dtype)
        ring.agree()
        return dq, dk, dv, None, None, None, None, None, None


def _square(t, rank, causal, N):
    """What a rank computes in step t: its rows, those keys that they see, and whether there is a diagonal.

    Under a causal mask both are an early chunk and a late one. Those of the rank itself are in the order of their
    positions, so they are an ordinary causal problem. All of its rows see the early keys of an earlier rank, and its
    late rows all keys of a later one; no other row sees any.
    """
    everything, early, late = slice(None), slice(N // 2), slice(N // 2, None)
    if not causal or t == 0:
        return everything, everything, causal
    return (everything, early, False) if t <= rank else (late, everything, False)


def _sums(first, ranks):
    """Where results of several steps are added: in fp32, if there is anything between the first and the last of them."""
    return first.float() if ranks > 2 else first


def _merge(o, lse, part, part_lse):
    """O and L of two sets of keys, of O and L of each, in place. The products and their sum are in fp32."""
    both = torch.logaddexp(lse, part_lse)
    weight, part_weight = ((x - both).exp_().unsqueeze(-1) for x in (lse, part_lse))
    torch.addcmul(o * weight, part, part_weight, out=o)
    lse.copy_(both)


class _AllToAll(torch.autograd.Function):
    """An exchange, the kernel on all rows of some heads, and an exchange back."""

    @staticmethod
    def forward(ctx, q, k, v, ring, options, stage, backward_stage, return_lse):
        q, k, v = _to_heads(ring, options["causal"], q, k, v)
        o = lse = None
        with ring.keeping_its_error():
            o, lse = attention(q, k, v, stage=stage, return_lse=True, **options)
        ring.agree()
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.ring, ctx.options = ring, {**options, "stage": backward_stage}
        o, = _to_rows(ring, options["causal"], o)
        lse = _to_rows(ring, options["causal"], lse)[0] if return_lse else None
        if return_lse:
            ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, do, _):
        ring, causal, gradients = ctx.ring, ctx.options["causal"], None
        do, = _to_heads(ring, causal, do)
        with ring.keeping_its_error():
            gradients = attention_backward(*ctx.saved_tensors, do, **ctx.options)
        ring.agree()
        return *_to_rows(ring, causal, *gradients), None, None, None, None, None


def _to_heads(ring, causal, *tensors):
    """All rows of this rank's heads (B, heads / P, N, ...) of its rows of all heads (B, heads, N / P, ...)."""
    arrived = ring.all_to_all(*([[heads] for heads in x.chunk(ring.ranks, 1)] for x in tensors))
    return [_whole(parts, causal, 2) for parts in arrived]


def _to_rows(ring, causal, *tensors):
    """The inverse of _to_heads()"""
    arrived = ring.all_to_all(*([_chunks(x, rank, ring.ranks, causal, 2) for rank in range(ring.ranks)] for x in tensors))
    return [parts.transpose(0, 1).flatten(1, 2) for parts in arrived]


def _chunks(x, rank, ranks, zigzag, dim):
    """Those that a rank holds of x, in their order."""
    chunks = x.chunk(2 * ranks if zigzag else ranks, dim)
    return [chunks[rank], chunks[-1 - rank]] if zigzag else [chunks[rank]]


def _whole(parts, zigzag, dim):
    """What the ranks' parts are parts of."""
    if zigzag:
        early, late = zip(*(part.chunk(2, dim) for part in parts))
        parts = early + late[::-1]
    return torch.cat(tuple(parts), dim)


def _two_of(message):
    """A message, and where the previous rank's arrives, which then is the next message."""
    return message, torch.empty_like(message)


class _Ring:
    """This rank's messages: to the next rank, while those of the previous one arrive. An error of this rank's is kept until
    it is told to the others, who wait for its messages meanwhile."""

    def __init__(self, group):
        self.rank, self.ranks = _place(group)
        self.group = dist.group.WORLD if group is None else group
        self.following, self.previous = (dist.get_global_rank(self.group, (self.rank + step) % self.ranks)
                                         for step in (1, -1))
        self.error = None

    @contextmanager
    def keeping_its_error(self):
        """Keeps what the block raises for agree(). Of several errors the first says what is wrong: the others follow from
        it."""
        try:
            yield
        except BaseException as error:
            self.error = error if self.error is None else self.error

    @contextmanager
    def exchange(self, *messages):
        """Sends the first of each two tensors during the block, after which the second has arrived. On a GPU, messages follow
        what is queued in the current stream before, and what the block queues does not wait for them."""
        ways = [dist.P2POp(dist.isend, x, self.following, self.group) for x, _ in messages]
        ways += [dist.P2POp(dist.irecv, x, self.previous, self.group) for _, x in messages]
        works = dist.batch_isend_irecv(ways) if ways else []
        yield
        for work in works:
            work.wait()

    def all_to_all(self, *tensors):
        """Of each tensor sends chunks[r], joined along axis 2, to rank r: all of them in one message to each rank, of one
        size. Returns what has arrived of each tensor, (P, ...)."""
        leaving = arriving = None
        with self.keeping_its_error():
            shapes = []  # of what one rank is sent
            for chunks in tensors:
                B, heads, rows, *rest = chunks[0][0].shape
                shapes.append((B, heads, rows * len(chunks[0]), *rest))
            sizes = [math.prod(shape) for shape in shapes]
            leaving, arriving = _two_of(tensors[0][0][0].new_empty(self.ranks, sum(sizes)))
            for chunks, places, shape in zip(tensors, leaving.split(sizes, 1), shapes):
                for part, place in zip(chunks, places):
                    torch.cat(part, 2, out=place.view(shape))
        self.agree()
        dist.all_to_all_single(arriving, leaving, group=self.group)
        return [x.unflatten(1, shape) for x, shape in zip(arriving.split(sizes, 1), shapes)]

    def agree(self, call=None):
        """Raises an error on all ranks if one of them has an error, or if what describes their calls differs: otherwise some
        would wait for messages that never come, or end without an error. Ranks compare in the store by which they have
        met, which waits for no GPU."""
        error, self.error = self.error, None
        said = f"call {call}" if error is None else f"error {type(error).__name__}: {error}"
        every = [said]
        if self.ranks > 1:
            store, name = dist.distributed_c10d._get_default_store(), f"flash_ladder/{self.group.group_name}"
            number = _calls[name] = _calls[name] + 1
            store.set(f"{name}/{number}/{self.rank}", said)
            every = [store.get(f"{name}/{number}/{rank}").decode() for rank in range(self.ranks)]
            store.delete_key(f"{name}/{number - 1}/{self.rank}")  # all ranks have read it: they have come to this one
        if error is not None:
            raise error
        for rank, other in enumerate(every):
            if other.startswith("error "):
                kind, _, text = other.removeprefix("error ").partition(": ")
                if kind in ("TypeError", "ValueError"):
                    raise ValueError(f"rank {rank} refuses its call: {text}")
                raise RuntimeError(f"rank {rank} has an error: {kind}: {text}")
            if other != said:
                raise ValueError(f"rank {self.rank} has {call}, and rank {rank} has {other.removeprefix('call ')}: they "
                                 "must agree")


_calls = Counter()  # how many calls have been compared in a group of this name


def _place(group):
    """This rank, and how many there are."""
    rank = dist.get_rank(group)  # PyTorch's error says what to call where torch.distributed is not initialized
    if rank < 0:
        raise ValueError("this process is not in the group")
    return rank, dist.get_world_size(group)


def _require_D_from_O(stage):
    if stage is not None and stages(str(stage))[0].number == 40:
        raise ValueError("40_standard_gradient computes D from a step's keys alone; a ring needs a stage, such as 41, that "
                         "computes it from O")


def _require_chunks(rows, ranks):
    if ranks > 1 and rows % 2:
        raise ValueError(f"a part has {rows} rows: under a causal mask it is two chunks of one size")


def _brief(numbers):
    """As far as ranks can compare them without a wait for a GPU."""
    return numbers if numbers is None else f"{numbers.dtype} {'on a GPU' if numbers.is_cuda else numbers.tolist()}"
