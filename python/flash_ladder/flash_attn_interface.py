"""The FlashAttention project's functions by the ladder's stages, by their names, positions, layouts and defaults:

    import flash_ladder.flash_attn_interface as flash_attn

Tensors are (B, N, H, d), or of packed sequences (tokens, H, d). What no stage takes is refused by name (NotTaken) and never
ignored, but for what changes no result: num_splits and max_seqlen. Where no stage takes all of a call at once, as padding at
the beginning of a cache, there is a call for each document or request. docs/python.md says what differs.
"""

import functools

import torch

import flash_ladder
from flash_ladder import torch as ladder

__all__ = ["flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache", "NotTaken"]

E4M3 = torch.float8_e4m3fn
BACKEND = "gpu" if torch.cuda.is_available() else "cpu"
HEAD_DIMS = {d for stage in flash_ladder.stages() for d in stage.head_dims}
#: Features of a problem, each by an example for 8 rows and keys
FEATURES = {"packed sequences": {"cu_seqlens_q": [0, 8]}, "windows": {"window": (2, 2)},
            "dropout": {"dropout_p": 0.5, "seed": 1}, "softcap": {"softcap": 50.0}, "ALiBi": {"alibi_slopes": "geometric"}}


class NotTaken(NotImplementedError):
    """What is asked for, no stage takes."""


@functools.lru_cache(None)
def stage_of(d, features, backward=False, exactly=False):
    """The stage that computes attention with all of these features, or its gradients, `exactly` the same bits each time.
    None if there is none."""
    options = {name: x for feature in features for name, x in FEATURES[feature].items()}
    if "ALiBi" in features and "packed sequences" in features:
        return None  # tests give each document slopes of its own; a call with documents takes one for each head
    try:
        return flash_ladder._core.default_stage(not backward, (1, 1, 1, 8, 8, d), " ".join(
            flash_ladder._arguments.options(False, options.pop("window", None), **options)), BACKEND, exactly)
    except ValueError:
        return None


def features_of(window=False, dropout=False, softcap=False, alibi=False):
    asked = {"windows": window, "dropout": dropout, "softcap": softcap, "ALiBi": alibi}
    return frozenset(name for name, is_asked in asked.items() if is_asked)


def at_once(d, features, exactly):
    """Whether one call takes packed sequences with these features, and a stage computes the gradients."""
    features |= {"packed sequences"}
    return stage_of(d, features) is not None and stage_of(d, features, True, exactly) is not None


def _attention(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
               return_attn_probs, **documents):
    """O (B, H, N, d), L and, where it is asked for, the signed P of (B, H, N, d) each.

    That project divides O by 1 - dropout_p, although it decides by random bytes as well, and keeps 212 of 256 elements at
    0.17. The ladder divides by the share that it keeps. Their quotient is the one number by which O, and through it each
    gradient, is translated here; the rounding that this adds to O and dO counts against the ladder.
    """
    if dropout_p and softcap:
        raise NotTaken("softcap with dropout, whose P is another")
    if q.shape[2] == 0 or k.shape[2] == 0:  # no stage takes an empty tensor: O is 0, with gradients of 0
        P = q.new_zeros((*q.shape[:3], k.shape[2]), dtype=torch.float32) if dropout_p and return_attn_probs else None
        return (q.masked_fill(torch.ones_like(q, dtype=torch.bool), 0),
                q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32), P)
    window = flash_ladder._arguments.window_of(window_size)
    features = features_of(window != (-1, -1), dropout_p, softcap, alibi_slopes is not None)
    if documents:
        features |= {"packed sequences"}
    backward_stage = None
    if deterministic and (backward_stage := stage_of(q.shape[-1], features, True, True)) is None:
        raise NotTaken("gradients that repeat exactly")
    seed = torch.randint(2**63 - 1, ()).item() if dropout_p else None  # by the generator that tests seed
    O, L = ladder.attention(q, k, v, causal=causal, window=window, dropout_p=dropout_p, seed=seed, softcap=softcap,
                            alibi_slopes=alibi_slopes, scale=softmax_scale, backward_stage=backward_stage,
                            return_lse=True, **documents)
    if not dropout_p:
        return O, L, None
    O = O * ((1 - round(256 * dropout_p) / 256) / (1 - dropout_p))
    if not return_attn_probs:
        return O, L, None
    return O, L, _signed_P(q, k, L, causal, window, alibi_slopes, softmax_scale, dropout_p, seed)


