"""The FlashAttention project's functions by the ladder's stages, for that project's own tests.

What no stage takes is refused and never ignored; conftest.py leaves its tests out.
"""

import functools

import flash_ladder
import torch
from flash_ladder import torch as ladder

#: What a test may ask for that no function here has, by the name of its parameter
MISSING = {"alibi": "ALiBi", "softcap": "softcap", "rotary_fraction": "rotary embedding",
           "has_leftpad": "a cache that begins with padding"}
#: and by a word in the test's name
MISSING_IN_NAME = {"generator": "arguments of their extension", "num_splits": "arguments of their extension",
                   "table_bounds": "block tables that are checked on the GPU"}


class NotTaken(NotImplementedError):
    """A test that should have been left out."""


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """(B, N, H, d) each. `deterministic` takes the rung of the backward pass that repeats exactly, where there is one.

    That project divides O by 1 - dropout_p, although it decides by random bytes as well, and keeps 212 of 256 elements at
    0.17. The ladder divides by the share that it keeps. Their quotient is the one number by which O, and through it each
    gradient, is translated here; the rounding that this adds to O and dO counts against the ladder.
    """
    if softcap or alibi_slopes is not None:
        raise NotTaken("softcap, or ALiBi")
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    seed = torch.randint(2**63 - 1, ()).item() if dropout_p else None  # by the generator that tests seed
    O, L = ladder.attention(q, k, v, causal=causal, window=window_size, dropout_p=dropout_p, seed=seed,
                            scale=softmax_scale,
                            backward_stage=_exact_stage(q.shape[-1]) if deterministic else None, return_lse=True)
    if dropout_p:
        O = O * ((1 - round(256 * dropout_p) / 256) / (1 - dropout_p))
    O = O.transpose(1, 2)
    if not return_attn_probs:
        return O
    return O, L, _signed_P(q, k, L, causal, softmax_scale, dropout_p, seed) if dropout_p else None


@torch.no_grad()
def _signed_P(q, k, L, causal, scale, dropout_p, seed):
    """What tests take dropout and the softmax from, as that project's kernel leaves them: (B, H, Nq, Nk), negative where an
    element is dropped, of the size exp(S - m). Tests turn it into P by their own m and log(l). No stage stores P; it is
    computed here from the L that the stage returned, so what tests find in it is that L and the package's dropout_mask().
    """
    Nq, Nk = q.shape[2], k.shape[2]
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    S = (q.float() @ k.float().mT) * (q.shape[3] ** -0.5 if scale is None else scale)
    if causal:
        S.masked_fill_(torch.ones(Nq, Nk, dtype=torch.bool, device=S.device).triu(Nk - Nq + 1), -torch.inf)
    m, log_l = S.amax(-1, keepdim=True), S.logsumexp(-1, keepdim=True)  # with m in it
    P = torch.exp(S - L[..., None]) * torch.exp(log_l - m)
    return torch.where(_kept(tuple(S.shape), dropout_p, seed, S.device), P, -P)


@functools.lru_cache(None)
def _kept(shape, dropout_p, seed, device):
    """The package's mask on the device. A few shapes take all tests, by one seed."""
    return torch.from_numpy(flash_ladder.dropout_mask(shape, dropout_p, seed)).to(device)


def flash_attn_kvpacked_func(q, kv, *arguments, **named):
    return flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], *arguments, **named)


def flash_attn_qkvpacked_func(qkv, *arguments, **named):
    return flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], *arguments, **named)


def _exact_stage(d):
    """The last rung of the backward pass that gives the same bits each time, runs on this GPU and has this head dimension
    or the next larger one, which others get by columns of zeros. None if no rung has one."""
    capability = 10 * torch.cuda.get_device_capability()[0] + torch.cuda.get_device_capability()[1]
    exact = [stage for stage in flash_ladder.stages() if stage.computes == "backward" and stage.repeats_exactly
             and stage.compute_capability in (0, capability)]
    dims = [n for stage in exact for n in stage.head_dims if n >= d]
    return [stage.number for stage in exact if min(dims) in stage.head_dims][-1] if dims else None


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                           softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                           deterministic=False, return_attn_probs=False, block_table=None):
    """(tokens, H, d) each."""
    if dropout_p or softcap or alibi_slopes is not None or deterministic or block_table is not None:
        raise NotTaken("dropout, softcap, ALiBi, an order of additions, or pages")
    O, L = ladder.attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), cu_seqlens_q=cu_seqlens_q,
                            cu_seqlens_k=cu_seqlens_k, causal=causal, window=window_size, scale=softmax_scale,
                            return_lse=True)
    O = O[0].transpose(0, 1)
    return (O, L[0], None) if return_attn_probs else O


def flash_attn_varlen_kvpacked_func(q, kv, *arguments, **named):
    return flash_attn_varlen_func(q, kv[:, 0], kv[:, 1], *arguments, **named)


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, *arguments, **named):
    return flash_attn_varlen_func(qkv[:, 0], qkv[:, 1], qkv[:, 2], cu_seqlens, cu_seqlens, max_seqlen, max_seqlen,
                                  *arguments, **named)


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
                            cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None,
                            causal=False, window_size=(-1, -1), softcap=0.0, rotary_interleaved=True,
                            alibi_slopes=None, num_splits=0, return_softmax_lse=False):
    """(B, N, H, d) each. New keys and values are put into the cache here: that is the caller's work in the ladder."""
    if softcap or any(x is not None for x in (rotary_cos, cache_batch_idx, cache_leftpad, alibi_slopes)) \
            or tuple(window_size) != (-1, -1):
        raise NotTaken("rotary embedding, other rows of a cache, padding, softcap, ALiBi, or a window")
    if k is not None:
        rows, at = k.shape[1], cache_seqlens[:, None] + torch.arange(k.shape[1], device=k.device)
        entries, slots = torch.arange(len(k), device=k.device)[:, None].expand(-1, rows), at
        if block_table is not None:
            entries, slots = block_table.gather(1, at // k_cache.shape[1]), at % k_cache.shape[1]
        k_cache[entries, slots], v_cache[entries, slots] = k, v
        cache_seqlens = cache_seqlens + rows
    O, L = ladder.decode(q, k_cache, v_cache, block_table=block_table, seqused=cache_seqlens, causal=causal,
                         scale=softmax_scale, return_lse=True)
    return (O, L) if return_softmax_lse else O
