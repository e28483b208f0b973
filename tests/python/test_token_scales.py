"""Caches in e4m3 of which each token has a scale of its own: decode, quantize and append."""

import pytest

np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

import flash_ladder  # noqa: E402
from conftest import reference, stage_that  # noqa: E402
from flash_ladder import decode, quantize  # noqa: E402

if why := flash_ladder._core.why_not("cpu"):
    pytest.skip(why, allow_module_level=True)

E4M3 = ml_dtypes.float8_e4m3fn
OF_TOKENS = stage_that("token_scales")


def drawn(*axes, seed=1):
    return np.random.default_rng(seed).normal(size=axes).astype(np.float16)


def exact(q, k, v, k_scale, v_scale, keys):
    """O and L (B, Nq, H, d) of (B, N, Hkv, d) caches in e4m3 in double precision, request by request."""
    results = []
    for b, n in enumerate(keys):
        of = lambda x, scale: (x[b, :n].astype(float) * scale[b, :n, :, None].astype(float)).swapaxes(0, 1)[None]
        O, L = reference(q[b].swapaxes(0, 1)[None], of(k, k_scale), of(v, v_scale))
        results.append((O[0].swapaxes(0, 1), L[0]))
    return (np.stack(some) for some in zip(*results))


def relative(got, expected):
    return np.linalg.norm(got.astype(float) - expected) / np.linalg.norm(expected)


def test_quantize_gives_each_token_its_scale():
    x = drawn(2, 30, 3, 64)
    x[1, 4, 2] = 0
    numbers, scale = quantize(x, axis=2, per_token=True)
    assert scale.shape == (2, 30, 3) and scale.dtype == np.float32 and (scale > 0).all()
    largest = abs(numbers.astype(float)).max(-1)
    assert (np.delete(largest.reshape(-1), np.flatnonzero(largest == 0)) == 448).all() and (largest == 0).sum() == 1
    assert (abs(numbers.astype(float) * scale[..., None] - x) <= abs(x.astype(float)) / 16 + scale[..., None] / 512).all()
    same, given = quantize(x, axis=2, per_token=True, scale=scale)
    assert given is scale and (same.view("uint8") == numbers.view("uint8")).mean() > 0.99
    with pytest.raises(ValueError, match=r"scale is \(2, 3\) of float32; expected \(2, 30, 3\) numbers"):
        quantize(x, axis=2, per_token=True, scale=scale[:, 0])


@pytest.mark.parametrize("d, page_size, bf16", [(64, 0, False), (64, 16, True), (128, 1, False), (256, 32, True)])
@pytest.mark.parametrize("heads_first", [False, True])
def test_decode_takes_a_scale_for_each_token(d, page_size, bf16, heads_first):
    """Of all magnitudes, in the layout of the cache or with those of a head side by side; NaN where there is no key."""
    B, N, Hkv, keys = 2, 320, 2, [320, 77]
    rng = np.random.default_rng(d)
    q = drawn(B, 2, 4, d).astype(ml_dtypes.bfloat16 if bf16 else np.float16)
    k, v = (drawn(B, N, Hkv, d, seed=s).astype(E4M3) for s in (2, 3))
    k_scale = np.exp(rng.normal(size=(B, N, Hkv)) * 0.5).astype(np.float32)
    v_scale = np.exp2(rng.uniform(-12, 3, size=(B, N, Hkv))).astype(np.float32)
    O, L = exact(q.astype(float), k, v, k_scale, v_scale, keys)
    for x in (k, v, k_scale, v_scale):
        for b, n in enumerate(keys):
            x[b, n:] = np.nan
    given = dict(seqused=keys)
    if page_size > 0:
        pages = N // page_size
        order = rng.permutation(B * pages)
        given["block_table"] = np.argsort(order).reshape(B, pages).astype(np.int32)
        k, v, k_scale, v_scale = (x.reshape(B * pages, page_size, *x.shape[2:])[order] for x in (k, v, k_scale, v_scale))
    if heads_first:
        k_scale, v_scale = (x.swapaxes(1, 2).copy().swapaxes(1, 2) for x in (k_scale, v_scale))
    o, lse = decode(q, k, v, k_scale=k_scale, v_scale=v_scale, return_lse=True, backend="checked", **given)
    assert relative(o, O) < (0.004 if bf16 else 0.001)
    assert abs(lse - L).max() < 1e-3


@pytest.mark.parametrize("low, high, odd", [(-100, -60, None), (60, 100, None), (-20, 5, 1.0), (-3, 0, 2.0**-100),
                                            (-20, -15, 1.0)])
def test_scales_of_v_may_be_of_any_magnitude(low, high, odd):
    """Also where one, `odd`, is far from all others, of a row of zeros: O keeps its bits."""
    q, (k, v) = drawn(1, 1, 2, 64).astype(ml_dtypes.bfloat16), (drawn(1, 700, 1, 64, seed=s).astype(E4M3) for s in (2, 3))
    v_scale = np.exp2(np.random.default_rng(1).uniform(low, high, size=(1, 700, 1))).astype(np.float32)
    k_scale = np.full_like(v_scale, 0.5)
    if odd is not None:
        v[0, 300], v_scale[0, 300] = 0, odd
    O, L = exact(q.astype(float), k, v, k_scale, v_scale, [700])
    o, lse = decode(q, k, v, k_scale=k_scale, v_scale=v_scale, return_lse=True)
    assert relative(o, O) < 0.005 and abs(lse - L).max() < 1e-3


