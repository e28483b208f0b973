"""Packed documents, column bounds, lists of tiles, dropout and caches, on NumPy's arrays and the CPU back-end."""

import re

import numpy as np
import pytest
from conftest import gradients_of, reference_gradients, relative, stage_that, visible

import flash_ladder

if why := flash_ladder._core.why_not("cpu"):
    pytest.skip(why, allow_module_level=True)

PLAIN, GRADIENTS = stage_that(), gradients_of()  # take none of what follows
LENGTHS, PAGES = stage_that("lengths", lacks=["pages"]), stage_that("pages", lacks=["prefix"])
HOPPER = {"compute_capability": 90}
SLOPES, SINKS = np.array([[0.5, 0, 1 / 32, 0.1], [1, 0.25, 0.02, 0.3]], np.float32), np.array([0, 3, -5, 8], np.float32)


def softmax(q, k, v, seen, kept=1.0):
    """O and L in double precision of Q (B, H, Nq, d), and K and V with as many heads or fewer; seen (B, H, Nq, Nk). P is
    multiplied by `kept`."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (x.repeat(q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    S = np.where(seen, q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5, -np.inf)
    m = np.maximum(S.max(-1, keepdims=True), -1e300)
    l = np.exp(S - m).sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.exp(S - m) / np.maximum(l, 1e-300) * kept @ v, (m + np.log(l))[..., 0]


def agrees(got, expected):
    (O, L), (exact_O, exact_L) = got, expected
    seen = np.isfinite(exact_L)
    assert (np.isneginf(L) == ~seen).all() and (O[~seen] == 0).all()
    assert relative(O, exact_O) < 1e-3 and abs(L[seen] - exact_L[seen]).max() < 1e-4


def in_documents(rows, keys, causal=False, window=None):
    """Which keys a row sees if these documents begin at rows and keys."""
    seen = np.zeros((rows[-1], keys[-1]), bool)
    for row, end, key, last in zip(rows, rows[1:], keys, keys[1:]):
        seen[row:end, key:last] = visible(end - row, last - key, causal, window)
    return seen


@pytest.fixture
def packed(problem):
    """Q, K and V of one sequence."""
    return [x[:1] for x in problem]


ROWS, KEYS = [0, 20, 20, 31, 70], [0, 33, 40, 40, 90]  # no rows in one document, no keys in another


@pytest.mark.parametrize("causal, window", [(False, None), (True, None), (True, (9, -1))])
def test_packed_documents(packed, causal, window):
    got = flash_ladder.attention(*packed, cu_seqlens_q=ROWS, cu_seqlens_k=np.array(KEYS, np.int32), causal=causal,
                                 window=window, return_lse=True, backend="checked")
    agrees(got, softmax(*packed, in_documents(ROWS, KEYS, causal, window)))


def test_documents_of_as_many_rows_as_keys_have_one_list(packed):
    _, k, v = packed
    stage = stage_that("documents")
    alone = [flash_ladder.attention(*(x[:, :, first:end] for x in (k, k, v)), causal=True, stage=stage)
             for first, end in ((0, 33), (33, 90))]
    O = flash_ladder.attention(k, k, v, cu_seqlens_q=(0, 33, 90), causal=True)
    assert (O == np.concatenate(alone, axis=2)).all()
    narrow = [x[..., :40] for x in (k, k, v)]  # by columns of zeros
    assert relative(flash_ladder.attention(*narrow, cu_seqlens_q=(0, 33, 90)),
                    softmax(*narrow, in_documents((0, 33, 90), (0, 33, 90)))[0]) < 1e-3


@pytest.mark.parametrize("count, causal, heads", [(1, True, 2), (1, False, 1), (2, True, 4), (2, False, 2), (4, False, 4)])
def test_column_bounds(problem, count, causal, heads):
    q, k, v = problem
    random = np.random.default_rng(count)
    columns = random.integers(0, 71, (2, heads, 90, count)).astype(np.int32)
    bounds = np.moveaxis(columns.repeat(4 // heads, axis=1), -1, 0)
    seen = np.broadcast_to(visible(70, 90, causal, None), (2, 4, 70, 90)).copy()
    rows = np.arange(70)[:, None]
    LTS, LTE, UTS, UTE = {1: (bounds[0], 70, 0, 0), 2: (bounds[0], bounds[-1], 0, 0) if causal else
                          (bounds[0], 70, 0, bounds[-1]), 4: tuple(bounds) if count == 4 else ()}[count]
    for first, end in ((LTS, LTE), (UTS, UTE)):
        first, end = (np.broadcast_to(x, (2, 4, 90))[:, :, None] for x in (first, end))
        seen &= ~((rows >= first) & (rows < end))
    O, L = flash_ladder.attention(q, k, v, columns=columns, causal=causal, return_lse=True, backend="checked")
    agrees((O, L), softmax(q, k, v, seen))
    gradients = flash_ladder.attention_backward(q, k, v, O, L, O, columns=columns, causal=causal,
                                                stage=gradients_of("columns"))
    for got, exact in zip(gradients, reference_gradients(q, k, v, O, seen=seen)):
        assert relative(got, exact) < 2e-3


def drawn_mask(batches, heads):
    """What 70 rows see of 190 keys: the first key tile is hidden, the second one full for the rows of the first."""
    seen = np.random.default_rng(heads).random((batches, heads, 70, 190)) < 0.5
    seen[..., :64] = False
    seen[:, :, :64, 64:128] = True
    seen[0, 0, 65:] = False
    return seen


@pytest.mark.parametrize("batches, heads", [(1, 1), (2, 1), (1, 4), (2, 2)])
def test_any_mask_by_lists_of_tiles(problem, batches, heads):
    q, k, v = (np.tile(x, (1, 1, 3, 1))[:, :, :n] for x, n in zip(problem, (70, 190, 190)))
    seen = drawn_mask(batches, heads)
    lists = flash_ladder.tile_lists(seen)
    assert lists.axes == seen.shape and all(x.dtype == np.int32 for x in lists[1:])
    first, last = slice(*lists.full_first[:2]), slice(*lists.partial_first[1:3])
    assert list(lists.full_tiles[first]) == [1] and list(lists.partial_tiles[last]) == [1, 2]
    bits = np.unpackbits(lists.bits.view(np.uint8), axis=-1, bitorder="little").reshape(-1, 64, 64)
    assert (bits[0, :, :62] == seen[0, 0, :64, 128:]).all() and not bits[0, :, 62:].any()
    got = flash_ladder.attention(q, k, v, tiles=lists, return_lse=True, backend="checked")
    seen = seen.repeat(4 // heads, axis=1)
    agrees(got, softmax(q, k, v, seen))
    gradients = flash_ladder.attention_backward(q, k, v, *got, q, tiles=lists, stage=gradients_of("tiles"))
    for result, exact in zip(gradients, reference_gradients(q, k, v, q, seen=seen)):
        assert relative(result, exact) < 2e-3
    assert not gradients[1][:, :, :64].any() and not gradients[2][:, :, :64].any()  # keys that no row sees


def test_a_mask_of_all_heads_needs_no_further_axes(packed):
    seen = visible(70, 90, True, (20, -1))
    tiles = flash_ladder.tile_lists(seen)
    assert tiles.axes == (1, 1, 70, 90)
    for inputs in packed, [x[..., :40] for x in packed]:  # the second by columns of zeros
        agrees(flash_ladder.attention(*inputs, tiles=tiles, return_lse=True), softmax(*inputs, seen))
    nothing = flash_ladder.tile_lists(np.zeros((70, 90), bool))
    assert nothing.bits.shape == (0, 64, 2)
    O, L = flash_ladder.attention(*packed, tiles=nothing, return_lse=True)
    assert (O == 0).all() and np.isneginf(L).all()


@pytest.mark.parametrize("share, causal, seed", [(0.1, True, 7), (0.5, False, 2**64 - 1), (255 / 256, False, 0)])
def test_dropout(problem, share, causal, seed):
    q, k, v = problem
    kept = flash_ladder.dropout_mask((2, 4, 70, 90), share, seed)
    rate = 1 - round(256 * share) / 256
    assert kept.shape == (2, 4, 70, 90) and abs(kept.mean() - rate) < 5 * (rate * (1 - rate) / kept.size) ** 0.5
    for stage in stage_that("dropout"), stage_that("dropout", **HOPPER):
        got = flash_ladder.attention(q, k, v, causal=causal, dropout_p=share, seed=seed, stage=stage, return_lse=True,
                                     backend="checked")
        agrees(got, softmax(q, k, v, visible(70, 90, causal, None), kept / rate))
    gradients = flash_ladder.attention_backward(q, k, v, *got, q, causal=causal, dropout_p=share, seed=seed,
                                                stage=gradients_of("dropout"))
    for result, exact in zip(gradients, reference_gradients(q, k, v, q, causal, weights=kept / rate)):
        assert relative(result, exact) < 2e-3
    # An element's place is all that counts, next to the seed.
    assert (flash_ladder.dropout_mask((1, 2, 9, 33), share, seed) == kept[:1, :2, :9, :33]).all()
    assert (flash_ladder.dropout_mask((2, 4, 70, 90), share, seed ^ 1) != kept).any()


def test_without_dropout_a_seed_changes_nothing(problem):
    assert (flash_ladder.attention(*problem, dropout_p=0, seed=3) == flash_ladder.attention(*problem)).all()
    assert flash_ladder.dropout_mask((1, 1, 2, 3), 0, 3).all()


@pytest.fixture
def requests():
    """Q of three requests, their keys and values (B, N, Hkv, d), and how many each has."""
    random = np.random.default_rng(5)
    q, k, v = (random.standard_normal((3, rows, heads, 64)).astype(np.float16)
               for rows, heads in ((4, 4), (48, 2), (48, 2)))
    return q, k, v, np.array([37, 0, 16], np.int32)


def expected(q, k, v, lengths, causal):
    seen = np.zeros((3, 1, q.shape[1], 48), bool)
    for b, length in enumerate(lengths):
        seen[b, 0, :, :length] = visible(q.shape[1], length, causal, None)
    O, L = softmax(*(x.swapaxes(1, 2) for x in (q, np.nan_to_num(k), np.nan_to_num(v))), seen)
    return O.swapaxes(1, 2), L


def agree_by_request(got, exact):
    agrees((got[0].swapaxes(1, 2), got[1]), (exact[0].swapaxes(1, 2), exact[1]))


@pytest.mark.parametrize("causal", [False, True])
def test_decoding_with_lengths_and_pages(requests, causal):
    """In pages of 16 and 1 as in one piece, whatever lies past the lengths."""
    q, k, v, lengths = requests
    for b, length in enumerate(lengths):
        k[b, length:] = v[b, length:] = np.nan
    exact = expected(q, k, v, lengths, causal)
    for given in (lengths, list(lengths)):
        got = flash_ladder.decode(q, k, v, seqused=given, causal=causal, return_lse=True, backend="checked")
        agree_by_request(got, exact)
    for size in (16, 1):
        pages = 3 * 48 // size
        order = np.random.default_rng(size).permutation(pages).astype(np.int32)
        pools = [np.empty((pages + 1, size, 2, 64), np.float16) for _ in range(2)]
        for pool, dense in zip(pools, (k, v)):
            pool[:] = np.nan
            pool[order] = dense.reshape(pages, size, 2, 64)
        table = order.reshape(3, -1)
        table[1] = -1  # a request without keys
        O, L = flash_ladder.decode(q, *pools, block_table=table, seqused=lengths, causal=causal, return_lse=True,
                                   backend="checked")
        agree_by_request((O, L), exact)
        assert O.shape == q.shape and O.strides == q.strides


@pytest.mark.parametrize("causal", [False, True])
def test_a_prefix_that_requests_share(requests, causal):
    q, k, v, _ = requests
    table = np.array([[0, 1, 2], [0, 1, 5], [0, 1, 8]], np.int32)
    pools = [x.reshape(9, 16, 2, 64) for x in (k, v)]
    options = dict(block_table=table, seqused=[48, 35, 36], causal=causal, return_lse=True)
    expected = flash_ladder.decode(q, *pools, **options, stage=PAGES)
    for prefix in 16, 32:
        got = flash_ladder.decode(q, *pools, **options, prefix=prefix, backend="checked")
        agree_by_request(got, expected)
    assert (flash_ladder.decode(q, *pools, **options, prefix=0)[0] == expected[0]).all()


def test_decoding_takes_the_last_rung_that_takes_it(requests):
    q, k, v, lengths = requests
    shape = (3, 4, 2, 4, 48, 64)
    assert flash_ladder.default_stage(shape, seqused=lengths) == LENGTHS
    assert flash_ladder.default_stage(shape, page_size=16) == PAGES
    assert flash_ladder.default_stage(shape, page_size=16, window=(9, 0), sinks="drawn") == stage_that("window", "pages")
    assert flash_ladder.default_stage(shape, softcap=5.0, seqused=lengths) == stage_that("softcap", "pages")
    assert flash_ladder.default_stage(shape, page_size=16, seqused=[48, 40, 39], prefix=32) == stage_that("prefix")
    dense = flash_ladder.decode(q, k, v, causal=True)
    heads_first = [x.swapaxes(1, 2) for x in (q, k, v)]
    assert (dense.swapaxes(1, 2) == flash_ladder.attention(*heads_first, causal=True)).all()
    shared = np.tile(np.arange(3, dtype=np.int32), (3, 1))  # all requests have the first one's pages
    one = flash_ladder.decode(q, *(x.reshape(9, 16, 2, 64) for x in (k, v)), block_table=shared)
    same = flash_ladder.decode(q, *(np.broadcast_to(x[:1], x.shape) for x in (k, v)), stage=PAGES)
    assert (one == same).all()


def test_questions_about_stages_with_features():
    documents = {"cu_seqlens_q": ROWS, "cu_seqlens_k": KEYS}
    shape = (1, 4, 2, 70, 90, 64)
    assert flash_ladder.default_stage(shape, **documents) == stage_that("documents")
    assert flash_ladder.default_stage(shape, columns="prefix") == stage_that("columns")
    assert flash_ladder.default_stage(shape, tiles="dilated") == stage_that("tiles")
    assert flash_ladder.default_stage(shape, causal=True, dropout_p=0.1) == stage_that("dropout")
    columns, tiles, dropout = {"columns": "random"}, {"tiles": "random"}, {"dropout_p": 0.3, "seed": 5}
    for stage, features in ((stage_that("documents"), documents), (stage_that("columns"), columns),
                            (stage_that("columns", **HOPPER), columns), (gradients_of("columns"), columns),
                            (stage_that("tiles"), tiles), (gradients_of("tiles"), tiles),
                            (stage_that("dropout"), dropout), (stage_that("dropout", **HOPPER), dropout),
                            (gradients_of("dropout"), dropout), (LENGTHS, {"seqused": [70]}),
                            (PAGES, {"seqused": [70], "page_size": 16}),
                            (stage_that("prefix"), {"page_size": 16, "prefix": 64})):
        assert flash_ladder.verify(stage, shape=shape, **features)[0]["passed"] == 1
        with pytest.raises(ValueError, match=f"{PLAIN} does not take "):
            flash_ladder.count(PLAIN, shape, **features)
    work = [flash_ladder.count(stage_that("documents"), (1, 2, 2, 128, 128, 64), cu_seqlens_q=[0, *ends])["mma"]
            for ends in ((128,), (64, 128))]
    assert work[1] * 2 == work[0]
    with pytest.raises(TypeError, match="window_size"):
        flash_ladder.count(5, window_size=3)


def test_what_no_stage_takes_is_refused_by_name(packed):
    q, k, v = packed
    O, L = flash_ladder.attention(*packed, cu_seqlens_q=ROWS, cu_seqlens_k=KEYS, return_lse=True)
    columns = np.zeros((1, 1, 90, 1), np.int32)
    documents = {"cu_seqlens_q": ROWS, "cu_seqlens_k": KEYS}
    tiles, dropout = flash_ladder.tile_lists(np.ones((70, 90), bool)), {"dropout_p": 0.1, "seed": 1}
    pages = lambda **options: flash_ladder.decode(*(x.swapaxes(1, 2)[:, :64] for x in packed), block_table=[[0, 0]],
                                                  **options)
    dropping, dropping_gradients = stage_that("dropout", lacks=["window"]), gradients_of("dropout")
    windowed = gradients_of("window", lacks=["columns", "tiles"])
    refused = [
        (f"{PLAIN} does not take lists of tiles", lambda: flash_ladder.attention(q, k, v, stage=PLAIN, tiles=tiles)),
        (f"{PLAIN} does not take dropout", lambda: flash_ladder.attention(q, k, v, stage=PLAIN, **dropout)),
        (f"{dropping} does not take a sliding window",
         lambda: flash_ladder.attention(q, k, v, window=(3, -1), stage=dropping, **dropout)),
        (f"{GRADIENTS} does not take dropout",
         lambda: flash_ladder.attention_backward(q, k, v, O, L, O, stage=GRADIENTS, **dropout)),
        (f"{dropping_gradients} does not take dropout in packed",
         lambda: flash_ladder.attention_backward(q, k, v, O, L, O, stage=dropping_gradients, **documents, **dropout)),
        ("no stage computes its gradients with packed documents, dropout",
         lambda: flash_ladder.attention_backward(q, k, v, O, L, O, **documents, **dropout)),
        (f"{windowed} does not take lists of tiles",
         lambda: flash_ladder.attention_backward(q, k, v, O, L, O, tiles=tiles, stage=windowed)),
        (f"{PAGES} does not take a shared prefix", lambda: pages(prefix=64, stage=PAGES)),
        ("cu_seqlens_q: packed documents do not go with column bounds",
         lambda: flash_ladder.attention_backward(q, k, v, O, L, O, columns=columns, **documents)),
        (f"{windowed} does not take column bounds",
         lambda: flash_ladder.attention_backward(q, k, v, O, L, O, columns=columns, stage=windowed)),
        (f"{GRADIENTS} does not take packed",
         lambda: flash_ladder.attention_backward(q, k, v, O, L, O, stage=GRADIENTS, **documents)),
        (f"{PLAIN} does not take packed", lambda: flash_ladder.attention(q, k, v, stage=PLAIN, **documents)),
        (f"{PLAIN} does not take column bounds",
         lambda: flash_ladder.attention(q, k, v, stage=PLAIN, columns=columns)),
        ("cu_seqlens_q: packed documents do not go with column bounds",
         lambda: flash_ladder.attention(q, k, v, columns=columns, **documents)),
        (f"{LENGTHS} does not take ",
         lambda: flash_ladder.decode(*(x.swapaxes(1, 2)[:, :64] for x in packed), block_table=[[0]], stage=LENGTHS)),
        (f"{PLAIN} does not take ",
         lambda: flash_ladder.decode(*(x.swapaxes(1, 2) for x in packed), seqused=[3], stage=PLAIN)),
        (f"{GRADIENTS} computes gradients",
         lambda: flash_ladder.decode(*(x.swapaxes(1, 2) for x in packed), stage=GRADIENTS)),
        (f"{PLAIN} has no head dimension 32, and decode copies no cache",
         lambda: flash_ladder.decode(*(x.swapaxes(1, 2)[..., :32] for x in packed), stage=PLAIN)),
    ]
    for sentence, wrong in refused:
        with pytest.raises(ValueError, match="^" + re.escape(sentence)):
            wrong()


def test_every_number_in_the_cpus_memory_is_checked(problem, requests):
    q, k, v = (x[:1] for x in problem)
    attend = lambda **mask: flash_ladder.attention(q, k, v, **mask)
    documents = lambda rows, keys=KEYS: lambda: attend(cu_seqlens_q=rows, cu_seqlens_k=keys)
    columns = lambda *axes, fill=0: lambda: attend(columns=np.full(axes, fill, np.int32))
    new, *cache, lengths = requests
    pools = [x.reshape(9, 16, 2, 64) for x in cache]
    decode = lambda **options: lambda: flash_ladder.decode(new, *cache, **options)
    paged = lambda table, **options: lambda: flash_ladder.decode(new, *pools, block_table=table, **options)
    table = np.arange(9, dtype=np.int32).reshape(3, 3)
    lists = flash_ladder.tile_lists(visible(70, 90, True, None))  # partial tiles 0, 1; 1
    tiles = lambda **others: lambda: attend(tiles=lists._replace(**others))
    whole = flash_ladder.tile_lists(np.arange(90)[None] < np.full(70, 64)[:, None])  # full tile 0, twice
    numbers = lambda *x: np.array(x, np.int32)
    dropout = lambda p, seed=1: lambda: attend(dropout_p=p, seed=seed)
    shared = np.array([[0, 1, 2]] * 3, np.int32)
    refused = [
        (TypeError, "tiles is ndarray; expected TileLists", lambda: attend(tiles=np.ones((70, 90), bool))),
        (ValueError, "tiles: they are of (1, 3, 70, 90); expected (1, a divisor of 4 heads, 70, 90)",
         tiles(axes=(1, 3, 70, 90))),
        (ValueError, "tiles: they are of (1, 1, 70, 91)", tiles(axes=(1, 1, 70, 91))),
        (ValueError, "tiles: lists of tiles are the whole mask", lambda: attend(tiles=lists, causal=True)),
        (ValueError, "tiles: lists of tiles are the whole mask", lambda: attend(tiles=lists, window=(1, 1))),
        (ValueError, "full_tiles: they are (2); expected (3)", tiles(full_first=numbers(0, 0))),
        (ValueError, "full_tiles: the lists are from 0 to 2; expected 0 to 1", tiles(full_first=numbers(0, 0, 2))),
        (ValueError, "partial_tiles: 3 comes after 4: no list has a negative length",
         tiles(partial_first=numbers(0, 4, 3))),
        (ValueError, "partial_tiles: query tile 0 has key tile 2; expected 1 to 1", tiles(partial_tiles=numbers(0, 2, 1))),
        (ValueError, "partial_tiles: query tile 1 has key tile 1; expected 2 to 1",
         tiles(partial_first=numbers(0, 1, 3), partial_tiles=numbers(0, 1, 1))),
        (ValueError, "bits: they are (2, 64, 2); expected (3, 64, 2)", tiles(bits=lists.bits[:2])),
        (ValueError, "bits: row 5 of partial tile 2 sees a key past Nk = 90",
         tiles(bits=np.where(np.arange(384).reshape(3, 64, 2) == 266, 1 << 26, lists.bits).astype(np.int32))),
        (ValueError, "bits: row 5 of partial tile 2 sees a key past Nk = 90",
         tiles(bits=np.where(np.arange(384).reshape(3, 64, 2) == 267, 1, lists.bits).astype(np.int32))),
        (ValueError, "full_tiles: tile 1 ends past Nk = 90: it must be a partial one",
         lambda: attend(tiles=whole._replace(full_tiles=numbers(0, 1)))),
        (ValueError, "full_tiles: query tile 0 has key tile 0 in both lists",
         tiles(full_first=numbers(0, 1, 1), full_tiles=numbers(0))),
        (TypeError, "full_first is float64; expected whole numbers", tiles(full_first=np.zeros(3))),
        (ValueError, "tiles: they are of (); expected (batches, heads, Nq, Nk)", tiles(axes=())),
        (TypeError, "mask is float64; expected bool", lambda: flash_ladder.tile_lists(np.ones((2, 2)))),
        (ValueError, "mask is (1, 2, 2); expected (Nq, Nk) or (batches, heads, Nq, Nk)",
         lambda: flash_ladder.tile_lists(np.ones((1, 2, 2), bool))),
        (TypeError, "mask is builtins.list; expected an array", lambda: flash_ladder.tile_lists([[True]])),
        (ValueError, "softcap is -1; expected a number above 0", lambda: attend(softcap=-1)),
        (ValueError, "softcap is nan; expected a number above 0", lambda: attend(softcap=float("nan"))),
        (TypeError, "softcap is 'some'; expected a number", lambda: attend(softcap="some")),
        (ValueError, "alibi_slopes: they are (3); expected (4)", lambda: attend(alibi_slopes=SLOPES[0, :3])),
        (ValueError, "alibi_slopes: they are (2, 4); expected (1, 4)", lambda: attend(alibi_slopes=SLOPES)),
        (TypeError, "alibi_slopes is float64; expected float32", lambda: attend(alibi_slopes=SLOPES[0].astype(float))),
        (ValueError, "sinks: they are (1, 4); expected (4)", lambda: attend(sinks=SINKS[None])),
        (ValueError, "sinks: ", lambda: attend(sinks=[0, 1, float("nan"), 2])),
        (ValueError, "dropout_p is 0.001; expected 0, or 1/256 to 255/256", dropout(0.001)),
        (ValueError, "dropout_p is 1; expected 0, or 1/256 to 255/256", dropout(1)),
        (ValueError, "dropout_p is -0.1; expected 0, or", dropout(-0.1)),
        (ValueError, "dropout_p is nan; expected 0, or", dropout(float("nan"))),
        (TypeError, "dropout_p is 'some'; expected a number", dropout("some")),
        (ValueError, "dropout_p is 0.1 and seed is None: dropout needs a seed", dropout(0.1, None)),
        (ValueError, "seed is -1; expected 0 to 2^64 - 1", dropout(0.1, -1)),
        (ValueError, "seed is 18446744073709551616; expected 0 to 2^64 - 1", dropout(0.1, 2**64)),
        (TypeError, "seed is 1.5; expected a whole number", dropout(0.1, 1.5)),
        (ValueError, "shape is (2, 2); expected (B, H, Nq, Nk)", lambda: flash_ladder.dropout_mask((2, 2), 0.1, 1)),
        (ValueError, "prefix: it needs pages: block_table", decode(prefix=16)),
        (ValueError, "prefix: every row sees it, so it does not go with window", paged(shared, prefix=16, window=(9, 0))),
        (ValueError, "prefix: 17 keys are not so many pages of 16", paged(shared, prefix=17)),
        (ValueError, "prefix: -16 keys are not so many pages of 16", paged(shared, prefix=-16)),
        (ValueError, "prefix: each row must see its 48 keys; one sees 45", paged(shared, prefix=48, causal=True)),
        (ValueError, "prefix: each row must see its 16 keys; one sees 0",
         paged(shared, prefix=16, causal=True, seqused=[48, 2, 48])),
        (ValueError, "prefix: request 2 has its page 1 elsewhere than request 0",
         paged(np.array([[0, 1, 2], [0, 1, 5], [0, 3, 2]], np.int32), prefix=32)),
        (TypeError, "prefix is 16.0; expected a whole number", paged(shared, prefix=16.0)),
        (ValueError, "cu_seqlens_k: they are given without cu_seqlens_q", lambda: attend(cu_seqlens_k=KEYS)),
        (ValueError, "cu_seqlens_q: the first is 1; expected 0", documents([1, 70])),
        (ValueError, "cu_seqlens_q: the last is 69; expected Nq = 70", documents([0, 69])),
        (ValueError, "cu_seqlens_k: the last is 91; expected Nk = 90", documents([0, 70], [0, 91])),
        (ValueError, "cu_seqlens_q: 30 comes after 40: no length is negative", documents([0, 40, 30, 70])),
        (ValueError, "cu_seqlens_q: they are (1); expected (documents + 1)", documents([0])),
        (ValueError, "cu_seqlens_q: they are (1, 2); expected (documents + 1)", documents([[0, 70]])),
        (ValueError, "cu_seqlens_k: they are (5); expected (2)", documents([0, 70])),
        (ValueError, "cu_seqlens_q: the last is 70; expected Nk = 90", documents([0, 70], None)),
        (ValueError, "cu_seqlens_q: documents are packed in one sequence: B must be 1, and is 2",
         lambda: flash_ladder.attention(*problem, cu_seqlens_q=[0, 70])),
        (TypeError, "cu_seqlens_q is float64; expected whole numbers", documents(np.array([0.0, 70.0]))),
        (ValueError, "cu_seqlens_q is array([", documents(np.array([0, 2**32 + 70]))),
        (TypeError, "cu_seqlens_q is [0, 7.5]; expected whole numbers", documents([0, 7.5])),
        (TypeError, "cu_seqlens_q is [0, [1, 2]]; expected whole numbers", documents([0, [1, 2]])),
        (TypeError, "cu_seqlens_q is []; expected whole numbers", documents([])),
        (ValueError, "cu_seqlens_q is [0, 4294967366]; expected numbers below 2^31", documents([0, 2**32 + 70])),
        (TypeError, "cu_seqlens_q is a masked array", documents(np.ma.zeros(2, np.int32))),
        (TypeError, "columns is 'documents'; expected whole numbers", lambda: attend(columns="documents")),
        *((ValueError, f"{name}: ", lambda call=call, number=number: call(number))
          for name, call in (("cu_seqlens_q", lambda x: attend(cu_seqlens_q=x)),
                             ("cu_seqlens_k", lambda x: attend(cu_seqlens_q=[0, 70], cu_seqlens_k=x)),
                             ("columns", lambda x: attend(columns=x)), ("block_table", lambda x: paged(x)()),
                             ("bits", lambda x: tiles(bits=x)()), ("partial_tiles", lambda x: tiles(partial_tiles=x)()))
          for number in (5, np.int32(5), np.array(5, np.int32))),
        (ValueError, "columns: they are (1, 3, 90, 1); expected (1, a divisor of 4 heads, 90, 1, 2 or 4 bounds)",
         columns(1, 3, 90, 1)),
        (ValueError, "columns: they are (1, 1, 89, 1)", columns(1, 1, 89, 1)),
        (ValueError, "columns: they are (1, 1, 90, 3)", columns(1, 1, 90, 3)),
        (ValueError, "columns: they are (90, 1)", columns(90, 1)),
        (ValueError, "columns: a bound is 71; expected 0 to 70", columns(1, 1, 90, 2, fill=71)),
        (ValueError, "columns: a bound is -1; expected 0 to 70", columns(1, 4, 90, 4, fill=-1)),
        (ValueError, "seqused: they are (2); expected (3)", decode(seqused=[1, 2])),
        (ValueError, "seqused: a length is 49; expected 0 to 48", decode(seqused=[1, 2, 49])),
        (ValueError, "seqused: a length is -1; expected 0 to 48", paged(table, seqused=[1, 2, -1])),
        (ValueError, "block_table: a page is 9; expected 0 to 8", paged(table + 1)),
        (ValueError, "block_table: a page is -1; expected 0 to 8", paged(table - 1, seqused=lengths)),
        (ValueError, "block_table: it is (2, 3); expected (3, pages of a request)", paged(table[:2])),
        (ValueError, "block_table: a page has 48 keys; expected a power of two up to 65536",
         lambda: flash_ladder.decode(new, *cache, block_table=table)),
        (ValueError, "k_cache is (3, 48, 2, 64) and v_cache is (3, 47, 2, 64): they must agree",
         lambda: flash_ladder.decode(new, cache[0], cache[1][:, 1:])),
        (ValueError, "q is (2, 4, 4, 64) and k_cache is (3, 48, 2, 64): B must agree",
         lambda: flash_ladder.decode(new[:2], *cache)),
        (ValueError, "q is (3, 4, 4, 32) and k_cache is (3, 48, 2, 64): d must agree",
         lambda: flash_ladder.decode(new[..., :32], *cache)),
        (ValueError, "q is (4, 4, 64), of rank 3; expected (B, Nq, H, d)", lambda: flash_ladder.decode(new[0], *cache)),
        (ValueError, "k_cache is (48, 2, 64), of rank 3; expected (B, N, Hkv, d)",
         lambda: flash_ladder.decode(new, *(x[0] for x in cache))),
        (ValueError, "H = 3 is not a multiple of Hkv = 2", lambda: flash_ladder.decode(new[:, :, :3], *cache)),
        (TypeError, "q is builtins.list; expected an array of NumPy", lambda: flash_ladder.decode([1], *cache)),
        (TypeError, "columns is 3; expected the name of a pattern", lambda: flash_ladder.count(62, columns=3)),
        (TypeError, "tiles is True; expected the name of a pattern, such as 'quarter'",
         lambda: flash_ladder.count(63, tiles=True)),
        (ValueError, "unknown tile lists 'stripes'", lambda: flash_ladder.count(63, tiles="stripes")),
        (ValueError, "dropout '0.001,0': expected P,SEED", lambda: flash_ladder.count(64, dropout_p=0.001)),
        (ValueError, "a shared prefix needs pages", lambda: flash_ladder.count(83, prefix=16)),
        (ValueError, "unknown column bounds 'stripes'", lambda: flash_ladder.count(62, columns="stripes")),
        (ValueError, "cu_seqlens_q is [1, 512]; expected 0 and the end",
         lambda: flash_ladder.count(61, cu_seqlens_q=[1, 512])),
        (ValueError, "documents '512x512' have 512 rows",
         lambda: flash_ladder.count(61, (1, 2, 2, 9, 9, 64), cu_seqlens_q=[0, 512])),
        (ValueError, "a mask is of a shape; without one there are", lambda: flash_ladder.verify(stage_that("documents"), cu_seqlens_q=[0, 9])),
        (ValueError, "pages of 3 keys: expected a power of two", lambda: flash_ladder.count(81, page_size=3)),
        (ValueError, "page_size is 0; expected a power of two",
         lambda: flash_ladder.default_stage((1, 4, 2, 70, 90, 64), page_size=0)),
        (ValueError, "seqused is 5; expected the keys of each request", lambda: flash_ladder.count(80, seqused=5)),
    ]
    for kind, sentence, wrong in refused:
        with pytest.raises(kind, match="^" + re.escape(sentence)):
            wrong()
    flash_ladder.decode(new, *pools, block_table=np.where(table == 3, -7, table), seqused=[48, 0, 48])  # no key is there


def test_integers_of_any_kind(packed, requests):
    """Of Python, NumPy and of any width; one number is the length of every request."""
    expected = flash_ladder.attention(*packed, cu_seqlens_q=ROWS, cu_seqlens_k=KEYS)
    for kind in tuple, np.array, lambda x: np.array(x, np.uint8), lambda x: np.array(x, np.uint64)[::1]:
        assert (flash_ladder.attention(*packed, cu_seqlens_q=kind(ROWS), cu_seqlens_k=kind(KEYS)) == expected).all()
    halves = flash_ladder.attention(*packed, cu_seqlens_q=range(0, 71, 35), cu_seqlens_k=range(0, 91, 45))
    assert (halves == flash_ladder.attention(*packed, cu_seqlens_q=[0, 35, 70], cu_seqlens_k=[0, 45, 90])).all()
    new, *cache, _ = requests
    for x in cache:
        x[:, 5:] = np.nan
    assert np.isfinite(right := flash_ladder.decode(new, *cache, seqused=[5, 5, 5])).all()
    for five in 5, np.int64(5), np.array(5), np.array(5, np.int32):
        assert (flash_ladder.decode(new, *cache, seqused=five) == right).all()


def test_jax_has_features_too(packed, requests):
    jax = pytest.importorskip("jax")
    here = lambda x: jax.numpy.asarray(x, device=jax.devices("cpu")[0])
    O = flash_ladder.attention(*map(here, packed), cu_seqlens_q=here(np.array(ROWS, np.int32)), cu_seqlens_k=KEYS)
    assert (np.asarray(O) == flash_ladder.attention(*packed, cu_seqlens_q=ROWS, cu_seqlens_k=KEYS)).all()
    scores = dict(alibi_slopes=SLOPES[0], sinks=SINKS, softcap=2.0)
    O, L = flash_ladder.attention(*packed, **scores, return_lse=True)
    arrays, made = (*packed, O, L, O), {name: here(x) if name != "softcap" else x for name, x in scores.items()}
    assert (np.asarray(flash_ladder.attention(*map(here, packed), **made)) == O).all()
    dsinks = flash_ladder.attention_backward(*map(here, arrays), **made)[3]
    assert isinstance(dsinks, jax.Array) and dsinks.dtype == np.float32
    assert (np.asarray(dsinks) == flash_ladder.attention_backward(*arrays, **scores)[3]).all()
    seen = visible(70, 90, True, (9, -1))
    assert all(isinstance(x, jax.Array) for x in flash_ladder.tile_lists(here(seen))[1:])
    O = flash_ladder.attention(*map(here, packed), tiles=flash_ladder.tile_lists(here(seen)))
    assert (np.asarray(O) == flash_ladder.attention(*packed, tiles=flash_ladder.tile_lists(seen))).all()
    q, k, v, lengths = requests
    O = flash_ladder.decode(*map(here, requests[:3]), seqused=here(lengths))
    assert isinstance(O, jax.Array) and (np.asarray(O) == flash_ladder.decode(q, k, v, seqused=lengths)).all()
    five = flash_ladder.decode(q, k, v, seqused=[5] * len(q))
    for number in here(np.array(5, np.int32)), here(np.full(len(q), 5, np.int8)):
        assert (np.asarray(flash_ladder.decode(*map(here, (q, k, v)), seqused=number)) == five).all()
    for name in "cu_seqlens_q", "columns":
        with pytest.raises(ValueError, match=f"{name}: they are "):
            flash_ladder.attention(*map(here, packed), **{name: here(np.array(5, np.int32))})
    with pytest.raises(TypeError, match="seqused is float32; expected int32"):
        flash_ladder.decode(*map(here, (q, k, v)), seqused=here(lengths.astype(np.float32)))
    with pytest.raises(TypeError, match="Q is numpy.ndarray and seqused is .*: they must agree"):
        flash_ladder.decode(q, k, v, seqused=here(lengths))
