"""flash_ladder.flash_attn_interface: the FlashAttention project's functions."""

import pytest

torch = pytest.importorskip("torch")

import flash_ladder  # noqa: E402

if why := flash_ladder._core.why_not("cpu"):
    pytest.skip(why, allow_module_level=True)

from flash_ladder import flash_attn_interface as flash_attn  # noqa: E402


def drawn(*sizes, d=64):
    """Tensors (B, N, H, d) of these (N, H), the same ones each time"""
    return [torch.randn(2, rows, heads, d, generator=torch.Generator().manual_seed(rows)).half() for rows, heads in sizes]


def scores(q, k, seen, slopes=None):
    """S in double precision, of (B, N, H, d), where a row sees a key; ALiBi by the slopes (B, H)"""
    k = k.double().repeat_interleave(q.shape[2] // k.shape[2], 2)
    S = torch.einsum("bihd,bjhd->bhij", q.double(), k) / q.shape[3] ** .5
    if slopes is not None:
        rows = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
        S -= slopes[..., None, None] * (rows - torch.arange(k.shape[1])).abs()
    return S.masked_fill(~seen, -torch.inf)


def is_near(o, P, v):
    """Whether O (B, N, H, d) is P V."""
    exact = torch.einsum("bhij,bjhd->bihd", P, v.double().repeat_interleave(o.shape[2] // v.shape[2], 2))
    return ((o - exact).norm() / exact.norm()).item() < 1e-3


@pytest.mark.parametrize("window, alibi, rows, causal", [((-1, -1), False, 33, True), ((20, -1), True, 33, True),
                                                         ((-1, -1), False, 130, False)])
def test_dropout_is_what_their_tests_read(window, alibi, rows, causal):
    """The sign of the third output, its size by their maximum, and O divided by 1 - p; of documents in their places."""
    q, k, v = drawn((rows, 4), (50, 2), (50, 2))
    slopes = torch.rand(2, 4, generator=torch.Generator().manual_seed(1)) if alibi else None
    torch.manual_seed(5)
    seed = torch.randint(2**63 - 1, ()).item()
    asked = dict(causal=causal, window_size=window, return_attn_probs=True)
    torch.manual_seed(5)
    o, _, signed = flash_attn.flash_attn_func(q, k, v, 0.17, alibi_slopes=slopes, **asked)
    kept = torch.from_numpy(flash_ladder.dropout_mask((2, 4, rows, 50), 0.17, seed))
    seen = torch.ones(rows, 50, dtype=torch.bool).tril(17 if causal else 50)
    if alibi:
        seen = seen.triu(17 - 20)
    S = scores(q, k, seen, slopes)
    assert torch.equal((signed >= 0)[..., seen], kept[..., seen])
    assert torch.allclose(signed.abs().double(), torch.exp(S - S.amax(-1, keepdim=True)), atol=1e-4)
    assert is_near(o, S.softmax(-1) * kept / 0.83, v)
    torch.manual_seed(5)
    flat, _, placed = flash_attn.flash_attn_varlen_func(
        *(x.flatten(0, 1) for x in (q, k, v)), torch.tensor([0, rows, 2 * rows]), torch.tensor([0, 50, 100]), rows + 2, 51,
        0.17, alibi_slopes=slopes, **asked)
    assert torch.equal(flat[:rows], o[0])  # of the first document, which has the first seed
    assert placed.shape == (2, 4, rows + 2, 51) and torch.equal(placed[0, :, :rows, :50], signed[0])


def test_requests_of_a_cache_see_their_own_keys():
    """New keys and values are in it, padding before it is not, and distances count from its last key."""
    q, k, v, k_cache, v_cache = drawn((3, 4), (2, 2), (4, 2), (40, 2), (41, 2))
    v, v_cache = v[:, :2], v_cache[:, :40]
    slopes, lengths, padding = torch.tensor([[.5, 0, 1, .1]] * 2), torch.tensor([30, 7]), torch.tensor([26, 0])
    o = flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, cache_leftpad=padding,
                                           causal=True, window_size=(9, -1), alibi_slopes=slopes)
    for i, (begin, end) in enumerate(((26, 32), (0, 9))):
        assert torch.equal(k_cache[i, end - 2:end], k[i]) and torch.equal(v_cache[i, end - 2:end], v[i])
        keys, values = k_cache[i:i + 1, begin:end], v_cache[i:i + 1, begin:end]
        last = end - begin - 3
        seen = torch.ones(3, end - begin, dtype=torch.bool).tril(last).triu(last - 9)
        assert is_near(o[i:i + 1], scores(q[i:i + 1], keys, seen, slopes[:1]).softmax(-1), values)


def cache_of(seed=3):
    """Q of 3 rows, new rows, and a cache of 4 requests of 64 keys, of which 2 are asked"""
    generator = torch.Generator().manual_seed(seed)
    make = lambda *axes: torch.randn(*axes, 64, generator=generator).half()
    return make(2, 3, 4), make(2, 3, 2), make(2, 3, 2), make(4, 64, 2), make(4, 64, 2)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("columns", [64, 16])
def test_new_rows_are_rotated_and_put_into_the_cache(interleaved, columns):
    """As complex numbers: pair c of a row at position n is multiplied by exp(i n w_c), and the other columns stay."""
    q, k, v, k_cache, v_cache = cache_of()
    lengths, which = torch.tensor([20, 0]), torch.tensor([3, 1])
    angles = torch.arange(64)[:, None] * 0.1 ** torch.arange(columns // 2)
    o = flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, angles.cos(), angles.sin(), lengths, which, causal=True,
                                           rotary_interleaved=interleaved)

    def rotated(x):
        x = x.double().clone()
        order = torch.arange(columns).view(-1, 2) if interleaved else torch.arange(columns).view(2, -1).T
        turn = torch.polar(torch.ones(()).double(), angles[lengths[:, None] + torch.arange(3)].double())[:, :, None]
        y = torch.complex(x[..., order[:, 0]], x[..., order[:, 1]]) * turn
        x[..., order[:, 0]], x[..., order[:, 1]] = y.real, y.imag
        return x

    turned = rotated(q)
    for i, length in enumerate(lengths):
        there = k_cache[which[i], length:length + 3]
        assert (there - rotated(k)[i]).abs().max() < 4e-3 and torch.equal(v_cache[which[i], length:length + 3], v[i])
        keys, values = (x[which[i], :length + 3][None] for x in (k_cache, v_cache))
        seen = torch.ones(3, length + 3, dtype=torch.bool).tril(int(length))
        assert is_near(o[i:i + 1], scores(turned[i:i + 1], keys, seen).softmax(-1), values)


def test_pages_windows_and_scores_of_a_cache():
    """New rows go where the block table says; lengths may be one number."""
    q, k, v, k_cache, v_cache = cache_of()
    table = torch.tensor([[5, 2, 7, 0], [1, 9, 3, 4]], dtype=torch.int32)
    pools = [x.reshape(16, 16, 2, 64) for x in (k_cache, v_cache)]
    dense = [pool[table.long()].flatten(1, 2) for pool in pools]
    asked = dict(causal=True, window_size=(9, 0), softcap=2.0, alibi_slopes=torch.tensor([.5, 0, 1, .1]), return_softmax_lse=True)
    for cache in dense:
        cache[:, 30:33] = 0
    dense[0][:, 30:33], dense[1][:, 30:33] = k, v
    expected = flash_attn.flash_attn_with_kvcache(q, *dense, cache_seqlens=33, **asked)
    got = flash_attn.flash_attn_with_kvcache(q, *pools, k, v, cache_seqlens=30, block_table=table, **asked)
    assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1])
    assert torch.equal(pools[0][table.long()].flatten(1, 2), dense[0])
    padded = flash_attn.flash_attn_with_kvcache(q, *dense, cache_seqlens=33, cache_leftpad=torch.tensor([0, 4]), **asked)
    assert (padded[0] - expected[0]).abs().max() < 2e-3  # the window begins after the padding
    empty = flash_attn.flash_attn_with_kvcache(q, *dense, cache_seqlens=4, cache_leftpad=torch.tensor([0, 4]))
    assert (empty[1] == 0).all() and (empty[0] != 0).any()


