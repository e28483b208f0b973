"""FlashAttention-4, whose package has no flash_attn/__init__.py: 1.25 ms, 1.375 ms if deterministic, twice as long with a
softcap. The compiler's errors have colours."""

import torch


def flash_attn_func(q, k, v, qv=None, gather_kv_indices=None, softmax_scale=None, causal=False, learnable_sink=None, softcap=0.0,
                    deterministic=False):
    """O and L."""
    assert k.shape == v.shape and q.shape[0] == k.shape[0] and q.shape[1:3] == (24, 2)
    if q.shape[3] != k.shape[3] or q.shape[3] > 256:
        raise RuntimeError("\n\x1b[91m\x1b[1mhead_dim=512 is not supported on SM90.\x1b[0m\nMore")
    if q.shape[3] % 8 != 0:
        raise NotImplementedError
    assert learnable_sink is None or len(learnable_sink) == 2
    return torch.attention_of(q, 2.5 if softcap == 30 else 1.375 if deterministic else 1.25), None


def flash_attn_varlen_func(q, k, v, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
                           seqused_k=None, page_table=None, softmax_scale=None, causal=False):
    """O and L of documents of 20, none and 4 rows, and of 20, 9 and none keys; or of 3 requests that have room for 40 keys,
    with pages in 1 ms."""
    if seqused_k is not None:
        assert q.shape == (3, 2, 2, 64) and not causal
        if page_table is None:
            assert k.shape == v.shape == (3, 40, 1, 64) and seqused_k == [40, 20, 30]
            return torch.attention_of(q, 0.75), None
        assert k.shape == v.shape == (15, 8, 1, 64) and seqused_k in ([40, 20, 30], [40, 40, 40])
        assert page_table[0] == [0, 1, 2, 3, 4] and page_table[2][2:] == [12, 13, 14]
        assert page_table[2][:2] in ([10, 11], [0, 1])
        return torch.attention_of(q, 1.0 if page_table[2][0] else 0.875), None
    assert k.shape == v.shape and q.shape[:2] == (24, 2) and k.shape[0] == 29 and causal
    assert (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k) == ([0, 20, 20, 24], [0, 20, 29, 29], 20, 20)
    return torch.attention_of(q, 0.75), None
