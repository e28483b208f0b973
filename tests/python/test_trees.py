"""Drafts that are trees: each row is what it would be as the last one of its path alone, on the CPU back-end."""

import re

import numpy as np
import pytest
from conftest import stage_that

import flash_ladder

if why := flash_ladder._core.why_not("cpu"):
    pytest.skip(why, allow_module_level=True)

#: Medusa's (arXiv 2401.10774): some of the best tokens at each step; SpecInfer's (arXiv 2305.09781): merged sequences
MEDUSA = [-1, -1, -1, -1, 0, 0, 0, 1, 1, 1, 4, 4]
SPEC_INFER = [-1, 0, 1, 2, 1, 4, 5, 0, 7, 3, -1, 10]
SLOPES, SINKS = np.array([0.5, 0, 1 / 32, 0.1], np.float32), np.array([0, 3, -5, 8], np.float32)
ROWS, PAGE, LENGTHS = len(MEDUSA), 16, [100, 37, 12]  # a request has the draft alone


def paths_of(parents):
    """The ancestors of each row and the row, in their order."""
    paths = []
    for i, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), i])
    return paths


@pytest.fixture
def requests():
    """q (B, Nq, H, d), and caches of 112 keys."""
    random = np.random.default_rng(3)
    return [random.standard_normal((3, n, heads, 64)).astype(np.float16) for n, heads in ((ROWS, 4), (112, 2), (112, 2))]


def in_pages(cache):
    """A pool of pages in another order, and the table."""
    pages = cache.reshape(-1, PAGE, *cache.shape[2:])
    order = np.random.default_rng(4).permutation(len(pages)).astype(np.int32)
    pool = np.empty_like(pages)
    pool[order] = pages
    return pool, order.reshape(len(cache), -1)


def alone(q, k, v, trees, **options):
    """The same, row by row, of a cache that ends with the row's path."""
    O, L = np.zeros_like(q), np.zeros((3, 4, ROWS), np.float32)
    for b, length in enumerate(LENGTHS):
        for row, path in enumerate(paths_of(trees[b])):
            keys = [*range(length - ROWS), *(length - ROWS + k for k in path)]
            one, lse = flash_ladder.decode(q[b:b + 1, row:row + 1], k[b:b + 1, keys], v[b:b + 1, keys], causal=True,
                                           return_lse=True, **options)
            O[b, row], L[b, :, row] = one[0, 0], lse[0, :, 0]
    return O, L


@pytest.mark.parametrize("options", [{}, {"window": (40, 0)}, {"window": (1, -1), "sinks": SINKS}, {"softcap": 2.0},
                                     {"alibi_slopes": SLOPES, "window": (20, 0), "softcap": 3.0, "sinks": SINKS}], ids=str)
@pytest.mark.parametrize("paged", [False, True])
def test_a_row_is_the_last_of_its_path(requests, paged, options):
    q, k, v = requests
    trees = [MEDUSA, SPEC_INFER, list(range(-1, ROWS - 1))]
    exact = alone(q, k, v, trees, **options)
    cache, table = (k, v), {}
    if paged:
        (K, order), (V, _) = in_pages(k), in_pages(v)
        cache, table = (K, V), {"block_table": order}
    O, L = flash_ladder.decode(q, *cache, **table, seqused=LENGTHS, causal=True, tree=flash_ladder.tree_words(trees),
                               return_lse=True, backend="checked", **options)
    assert abs(O - exact[0]).max() < 4e-3 and abs(L - exact[1]).max() < 1e-3


def test_one_tree_for_all_and_a_prefix(requests):
    q, k, v = requests
    k[:], v[:] = k[:1], v[:1]
    exact = alone(q, k, v, [SPEC_INFER] * 3)
    words = flash_ladder.tree_words(SPEC_INFER)
    for tree in words, words.tolist(), words.astype(np.uint64), words.view(np.int32):
        O = flash_ladder.decode(q, k, v, seqused=LENGTHS, causal=True, tree=tree)
        assert abs(O - exact[0]).max() < 4e-3
    pools = [in_pages(x)[0] for x in (k, v)]
    table = np.tile(in_pages(k)[1][:1], (3, 1))
    lengths = [100, 60, 32 + ROWS]
    shared, plain = (flash_ladder.decode(q, *pools, block_table=table, seqused=lengths, causal=True, tree=tree, prefix=n,
                                         alibi_slopes=SLOPES, backend="checked") for n in (32, 0))
    assert abs(shared - plain).max() < 4e-3


def test_a_chain_is_what_a_causal_mask_leaves(requests):
    q, k, v = requests
    stage = stage_that("tree")
    chain = flash_ladder.tree_words(list(range(-1, ROWS - 1)))
    options = dict(seqused=LENGTHS, causal=True, window=(30, 0), stage=stage)
    assert (flash_ladder.decode(q, k, v, tree=chain, **options) == flash_ladder.decode(q, k, v, **options)).all()


def test_with_pytorch(requests):
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x) for x in requests)
    parents = torch.tensor([MEDUSA, SPEC_INFER, MEDUSA])
    words = flash_ladder.tree_words(parents)
    assert words.dtype == torch.int64 and words.shape == (3, ROWS)
    expected = flash_ladder.decode(*requests, seqused=LENGTHS, causal=True, tree=words.numpy())
    for tree in words, words.repeat_interleave(2, 1)[:, ::2]:
        got = flash_ladder.decode(q, k, v, seqused=LENGTHS, causal=True, tree=tree)
        assert (got.numpy() == expected).all()


def test_words():
    assert flash_ladder.tree_words([-1, 0, 0, 1]).tolist() == [1, 3, 5, 11]
    long = flash_ladder.tree_words(list(range(-1, 63)))
    assert long.dtype == np.int64 and long[63] == -1 and long[62] == 2**63 - 1
    assert flash_ladder.tree_words([[-1, 0], [-1, -1]]).tolist() == [[1, 3], [1, 2]]
    for wrong in [[]], [0], [-1, 1], [-1, -2], [0.5], list(range(-1, 64)), [[[-1]]]:
        with pytest.raises(ValueError, match="^parents"):
            flash_ladder.tree_words(wrong)


def test_what_is_wrong_is_refused_by_name(requests):
    q, k, v = requests
    words = flash_ladder.tree_words(MEDUSA)
    other = stage_that("pages", lacks=["tree"])

    def decode(tree=words, causal=True, **options):
        return flash_ladder.decode(q, k, v, tree=tree, causal=causal, **options)
    long = np.zeros((3, 65, 4, 64), np.float16)
    for sentence, wrong in (
            ("tree: it needs causal", lambda: decode(causal=False)),
            ("tree: it is of (11) words; expected (12) or (3, 12)", lambda: decode(words[:11])),
            ("tree: it is of (2, 12) words; expected (12) or (3, 12)", lambda: decode(np.tile(words, (2, 1)))),
            ("tree: the highest bit of row 3 is not bit 3, its own", lambda: decode(np.where(words == 8, 24, words))),
            ("tree: the highest bit of row 3 is not bit 3, its own", lambda: decode(np.where(words == 8, 0, words))),
            ("tree: a draft of 65 rows; at most 64",
             lambda: flash_ladder.decode(long, k, v, causal=True, tree=np.ones(65, np.int64))),
            (f"{other} does not take a draft that is a tree", lambda: decode(stage=other))):
        with pytest.raises(ValueError, match="^" + re.escape(sentence)):
            wrong()