@pytest.mark.parametrize("paged, batched", [(False, False), (True, False), (False, True)])
def test_a_cache_in_8_bits_as_flash_attention_3_takes_it(paged, batched):
    """New rows are rounded by the scales of their heads, and saturate; without scales these are 1."""
    q, k, v, k_cache, v_cache = cache_of()
    lengths, which = torch.tensor([20, 3]), torch.tensor([3, 1])
    descale = torch.rand(2, 2, 2, generator=torch.Generator().manual_seed(1)) / 100 + 0.005  # of K and of V
    each = descale[:, :, None, :, None]  # (2, B, 1, Hkv, 1)
    rows = [x[which].float() for x in (k_cache, v_cache)]
    v[0, 0, 0, 0] = 1000
    caches = [(x / scale).clamp(-448, 448).to(torch.float8_e4m3fn) for x, scale in zip(rows, each)]
    for cache in caches:
        for b, length in enumerate(lengths):
            cache[b, length:] = float("nan")
    expected = [cache.float() for cache in caches]
    for wide, new, scale in zip(expected, (k, v), each):
        for b, length in enumerate(lengths):
            wide[b, length:length + 3] = (new[b].float() / scale[b]).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    given, asked = caches, {}
    if paged:
        table = torch.tensor([[5, 2, 7, 0], [1, 6, 3, 4]], dtype=torch.int32)
        given = [torch.full((8, 16, 2, 64), float("nan")).to(torch.float8_e4m3fn) for _ in caches]
        for pool, cache in zip(given, caches):
            pool[table.long()] = cache.view(2, 4, 16, 2, 64)
        asked["block_table"] = table
    if batched:
        given = [torch.full((4, 64, 2, 64), float("nan")).to(torch.float8_e4m3fn) for _ in caches]
        for whole, cache in zip(given, caches):
            whole[which] = cache
        asked["cache_batch_idx"] = which
    o = flash_attn.flash_attn_with_kvcache(q, *given, k, v, cache_seqlens=lengths, causal=True, k_descale=descale[0],
                                           v_descale=descale[1], **asked)
    assert expected[1][0, 20, 0, 0] == 448
    for b, length in enumerate(lengths):
        keys, values = (wide[b:b + 1, :length + 3] * scale[b] for wide, scale in zip(expected, each))
        P = scores(q[b:b + 1], keys, torch.ones(3, length + 3, dtype=torch.bool).tril(int(length))).softmax(-1)
        assert is_near(o[b:b + 1], P, values)
    if not asked:
        plain = flash_attn.flash_attn_with_kvcache(q, *given, cache_seqlens=lengths, causal=True)
        ones = flash_attn.flash_attn_with_kvcache(q, *given, cache_seqlens=lengths, causal=True, k_descale=torch.ones(2, 2))
        assert torch.equal(plain, ones) and plain.isfinite().all()


