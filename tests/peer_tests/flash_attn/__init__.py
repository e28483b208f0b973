"""The FlashAttention project's functions by the ladder's stages, for that project's own tests.

What no stage takes is refused and never ignored; conftest.py leaves its tests out.
"""

import flash_ladder
from flash_ladder import torch as ladder

#: What a test may ask for that no function here has, by the name of its parameter
MISSING = {"dropout_p": "dropout", "alibi": "ALiBi", "softcap": "softcap",
           "paged_kv_block_size": "a paged cache"}
#: and by a word in the test's name
MISSING_IN_NAME = {"varlen": "packed sequences", "kvcache": "a cache", "generator": "arguments of their extension"}


class NotTaken(NotImplementedError):
    """A test that should have been left out."""


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """(B, N, H, d) each. `deterministic` takes the rung of the backward pass that repeats exactly, where there is one."""
    if dropout_p or softcap or alibi_slopes is not None:
        raise NotTaken("dropout, softcap, or ALiBi")
    O, L = ladder.attention(*(x.transpose(1, 2) for x in (q, k, v)), causal=causal, window=window_size,
                            scale=softmax_scale,
                            backward_stage=_exact_stage(q.shape[-1]) if deterministic else None, return_lse=True)
    O = O.transpose(1, 2)
    return (O, L, None) if return_attn_probs else O


def flash_attn_kvpacked_func(q, kv, *arguments, **named):
    return flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], *arguments, **named)


def flash_attn_qkvpacked_func(qkv, *arguments, **named):
    return flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], *arguments, **named)


def _exact_stage(d):
    """The last rung of the backward pass that gives the same bits each time, runs on this GPU and has this head dimension
    or the next larger one, which others get by columns of zeros. None if no rung has one."""
    import torch
    capability = 10 * torch.cuda.get_device_capability()[0] + torch.cuda.get_device_capability()[1]
    exact = [stage for stage in flash_ladder.stages() if stage.computes == "backward" and stage.repeats_exactly
             and stage.number < 90 and stage.compute_capability in (0, capability)]
    dims = [n for stage in exact for n in stage.head_dims if n >= d]
    return [stage.number for stage in exact if min(dims) in stage.head_dims][-1] if dims else None


def _not_taken(*_, **__):
    raise NotTaken("packed sequences, or a cache")


flash_attn_varlen_func = flash_attn_varlen_kvpacked_func = flash_attn_varlen_qkvpacked_func = _not_taken
flash_attn_with_kvcache = _not_taken
