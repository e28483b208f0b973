"""FlashAttention-3's forward pass, as the package fa3-fwd has it: 1 ms, 0.625 ms in 8 bits, and 0.75 ms for a cache; twice
as long with a softcap. No fp16."""

import torch

BUILD = "This flash attention build does not support "


def of_bshd(query, key, value, milliseconds, softcap):
    assert key.shape == value.shape and query.shape[0] == key.shape[0] and query.shape[3] == key.shape[3]
    assert query.shape[1:3] == (24, 2) and key.shape[1] in (24, 40)
    if query.dtype == torch.float16:
        raise RuntimeError(BUILD + "FP16.")
    if query.dtype == torch.float8_e4m3fn:
        assert key.dtype == value.dtype == query.dtype
        milliseconds = 0.625
    if softcap == 30:
        milliseconds *= 2
    return torch.attention_of(query, milliseconds, no_gradients=BUILD + "backward.")


def flash_attn_func(q, k, v, softmax_scale=None, causal=False, softcap=0.0, num_splits=1):
    return of_bshd(q, k, v, 1.0, softcap)


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, cache_seqlens=None, page_table=None,
                            softmax_scale=None, causal=False, softcap=0.0, num_splits=0):
    if page_table is not None:
        raise RuntimeError(BUILD + "paged KV.")
    if cache_seqlens is not None:
        assert k_cache.shape == v_cache.shape == (3, 40, 1, 64) and cache_seqlens == [40, 20, 30]
        return torch.attention_of(q, 0.5)
    assert q.shape[1] < k_cache.shape[1] and not q.requires_grad
    return of_bshd(q, k_cache, v_cache, 0.75, softcap)