def test_what_no_stage_takes_of_a_cache_in_8_bits_is_refused_by_name():
    q, k, v, k_cache, v_cache = cache_of()
    k8, v8 = k_cache.to(torch.float8_e4m3fn), v_cache.to(torch.float8_e4m3fn)
    ask = flash_attn.flash_attn_with_kvcache
    for error, text, call in (
            (flash_attn.NotTaken, "windows with a cache in float8_e4m3fn", lambda: ask(q, k8, v8, window_size=(9, 0))),
            (flash_attn.NotTaken, "softcap with a cache in float8_e4m3fn", lambda: ask(q, k8, v8, softcap=30.0)),
            (flash_attn.NotTaken, "ALiBi with a cache in float8_e4m3fn", lambda: ask(q, k8, v8, alibi_slopes=torch.ones(4))),
            (flash_attn.NotTaken, "padding with a cache in float8_e4m3fn",
             lambda: ask(q, k8, v8, cache_seqlens=9, cache_leftpad=torch.tensor([1, 2]))),
            (flash_attn.NotTaken, "a cache in float8_e4m3fn with a head dimension of 40",
             lambda: ask(*(x[..., :40] for x in (q, k8, v8)))),
            (flash_attn.NotTaken, "queries in float8_e4m3fn with a cache", lambda: ask(q.to(k8.dtype), k8, v8)),
            (flash_attn.NotTaken, "queries in float8_e4m3fn with a cache", lambda: ask(q, k8, v8, q_descale=torch.ones(2, 2))),
            (TypeError, "k_cache is float16 and k_descale is given", lambda: ask(q, k_cache, v_cache, k_descale=1.0)),
            (TypeError, "v_cache is float16 and the other cache is float8_e4m3fn", lambda: ask(q, k8, v_cache)),
            (ValueError, "k_scale: one is 0; expected", lambda: ask(q, k8, v8, k_descale=torch.zeros(2, 2)))):
        with pytest.raises(error, match=text):
            call()
    assert torch.equal(k8.float(), k_cache.to(torch.float8_e4m3fn).float())  # nothing was written