def test_what_does_not_fit_is_refused():
    q, k, v = drawn(2, 1, 4, 64), *(drawn(2, 20, 2, 64, seed=s) for s in (2, 3))
    (k8, k_scale), (v8, v_scale) = (quantize(x, axis=2, per_token=True) for x in (k, v))
    of_heads = quantize(v, axis=2)[1]
    scales = dict(k_scale=k_scale, v_scale=v_scale)
    bad = k_scale.copy()
    bad[1, 7, 1] = np.nan
    decode(q, k8, v8, **{**scales, "k_scale": bad}, seqused=[20, 7])
    for text, call in [
            ("k_scale and v_scale: both are of heads, or both of tokens", lambda: decode(q, k8, v8, k_scale=k_scale, v_scale=of_heads)),
            (r"k_scale: they are \(2, 2, 19\); expected \(2, 2, 20\)", lambda: decode(q, k8, v8, k_scale=k_scale[:, :19], v_scale=v_scale)),
            ("k_scale: one is nan; expected numbers above 0", lambda: decode(q, k8, v8, **{**scales, "k_scale": bad})),
            ("no stage computes attention with a shared prefix, a scale for each token, K and V in e4m3|"
             "no stage computes attention with .*a scale for each token.*",
             lambda: decode(q, k8.reshape(5, 8, 2, 64), v8.reshape(5, 8, 2, 64), k_scale=k_scale.reshape(5, 8, 2),
                            v_scale=v_scale.reshape(5, 8, 2), block_table=[[0, 1], [0, 2]], prefix=8)),
            (".* does not take a scale for each token|.* does not take K and V in e4m3",
             lambda: decode(q, k8, v8, **scales, stage=6))]:
        with pytest.raises(ValueError, match="^" + text):
            call()


def test_the_stage_is_verified_and_counted_with_them():
    problem = dict(shape=(2, 4, 2, 1, 300, 64), seqused=[300, 40], page_size=16, scales="token")
    assert [result["failed"] for result in flash_ladder.verify(OF_TOKENS, **problem)] == [0]
    count = flash_ladder.count(OF_TOKENS, **problem)
    assert count["async_copies"] > flash_ladder.count(OF_TOKENS, **{**problem, "scales": None})["async_copies"]


def test_append_gives_each_new_row_its_scale():
    """As quantize() does, and in pages as without; a row of zeros gets 1, and no other scale changes."""
    torch = pytest.importorskip("torch")
    from flash_ladder.torch import append
    k, v = (torch.from_numpy(drawn(2, 40, 2, 64, seed=s)) for s in (2, 3))
    v[1, 38, 1] = 0
    quantized = [quantize(x, axis=2, per_token=True) for x in (k, v)]
    for in_pages in False, True:
        axes = (10, 16, 2) if in_pages else (2, 48, 2)
        table = torch.tensor([[7, 2, 9], [0, 1, 4]], dtype=torch.int32)
        at = torch.arange(40)
        place = (table[:, at // 16].long(), at % 16) if in_pages else (torch.arange(2)[:, None], at)
        caches = [torch.zeros(*axes, 64, dtype=torch.float8_e4m3fn) for _ in "kv"]
        scales = [torch.full((axes[0], 2, axes[1]), -5.0).transpose(1, 2) for _ in "kv"]
        given = dict(k_scale=scales[0], v_scale=scales[1], **({"block_table": table} if in_pages else {}))
        lengths, version = torch.tensor([0, 0]), scales[0]._version
        for first, n in ((0, 37), (37, 3)):
            _, lengths = append(*caches, k[:, first:first + n], v[:, first:first + n], lengths, backend="checked", **given)
        assert lengths.tolist() == [40, 40] and scales[0]._version > version
        for cache, scale, (numbers, wanted) in zip(caches, scales, quantized):
            got = scale[place]
            zeros = (numbers.float() == 0).all(-1)
            assert torch.equal(got[~zeros], wanted[~zeros]) and (got[zeros] == 1).all()
            assert (scale == -5).sum() == scale.numel() - 2 * 40 * 2
            assert (cache[place].view(torch.uint8) == numbers.view(torch.uint8)).float().mean() > 0.999
            assert (abs(cache[place].float() - numbers.float()) <= abs(numbers.float()) / 8 + 2**-9).all()
        q = torch.from_numpy(drawn(2, 1, 4, 64))
        o = flash_ladder.decode(q, *caches, seqused=lengths.int(), **given)
        dense = flash_ladder.decode(q, *(x for x, _ in quantized), k_scale=quantized[0][1], v_scale=quantized[1][1])
        assert (o - dense).abs().max() < 2e-3
    with pytest.raises(ValueError, match=r"v_scale is \(2, 40, 2\); expected \(10, 16, 2\)"):
        append(*caches, k, v, lengths * 0, k_scale=scales[0], v_scale=quantized[1][1], block_table=table)
    with pytest.raises(ValueError, match="both are of heads, or both of tokens"):
        append(*caches, k, v, lengths * 0, k_scale=scales[0], v_scale=torch.ones(2, 2), block_table=table)


def test_a_compiled_call_takes_them():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(drawn(2, n, 2, 64, seed=n)) for n in (1, 40, 41))
    (k8, k_scale), (v8, v_scale) = (quantize(x[:, :40], axis=2, per_token=True) for x in (k, v))
    step = lambda q, k_scale, v_scale: flash_ladder.decode(q + 0, k8, v8, k_scale=k_scale, v_scale=v_scale)
    expected = step(q, k_scale, v_scale)
    assert torch.equal(torch.compile(step, fullgraph=True, backend="aot_eager")(q, k_scale, v_scale), expected)