@torch.no_grad()
def _signed_P(q, k, L, causal, window, alibi_slopes, scale, dropout_p, seed):
    """What tests take dropout and the softmax from, as that project's kernel leaves them: (B, H, Nq, Nk), negative where an
    element is dropped, of the size exp(S - m). Tests turn it into P by their own m and log(l). No stage stores P; it is
    computed here from the L that the stage returned, so what tests find in it is that L and the package's dropout_mask().
    """
    Nq, Nk = q.shape[2], k.shape[2]
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    S = (q.float() @ k.float().mT) * (q.shape[3] ** -0.5 if scale is None else scale)
    distance = torch.arange(Nk, device=S.device) - torch.arange(Nk - Nq, Nk, device=S.device)[:, None]
    if alibi_slopes is not None:
        S -= alibi_slopes[..., None, None] * distance.abs()
    left, right = (Nq + Nk if side < 0 else side for side in window)
    S.masked_fill_((distance > (0 if causal else right)) | (distance < -left), -torch.inf)
    m, log_l = S.amax(-1, keepdim=True), S.logsumexp(-1, keepdim=True)  # with m in it
    P = torch.exp(S - L[..., None]) * torch.exp(log_l - m)
    return torch.where(_kept(tuple(S.shape), dropout_p, seed, S.device), P, -P)


@functools.lru_cache(2)
def _kept(shape, dropout_p, seed, device):
    """The package's mask on the device: a test that repeats its call asks for the same one each time."""
    return torch.from_numpy(flash_ladder.dropout_mask(shape, dropout_p, seed)).to(device)


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """(B, N, H, d) each."""
    O, L, P = _attention(*(x.transpose(1, 2) for x in (q, k, v)), dropout_p, softmax_scale, causal, window_size, softcap,
                         alibi_slopes, deterministic, return_attn_probs)
    return (O.transpose(1, 2), L, P) if return_attn_probs else O.transpose(1, 2)


def flash_attn_kvpacked_func(q, kv, *arguments, **named):
    return flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], *arguments, **named)


def flash_attn_qkvpacked_func(qkv, *arguments, **named):
    return flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], *arguments, **named)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                           softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                           deterministic=False, return_attn_probs=False, block_table=None):
    """(tokens, H, d) each, or K and V (pages, page size, H, d)."""
    window = flash_ladder._arguments.window_of(window_size)
    features = features_of(window != (-1, -1), dropout_p, softcap, alibi_slopes is not None)
    arguments = dropout_p, softmax_scale, causal, window, softcap
    if block_table is None and at_once(q.shape[-1], features, deterministic):
        O, L, _ = _attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), *arguments, alibi_slopes, deterministic, False,
                             cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
        O = O[0].transpose(0, 1)
        return (O, L[0], None) if return_attn_probs else O
    rows_begin = _begins("cu_seqlens_q", cu_seqlens_q, len(q))
    keys_begin = _begins("cu_seqlens_k", cu_seqlens_k, None if block_table is not None else len(k))
    documents = len(rows_begin) - 1
    _require_one_each(documents, cu_seqlens_k=keys_begin[1:], block_table=block_table)
    slopes = _slopes_of(documents, alibi_slopes)
    results = []
    for i, (q0, q1, k0, k1) in enumerate(zip(rows_begin, rows_begin[1:], keys_begin, keys_begin[1:])):
        rows = [x[k0:k1] if block_table is None else _in_pages(x, block_table[i], k1 - k0) for x in (k, v)]
        results.append(_attention(*(x.transpose(0, 1)[None] for x in (q[q0:q1], *rows)), *arguments, slopes[i],
                                  deterministic, return_attn_probs))
    O, L = torch.cat([O[0].transpose(0, 1) for O, _, _ in results]), torch.cat([L[0] for _, L, _ in results], 1)
    if not return_attn_probs:
        return O
    if not dropout_p:
        return O, L, None
    P = torch.zeros(len(results), q.shape[1], max_seqlen_q, max_seqlen_k, device=q.device)
    for whole, (_, _, part) in zip(P, results):
        whole[:, :part.shape[2], :part.shape[3]] = part[0]
    return O, L, P