@pytest.mark.parametrize("d, alibi", [(64, False), (40, True)])
def test_a_block_table_holds_anything_past_the_last_key(d, alibi):
    """Also for the calls that no stage takes at once."""
    pool = torch.randn(8, 16, 2, d, generator=torch.Generator().manual_seed(2)).half()
    q = torch.randn(2, 3, 4, d, generator=torch.Generator().manual_seed(1)).half()
    table = torch.tensor([[5, 2, 10**6, -7], [1, 7, 3, 10**6]], dtype=torch.int32)
    lengths, slopes = [18, 41], torch.tensor([.5, 0, 1, .1]) if alibi else None
    o = flash_attn.flash_attn_with_kvcache(q, pool, pool, cache_seqlens=torch.tensor(lengths), block_table=table,
                                           alibi_slopes=slopes)
    flat = flash_attn.flash_attn_varlen_func(q.flatten(0, 1), pool, pool, torch.tensor([0, 3, 6]), torch.tensor([0, 18, 59]),
                                             3, 41, alibi_slopes=slopes, block_table=table)
    for i, length in enumerate(lengths):
        keys = pool[table[i, :-(-length // 16)]].flatten(0, 1)[None, :length]
        of_head = None if slopes is None else slopes[None]
        P = scores(q[i:i + 1], keys, torch.ones(3, length, dtype=torch.bool), of_head).softmax(-1)
        assert is_near(o[i:i + 1], P, keys) and is_near(flat[None, 3 * i:3 * i + 3], P, keys)


@pytest.mark.parametrize("slopes", [None, torch.tensor([.5, 0, 1, .1])])
def test_documents_without_rows_or_keys(slopes):
    """O is 0 where a document has no keys, and L is -inf; gradients reach the others."""
    q, k, v = (x[0].requires_grad_() for x in drawn((9, 4), (14, 2), (14, 2)))
    o, L, _ = flash_attn.flash_attn_varlen_func(q, k, v, torch.tensor([0, 0, 5, 9]), torch.tensor([0, 6, 14, 14]), 5, 8,
                                                alibi_slopes=slopes, return_attn_probs=True)
    of_head = None if slopes is None else slopes[None]
    P = scores(q[None, :5], k[None, 6:], torch.ones(5, 8, dtype=torch.bool), of_head).softmax(-1)
    assert o.shape == q.shape and is_near(o[None, :5], P, v[None, 6:])
    assert (o[5:] == 0).all() and (L[:, 5:] == -torch.inf).all()
    o.sum().backward()
    assert (q.grad[5:] == 0).all() and (v.grad[:6] == 0).all() and (v.grad[6:] != 0).any()
    nothing = flash_attn.flash_attn_func(q[None], k[None, :0], v[None, :0])
    assert (nothing == 0).all() and nothing.shape == (1, 9, 4, 64)


def test_a_cache_for_more_requests():
    """The first ones are those of q, and new rows are written to them."""
    q, k, v, k_cache, v_cache = cache_of()
    expected = flash_attn.flash_attn_with_kvcache(q, k_cache[:2].clone(), v_cache[:2].clone(), k, v, cache_seqlens=20)
    assert torch.equal(flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=20), expected)
    assert torch.equal(k_cache[:2, 20:23], k)


def test_a_cache_says_what_is_wrong():
    """Nothing is ignored, cut off or counted from the end, and nothing is written."""
    q, k, v, k_cache, v_cache = cache_of()
    table, turn = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32), torch.ones(64, 8)
    new, lengths = dict(k=k, v=v), torch.tensor([20, 5])
    before = k_cache.clone()
    for words, asked in (
            ("whose length is cache_seqlens", new),
            ("each says where the keys", dict(cache_batch_idx=torch.tensor([0, 1]), block_table=table)),
            ("k and v are new rows", dict(v=v, cache_seqlens=lengths)),
            ("k and v are new rows", dict(k=k, cache_seqlens=lengths)),
            ("nothing would be rotated", dict(rotary_cos=turn, rotary_sin=turn, cache_seqlens=lengths)),
            ("belong together", dict(rotary_cos=turn, cache_seqlens=lengths, **new)),
            ("at most 32", dict(rotary_cos=torch.ones(64, 33), rotary_sin=torch.ones(64, 33), cache_seqlens=lengths, **new)),
            ("rotary_cos has 22 positions", dict(rotary_cos=turn[:22], rotary_sin=turn[:22], cache_seqlens=lengths, **new)),
            (r"expected \(2, 3, 2, 64\)", dict(k=k[:, :, :1], v=v[:, :, :1], cache_seqlens=lengths)),
            ("room for 64 keys, 3 of them new", dict(cache_seqlens=62, **new)),
            ("room for 64 keys, 3 of them new", dict(cache_seqlens=-3, **new)),
            ("room for 64 keys", dict(cache_seqlens=65, cache_leftpad=torch.tensor([1, 1]))),
            ("room for 128 keys", dict(cache_seqlens=126, block_table=table, **new)),
            ("expected 0 to 3: the pages", dict(cache_seqlens=lengths, block_table=table - 1, **new)),
            ("block_table is of 1 ", dict(cache_seqlens=lengths, block_table=table[:1])),
            ("cache_seqlens is of 3 ", dict(cache_seqlens=torch.tensor([1, 2, 3]))),
            ("the rows of the cache", dict(cache_seqlens=lengths, cache_batch_idx=torch.tensor([3, -1]))),
            ("the keys of each request", dict(cache_seqlens=lengths, cache_leftpad=torch.tensor([0, 6]))),
            ("the keys of each request", dict(cache_leftpad=torch.tensor([0, 65]))),
            ("alibi_slopes is of 3 ", dict(alibi_slopes=torch.ones(3, 4), cache_leftpad=torch.tensor([0, 1])))):
        with pytest.raises(ValueError, match=words):
            flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, **asked)
    with pytest.raises(ValueError, match="no gradients"):
        flash_attn.flash_attn_with_kvcache(q.clone().requires_grad_(), k_cache, v_cache, cache_seqlens=lengths, **new)
    for name, asked in (("cache_seqlens", dict(cache_seqlens=2.5)), ("cache_seqlens", dict(cache_seqlens=lengths.float())),
                        ("window", dict(window_size=(2.5, 0)))):
        with pytest.raises(TypeError, match=name):
            flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, **asked)
    assert torch.equal(k_cache, before)


