"""FlashInfer: a plan, and a call of 1 ms for each request with its own rows, or of 0.125 ms for all rows together."""

import torch


class BatchPrefillWithPagedKVCacheWrapper:
    def __init__(self, float_workspace_buffer, kv_layout="NHD", backend="auto"):
        assert kv_layout == "NHD" and backend == "fa2"

    def plan(self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
             head_dim_qk, page_size, causal=False, q_data_type="float16"):
        assert (num_qo_heads, num_kv_heads, head_dim_qk, q_data_type) == (2, 1, 64, torch.bfloat16)
        self.page_size = page_size
        self.plan = qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, causal

    def run(self, q, paged_kv_cache, return_lse=False):
        K, V = paged_kv_cache
        assert q.shape == (6, 2, 64) and K.shape == V.shape and K.shape[1:] == (self.page_size, 1, 64)
        if self.plan[0] == [0, 6]:
            assert self.plan[1:] == ([0, 2], [0, 1], [8], False) and return_lse
            return torch.attention_of(q, 0.125), None
        known = {(16, False): ([0, 3, 6, 9], [0, 1, 2, 3, 4, 5, 6, 7, 8], [16, 16, 16]),
                 (8, False): ([0, 5, 8, 12], [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13], [8, 4, 6]),
                 (8, True): ([0, 3, 4, 6], [2, 3, 4, 7, 12, 13], [8, 4, 6])}
        assert self.plan == ([0, 2, 4, 6], *known[self.page_size, return_lse], False)
        output = torch.attention_of(q, 1.0)
        return (output, None) if return_lse else output


def merge_state_in_place(v, s, v_other, s_other):
    torch.spend(0.25)  # on what a graph keeps