def flash_attn_varlen_kvpacked_func(q, kv, *arguments, **named):
    return flash_attn_varlen_func(q, kv[:, 0], kv[:, 1], *arguments, **named)


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, *arguments, **named):
    return flash_attn_varlen_func(qkv[:, 0], qkv[:, 1], qkv[:, 2], cu_seqlens, cu_seqlens, max_seqlen, max_seqlen,
                                  *arguments, **named)


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
                            cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None,
                            causal=False, window_size=(-1, -1), softcap=0.0, rotary_interleaved=True,
                            alibi_slopes=None, num_splits=0, return_softmax_lse=False, *, q_descale=None,
                            k_descale=None, v_descale=None):
    """(B, N, H, d) each. New rows k and v are written to the cache first, and rotated before, if there are rotary_cos and
    rotary_sin, (positions, columns / 2). A stage of decoding takes lengths, pages, windows and scores. A cache that begins
    with padding, and one of other head dimensions, is asked of attention(), request by request, of keys that are copied.

    k_descale, v_descale: FlashAttention-3's, (B, Hkv): what a cache in float8_e4m3fn is multiplied by; 1 by default. New
    rows are divided by them and rounded to the cache. Queries stay in 16 bits."""
    if block_table is None and cache_batch_idx is None:
        k_cache, v_cache = k_cache[:len(q)], v_cache[:len(q)]  # a cache for more requests is taken
    scales = _descales(q, k_cache, v_cache, q_descale, k_descale, v_descale, windows=window_size != (-1, -1),
                       softcap=softcap, ALiBi=alibi_slopes is not None, padding=cache_leftpad is not None)
    lengths = _lengths(cache_seqlens, q)
    _require_rows(q, k_cache, k, v, rotary_cos, rotary_sin, lengths, cache_batch_idx, cache_leftpad, block_table)
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k_cache, v_cache, k, v) if x is not None):
        raise ValueError("flash_attn_with_kvcache has no gradients: call it under torch.no_grad()")
    window = flash_ladder._arguments.window_of(window_size)
    entries = None if cache_batch_idx is None else cache_batch_idx.long()
    if k is not None:
        # Without a mask all rows of q are at one position.
        q, lengths = ladder.append(k_cache, v_cache, k, v, lengths, q=q, rotary_cos=rotary_cos, rotary_sin=rotary_sin,
                                   rotary_interleaved=rotary_interleaved, causal=causal or window != (-1, -1),
                                   cache_batch_idx=cache_batch_idx, block_table=block_table, **scales)
    asked = dict(causal=causal, window=window, softcap=softcap, alibi_slopes=alibi_slopes, scale=softmax_scale)
    if is_decoding(q.shape[-1], cache_leftpad is not None):
        rows = [x if entries is None else _rows_of(x, entries) for x in (k_cache, v_cache)]
        O, L = ladder.decode(q, *rows, block_table=block_table, seqused=None if lengths is None else lengths.int(),
                             **asked, **scales, return_lse=True)
        return (O, L) if return_softmax_lse else O
    slopes, results = _slopes_of(len(q), alibi_slopes), []
    ends = [None] * len(q) if lengths is None else lengths.tolist()
    for i, end in enumerate(ends):
        begin = 0 if cache_leftpad is None else int(cache_leftpad[i])
        entry = i if entries is None else entries[i]
        keys = [(x[entry, :end] if block_table is None else _in_pages(x, block_table[i], end))[begin:]
                for x in (k_cache, v_cache)]
        results.append(_attention(*(x.transpose(0, 1)[None] for x in (q[i], *keys)), 0.0, softmax_scale, causal, window,
                                  softcap, slopes[i], False, False)[:2])
    O, L = (torch.cat(parts) for parts in zip(*((O.transpose(1, 2), L) for O, L in results)))
    return (O, L) if return_softmax_lse else O


def _descales(q, k_cache, v_cache, q_descale, k_descale, v_descale, **asked):
    """k_scale and v_scale of decode(), of a cache in e4m3; what no stage takes with it is refused."""
    if q.dtype == E4M3 or q_descale is not None:
        raise NotTaken("queries in float8_e4m3fn with a cache: q_descale")
    given = {"k": (k_cache, k_descale), "v": (v_cache, v_descale)}
    if all(cache.dtype != E4M3 and descale is None for cache, descale in given.values()):
        return {}
    for name, (cache, descale) in given.items():
        if cache.dtype != E4M3:
            other = f"{name}_descale is given" if descale is not None else "the other cache is float8_e4m3fn"
            raise TypeError(f"{name}_cache is {str(cache.dtype).removeprefix('torch.')} and {other}")
    for name, is_asked in asked.items():
        if is_asked:
            raise NotTaken(f"{name} with a cache in float8_e4m3fn")
    if q.shape[-1] not in HEAD_DIMS:
        raise NotTaken(f"a cache in float8_e4m3fn with a head dimension of {q.shape[-1]}")
    return {f"{name}_scale": 1.0 if descale is None else descale for name, (_, descale) in given.items()}