def test_documents_say_what_is_wrong():
    """Where each document is a call, as with slopes."""
    q, k, v = (x[0] for x in drawn((9, 4), (14, 2), (14, 2)))
    rows, keys = torch.tensor([0, 5, 9]), torch.tensor([0, 6, 14])
    pool, table = k.new_zeros(4, 16, 2, 64), torch.tensor([[0], [1]], dtype=torch.int32)
    for words, arguments in (("cu_seqlens_q is .* rise from 0 to 9, the number of rows", (q, k, v, rows[:2], keys[:2])),
                             ("cu_seqlens_k is .* rise from 0 to 14", (q, k, v, rows, torch.tensor([0, 15, 14]))),
                             ("cu_seqlens_k is of 1 ", (q, k, v, rows, torch.tensor([0, 14])))):
        with pytest.raises(ValueError, match=words):
            flash_attn.flash_attn_varlen_func(*arguments, 5, 8, alibi_slopes=torch.ones(4))
    with pytest.raises(ValueError, match="alibi_slopes is of 3 "):
        flash_attn.flash_attn_varlen_func(q, k, v, rows, keys, 5, 8, alibi_slopes=torch.ones(3, 4))
    with pytest.raises(ValueError, match="17 keys, and 1 pages of 16"):
        flash_attn.flash_attn_varlen_func(q, pool, pool, rows, torch.tensor([0, 17, 20]), 5, 17, block_table=table)
    with pytest.raises(ValueError, match="block_table is of 1 "):
        flash_attn.flash_attn_varlen_func(q, pool, pool, rows, keys, 5, 8, block_table=table[:1])


def test_softcap_with_dropout_is_refused():
    q, k, v = drawn((33, 4), (50, 2), (50, 2))
    with pytest.raises(flash_attn.NotTaken, match="softcap with dropout"):
        flash_attn.flash_attn_func(q, k, v, 0.1, softcap=5.0)