def _rows_of(cache, entries):
    """Of a cache in e4m3 as bytes: on a CPU PyTorch copies no rows of that type."""
    return cache.view(torch.uint8)[entries].view(E4M3) if cache.dtype == E4M3 else cache[entries]


def _require_rows(q, k_cache, k, v, cos, sin, lengths, entries, padding, block_table):
    """Whether the arguments of a cache fit together, before anything is written to it."""
    if entries is not None and block_table is not None:
        raise ValueError("cache_batch_idx and block_table: each says where the keys of a request are")
    if (k is None) != (v is None):
        raise ValueError("k and v are new rows of a cache, and one of them is None")
    if k is None and (cos is not None or sin is not None):
        raise ValueError("rotary_cos and rotary_sin are for new rows k and v, which are None: nothing would be rotated")
    if k is not None and lengths is None:
        raise ValueError("k and v are new rows of a cache, whose length is cache_seqlens; it is None")
    _require_one_each(len(q), cache_seqlens=lengths, cache_batch_idx=entries, cache_leftpad=padding, block_table=block_table)
    room = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
    if padding is not None:
        ends = room if lengths is None else lengths if k is None else lengths + k.shape[1]
        _require_range("cache_leftpad", padding, 0, ends, "the keys of each request")
    if k is not None:
        return  # the rest append() requires
    if entries is not None:
        _require_range("cache_batch_idx", entries, 0, len(k_cache) - 1, "the rows of the cache")
    if lengths is not None:
        _require_range("cache_seqlens", lengths, 0, room, f"a request has room for {room} keys")


def _require_one_each(requests, **arguments):
    for name, x in arguments.items():
        if x is not None and len(x) != requests:
            raise ValueError(f"{name} is of {len(x)} requests or documents; expected {requests}")


def _require_range(name, numbers, first, last, of_what):
    """Numbers on a GPU are not looked at, since that would wait for it."""
    if numbers.device.type != "cpu" or isinstance(last, torch.Tensor) and last.device.type != "cpu":
        return
    if ((numbers < first) | (numbers > last)).any():
        last = last.tolist() if isinstance(last, torch.Tensor) else last
        raise ValueError(f"{name} is {numbers.tolist()}; expected {first} to {last}: {of_what}")


def _begins(name, cu_seqlens, rows):
    """Where documents begin, and the end, which is that of the rows unless these lie in pages."""
    begins = cu_seqlens.tolist()
    if begins[0] != 0 or any(x > y for x, y in zip(begins, begins[1:])) or rows not in (None, begins[-1]):
        end = "the last end" if rows is None else f"{rows}, the number of rows"
        raise ValueError(f"{name} is {begins}; expected numbers that rise from 0 to {end}")
    return begins


def _in_pages(pool, pages, keys):
    """A request's first keys, or all if this is None. Entries of the table past them may be anything."""
    if keys is not None and keys > len(pages) * pool.shape[1]:
        raise ValueError(f"a request has {keys} keys, and {len(pages)} pages of {pool.shape[1]} in block_table")
    used = pages if keys is None else pages[:-(-keys // pool.shape[1])]
    return pool[used].flatten(0, 1)[:keys]


def _slopes_of(requests, alibi_slopes):
    """Those of each request or document, of (H,) or (requests, H)."""
    if alibi_slopes is None or alibi_slopes.dim() == 1:
        return [alibi_slopes] * requests
    _require_one_each(requests, alibi_slopes=alibi_slopes)
    return list(alibi_slopes)


def is_decoding(d, is_padded):
    """Whether decode() takes a cache: of a kernel's head dimension, without padding first."""
    return d in HEAD_DIMS and not is_padded


def _lengths(lengths, q):
    """(B,), or None: that project takes one number for all, too."""
    if lengths is None or isinstance(lengths, torch.Tensor) and lengths.dim() > 0:
        if lengths is not None and lengths.is_floating_point():
            raise TypeError(f"cache_seqlens is {lengths.dtype}; expected whole numbers")
        return lengths
    number = flash_ladder._arguments.whole("cache_seqlens", lengths)
    return torch.full(q.shape[:1], number, dtype=torch.int32, device=q.device)
