"""float8_e4m3fn with scales: caches, Q, K and V, and quantize(), for each library's arrays."""

import re

import numpy as np
import pytest
from conftest import reference, relative, stage_that

ml_dtypes = pytest.importorskip("ml_dtypes")
import flash_ladder
from flash_ladder import attention, decode, quantize

E4M3 = ml_dtypes.float8_e4m3fn
ON_CPU = not flash_ladder._core.why_not("cpu")
GPU = not flash_ladder._core.why_not("gpu")
# One that takes 16 bits alone, one for caches of 8 bits, one that multiplies 8 bits, and one that is given them.
PLAIN, OF_CACHES, OF_8_BITS = stage_that(), stage_that(products="8-bit cache"), stage_that(products="8 bits")
OF_E4M3 = stage_that(products="8 bits of e4m3")


NOT_OF_CACHES = {"a sliding window": {"window": (5, 0)}, "a softcap": {"softcap": 30.0}, "ALiBi": {"alibi_slopes": [0.5] * 4},
                 "attention sinks": {"sinks": [0.5] * 4}}


class OfNumPy:
    make = staticmethod(np.array)
    read = staticmethod(lambda x: np.asarray(x).astype(np.float64))
    in_bf16 = staticmethod(lambda x: x.astype(ml_dtypes.bfloat16))
    bf16, e4m3 = ml_dtypes.bfloat16, E4M3


class OfPyTorch:
    def __init__(self):
        self.torch = pytest.importorskip("torch")
        self.device = "cuda" if GPU else "cpu"
        self.bf16, self.e4m3 = self.torch.bfloat16, self.torch.float8_e4m3fn

    def make(self, x):
        return self.torch.from_numpy(x).to(self.device)

    def in_bf16(self, x):
        return x.bfloat16()

    def read(self, x):
        return x.cpu().double().numpy()


class OfJax(OfNumPy):
    def __init__(self):
        self.jax = pytest.importorskip("jax")

    def make(self, x):
        return self.jax.numpy.asarray(x, device=self.jax.devices("cpu")[0])


@pytest.fixture(params=[OfNumPy, OfPyTorch, OfJax])
def library(request):
    if not ON_CPU and request.param is not OfPyTorch:
        pytest.skip(flash_ladder._core.why_not("cpu"))
    return request.param()


def drawn(*axes, seed=1):
    """With outliers in one head, by which scales differ."""
    x = np.random.default_rng(seed).standard_normal(axes).astype(np.float16)
    x[0, :, 0] *= 7
    return x


def caches(d=64, keys=300):
    """q (B, Nq, H, d), k_cache and v_cache (B, N, Hkv, d)"""
    return drawn(2, 5, 4, d), drawn(2, keys, 2, d, seed=2), drawn(2, keys, 2, d, seed=3)


def rounded(x):
    """Numbers in e4m3 and scales of a cache, as the harness rounds them."""
    largest = np.abs(x.astype(np.float32)).max((1, 3), keepdims=True)
    return (x.astype(np.float32) * (np.float32(448) / largest)).astype(E4M3), (largest / np.float32(448))[:, 0, :, 0]


def of_cache(q, k, v, scales, causal=False):
    """O and L in double precision, of numbers in e4m3."""
    k, v = (x.astype(np.float64) * scale[:, None, :, None] for x, scale in zip((k, v), scales))
    O, L = reference(*(x.swapaxes(1, 2) for x in (q, k, v)), causal=causal)
    return O.swapaxes(1, 2), L


def test_quantize_rounds_as_the_harness_does(library):
    cache = caches()[1]
    exact, exact_scale = rounded(cache)
    for axis, x in (2, cache), (1, cache.swapaxes(1, 2)):
        given = library.make(x)
        numbers, scale = quantize(given, axis=axis)
        expected = exact if axis == 2 else exact.swapaxes(1, 2)
        assert numbers.dtype == library.e4m3 and (library.read(numbers) == expected.astype(float)).all()
        assert "float32" in str(scale.dtype) and (library.read(scale) == exact_scale).all()
        assert (library.read(given) == x).all()  # is only read
    numbers, scale = (library.read(x) for x in quantize(library.make(cache), axis=2, power_of_two=True))
    assert (np.frexp(scale)[0] == 0.5).all()
    largest = np.abs(numbers).max((1, 3))
    assert ((largest >= 224) & (largest <= 448)).all()
    assert relative(numbers * scale[:, None, :, None], cache.astype(float)) < 0.03
    numbers, scale = quantize(library.make(cache), axis=2, power_of_two=True)
    same, given = quantize(library.make(cache), axis=2, scale=scale)
    assert given is scale and same.dtype == library.e4m3 and (library.read(same) == library.read(numbers)).all()
    small, _ = quantize(library.make(cache), axis=2, scale=scale / 8)  # beyond 448 nothing becomes NaN
    assert (library.read(small) == np.clip(8 * library.read(numbers), -448, 448)).mean() > 0.5
    assert abs(library.read(small)).max() == 448
    for wrong in scale[0], scale[:, :1], 0.5:
        with pytest.raises(ValueError, match="^scale is .*; expected .* numbers in float32"):
            quantize(library.make(cache), axis=2, scale=wrong)
    for x in np.zeros((1, 2, 3, 4), np.float32), np.full((1, 2, 3, 4), 448 / 64, np.float32):
        numbers, scale = (library.read(part) for part in quantize(library.make(x), power_of_two=True))
        assert np.isfinite(scale).all() and (numbers * scale[..., None, None] == x).all()


@pytest.mark.parametrize("d, causal, bf16", [(64, False, False), (128, True, True)])
def test_a_cache_in_8_bits(library, d, causal, bf16):
    q, k, v = caches(d)
    q = library.make(q)
    if bf16:
        q = library.in_bf16(q)
    (k, k_scale), (v, v_scale) = (quantize(library.make(x), axis=2) for x in (k, v))
    O, L = decode(q, k, v, k_scale=k_scale, v_scale=v_scale, causal=causal, return_lse=True, backend="checked")
    assert O.shape == q.shape and O.dtype == q.dtype
    exact_O, exact_L = of_cache(*(library.read(x) for x in (q, k, v)), [library.read(x) for x in (k_scale, v_scale)],
                                causal)
    assert relative(library.read(O), exact_O) < (8e-3 if bf16 else 1e-3)
    assert abs(library.read(L) - exact_L).max() < 1e-4
    decode(q, *(library.in_bf16(library.make(x)) if bf16 else library.make(x) for x in caches(d)[1:]), causal=causal)
    same = decode(q, k, v, k_scale=k_scale, v_scale=v_scale, causal=causal)  # whatever ran last for such axes
    assert (library.read(same) == library.read(O)).all()
    same = decode(q, k, v, k_scale=k_scale, v_scale=v_scale, causal=causal, stage=OF_CACHES)
    assert (library.read(same) == library.read(O)).all()


@pytest.mark.parametrize("d, bf16, page_size", [(64, False, 16), (128, True, 1), (256, False, 0)])
def test_a_cache_in_8_bits_has_lengths_and_pages(library, d, bf16, page_size):
    """Entries past the last page, pages that no request has and slots past the last key are anything: NaN has a byte, too."""
    lengths = [37, 150]
    q, k, v = caches(d, 160)
    given = library.in_bf16(library.make(q)) if bf16 else library.make(q)
    rounded_caches, scales = zip(*(rounded(x) for x in (k, v)))
    stale = [x.view(np.uint8).copy() for x in rounded_caches]
    for x in stale:
        for request, length in zip(x, lengths):
            request[length:] = 0x7f
    asked = dict(seqused=lengths, causal=True, return_lse=True, k_scale=library.make(scales[0]), v_scale=library.make(scales[1]))
    if page_size > 0:
        n = 160 // page_size
        order = np.random.default_rng(4).permutation(2 * n + 3)  # three pages are no request's
        table = order[:2 * n].reshape(2, n).astype(np.int32)
        pools = [np.full((2 * n + 3, page_size, 2, d), 0x7f, np.uint8) for _ in stale]
        for pool, x in zip(pools, stale):
            pool[table] = x.reshape(2, n, page_size, 2, d)
        for row, length in zip(table, lengths):
            row[-(-length // page_size):] = 10**6
        stale, asked["block_table"] = pools, table.tolist()
    in_8_bits = [library.make(x).view(library.e4m3) for x in stale]
    O, L = decode(given, *in_8_bits, **asked, backend="checked")
    for b, length in enumerate(lengths):
        exact_O, exact_L = of_cache(library.read(given)[b:b + 1], *(x[b:b + 1, :length] for x in rounded_caches),
                                    [scale[b:b + 1] for scale in scales], True)
        assert relative(library.read(O)[b:b + 1], exact_O) < (8e-3 if bf16 else 1e-3)
        assert abs(library.read(L)[b:b + 1] - exact_L).max() < 1e-4
    empty, nothing = decode(given, *in_8_bits, **{**asked, "seqused": [0, 1], "causal": False})
    assert (library.read(empty)[0] == 0).all() and (library.read(nothing)[0] == -np.inf).all()
    assert np.isfinite(library.read(empty)).all() and np.isfinite(library.read(nothing)[1]).all()


def test_scales_are_numbers_lists_or_arrays(library):
    q, k, v = map(library.make, caches())
    k, v = (quantize(x, axis=2)[0] for x in (k, v))
    each = [[0.5, 0.5], [0.5, 0.5]]
    expected = library.read(decode(q, k, v, k_scale=each, v_scale=0.25))
    for given in 0.5, np.float32(0.5), library.make(np.array(0.5, np.float32)), library.make(np.array(each, np.float32)):
        assert (library.read(decode(q, k, v, k_scale=given, v_scale=0.25)) == expected).all()
    pair = np.stack([library.read(x) for x in (k, v)], 2).astype(E4M3)  # interleaved, so rows of K are 2 Hkv d apart
    if type(library) is OfNumPy:
        assert (decode(q, *(pair[:, :, i] for i in (0, 1)), k_scale=0.5, v_scale=0.25) == expected).all()


def needs_stage(stage):
    """Skips where a stage cannot run: those of 8 bits need Hopper's instructions, or the CPU back-end."""
    if GPU:
        torch = pytest.importorskip("torch")
        if torch.cuda.get_device_capability()[0] * 10 < flash_ladder.stages(stage)[0].compute_capability:
            pytest.skip(f"{stage} does not run on this GPU")


@pytest.mark.parametrize("stage", [OF_8_BITS, "incoherent"])
def test_q_k_and_v_in_8_bits_are_exactly_those_in_bf16(library, stage):
    needs_stage(stage)
    problem = [drawn(1, heads, rows, 64, seed=rows) for heads, rows in ((2, 70), (1, 90), (1, 91))]
    problem[2] = problem[2][:, :, :90]
    numbers, scales = zip(*(quantize(library.make(x), power_of_two=True) for x in problem))
    names = dict(zip(("q_scale", "k_scale", "v_scale"), scales))
    O, L = attention(*numbers, **names, causal=True, stage=stage, return_lse=True)
    assert O.dtype == library.bf16 and O.shape == problem[0].shape
    wide = [library.read(x) * library.read(scale)[..., None, None] for x, scale in zip(numbers, scales)]
    in_bf16 = [x.astype(ml_dtypes.bfloat16) for x in wide]
    assert all((x.astype(float) == y).all() for x, y in zip(in_bf16, wide))
    if ON_CPU and not GPU:
        same = attention(*in_bf16, causal=True, stage=stage)
        assert (library.read(O) == same.astype(float)).all()
    assert relative(library.read(O), reference(*wide, causal=True)[0]) < 0.08


@pytest.mark.parametrize("d, out, promotion", [(64, "bfloat16", False), (128, "float16", True), (80, "float16", False)])
def test_q_k_and_v_in_8_bits_as_they_are(library, d, out, promotion):
    needs_stage(OF_E4M3)
    problem = [drawn(2, heads, rows, d, seed=rows) for heads, rows in ((4, 70), (2, 90), (2, 91))]
    problem[2] = problem[2][:, :, :90]
    numbers, scales = zip(*(quantize(library.make(x)) for x in problem))
    factors = [library.read(scale).astype(np.float32) * np.float32(1 + 0.3 * i) for i, scale in enumerate(scales)]
    names = dict(zip(("q_scale", "k_scale", "v_scale"), map(library.make, factors)))
    O, L = attention(*numbers, **names, causal=True, out_dtype=out, promotion=promotion, return_lse=True, backend="checked")
    assert str(O.dtype).removeprefix("torch.") == out and O.shape == problem[0].shape
    exact_O, exact_L = reference(*(library.read(x) * factor[..., None, None] for x, factor in zip(numbers, factors)), causal=True)
    assert relative(library.read(O), exact_O) < 0.04
    assert (abs(library.read(L) - exact_L) < 2.0**-11 * np.maximum(1, abs(exact_L))).all()  # sums of scores keep 13 bits
    rows = [library.read(x).astype(E4M3).swapaxes(1, 2).copy() for x in numbers]  # (B, N, H, d)
    if type(library) is OfNumPy:
        same = attention(*(x.swapaxes(1, 2) for x in rows), **names, causal=True, out_dtype=out, promotion=promotion)
        assert (same.astype(float) == library.read(O)).all()


def test_stages_are_not_listed_in_each_call(monkeypatch):
    needs_stage(OF_8_BITS)
    library = OfNumPy()
    list_stages, asked = flash_ladder._core.list_stages, []
    monkeypatch.setattr(flash_ladder._core, "list_stages", lambda words: asked.append(words) or list_stages(words))
    numbers = [quantize(library.make(drawn(1, 1, 8, 64)), power_of_two=True)[0] for _ in range(3)]
    for stage in int(OF_8_BITS[:2]), OF_8_BITS, OF_8_BITS[3:]:
        attention(*numbers, q_scale=1, k_scale=1, v_scale=1, stage=stage)
    assert len(asked) <= 1


@pytest.mark.skipif(not ON_CPU, reason="there is no CPU back-end")
def test_what_no_stage_takes_is_refused_by_name():
    q, k, v = caches()
    (k8, k_scale), (v8, v_scale) = quantize(k, axis=2), quantize(v, axis=2)
    scales = {"k_scale": k_scale, "v_scale": v_scale}
    first = [x.swapaxes(1, 2) for x in (q, k, v)]
    Q8 = [quantize(x)[0] for x in first]
    apart = np.zeros((2, 300, 2, 72), np.uint8).view(E4M3)[..., :64]
    own = dict(q_scale=1, k_scale=1, v_scale=1)
    refused = [
        (ValueError, f"{PLAIN} does not take K and V in e4m3", lambda: decode(q, k8, v8, **scales, stage=PLAIN)),
        (ValueError, f"{OF_CACHES} takes K and V in e4m3 alone", lambda: decode(q, k, v, stage=OF_CACHES)),
        (ValueError, f"{OF_CACHES} takes K and V in e4m3 alone", lambda: attention(*first, stage=OF_CACHES)),
        *((ValueError, f"{OF_CACHES} does not take {name}",
           lambda asked=asked: decode(q, k8, v8, **scales, **asked, stage=OF_CACHES)) for name, asked in NOT_OF_CACHES.items()),
        *((ValueError, f"no stage computes attention with .*{name}.*, K and V in e4m3 at head dimension 64",
           lambda asked=asked: decode(q, k8, v8, **scales, **asked)) for name, asked in NOT_OF_CACHES.items()),
        *((ValueError, f"{name}: one is {number}; expected ", lambda name=name, number=number:
           decode(q, k8, v8, **{**scales, name: number}, seqused=3)) for name in scales for number in (0, -1, float("nan"))),
        (ValueError, r"k_cache is float8_e4m3fn and k_scale is None; expected a number, \(B, Hkv\) of them, or one of each",
         lambda: decode(q, k8, v8)),
        (ValueError, "v_cache is float8_e4m3fn and v_scale is None", lambda: decode(q, k8, v8, k_scale=1)),
        (TypeError, "k_scale is given and k_cache is float16; expected float8_e4m3fn", lambda: decode(q, k, v, **scales)),
        (TypeError, "k_cache is float8_e4m3fn and v_cache is float16", lambda: decode(q, k8, v, k_scale=1)),
        (TypeError, "k_scale is given and k_cache is uint8", lambda: decode(q, k8.view("uint8"), v8, **scales)),
        (TypeError, "Q is float8_e4m3fn; expected float16 or bfloat16", lambda: decode(Q8[0], k8, v8, **scales)),
        (TypeError, "Q is float16 and K is float8_e5m2: they must agree", lambda: decode(*(x.astype(ml_dtypes.float8_e5m2) if x is not q else x
                                                         for x in (q, k, v)))),
        (ValueError, r"k_scale: they are \(2\); expected \(2, 2\)",
         lambda: decode(q, k8, v8, k_scale=k_scale[0], v_scale=v_scale)),
        (ValueError, "v_scale: one is nan; expected finite numbers",
         lambda: decode(q, k8, v8, k_scale=1, v_scale=float("nan"))),
        (TypeError, "k_scale is float64; expected float32",
         lambda: decode(q, k8, v8, k_scale=k_scale.astype(float), v_scale=1)),
        (TypeError, "k_scale is 'x'; expected a number", lambda: decode(q, k8, v8, k_scale="x", v_scale=1)),
        (ValueError, r"K: its strides in elements, .*72.*, must be multiples of 16", lambda: decode(q, apart, apart, **scales)),
        (TypeError, "Q is float8_e4m3fn; expected float16 or bfloat16", lambda: attention(*Q8, stage=OF_8_BITS)),
        (ValueError, f"{PLAIN} does not take Q, K and V in e4m3", lambda: attention(*Q8, stage=PLAIN, **own)),
        (ValueError, f"{OF_CACHES} takes K and V in e4m3 alone", lambda: attention(*Q8, stage=OF_CACHES, **own)),
        (ValueError, f"{OF_E4M3} takes Q, K and V in e4m3 alone: attention has q_scale", lambda: attention(*first, stage=OF_E4M3)),
        (ValueError, "no stage computes attention with a sliding window, Q, K and V in e4m3",
         lambda: attention(*Q8, window=(5, 0), **own)),
        *((ValueError, f"{name}: one is {number}; expected ", lambda name=name, number=number:
           attention(*Q8, **{**own, name: number})) for name in own for number in (0, -1, float("inf"), float("nan"))),
        (ValueError, r"q_scale: they are \(2, 2\); expected \(2, 4\)", lambda: attention(*Q8, **{**own, "q_scale": k_scale})),
        (ValueError, "out_dtype is given and Q has no scale", lambda: attention(*first, out_dtype="float16")),
        (TypeError, "out_dtype is float32; expected float16 or bfloat16", lambda: attention(*Q8, **own, out_dtype="float32")),
        (ValueError, "out_dtype is float16, and a stage that rounds bf16 has O in bfloat16",
         lambda: attention(*Q8, **own, out_dtype="float16", stage=OF_8_BITS)),
        (ValueError, f"{PLAIN} does not take promotion", lambda: attention(*first, promotion=True, stage=PLAIN)),
        (ValueError, "k_scale must be powers of two: by these alone bf16 holds K exactly",
         lambda: attention(*Q8, stage=OF_8_BITS, q_scale=1, k_scale=0.3, v_scale=1)),
        (ValueError, "q_scale must be powers of two", lambda: attention(*Q8, stage=OF_8_BITS, q_scale=-1, k_scale=1, v_scale=1)),
        (ValueError, "V is float8_e4m3fn and v_scale is None", lambda: attention(*Q8, stage=OF_8_BITS, q_scale=1, k_scale=1)),
        (TypeError, "V is float16 and others are float8_e4m3fn", lambda: attention(*Q8[:2], first[2], stage=OF_8_BITS, **own)),
        (ValueError, r"q_scale is \(2, 2\); expected \(2, 4\)",
         lambda: attention(*Q8, stage=OF_8_BITS, q_scale=k_scale, k_scale=1, v_scale=1)),
        (TypeError, "Q is float8_e4m3fn; expected float16 or bfloat16",
         lambda: flash_ladder.attention_backward(*Q8, Q8[0], np.zeros((2, 4, 5), np.float32), Q8[0])),
        (TypeError, "x is float64; expected float16, bfloat16 or float32", lambda: quantize(q.astype(float))),
        (ValueError, r"x is \(5, 4, 64\), of rank 3", lambda: quantize(q[0])),
        (ValueError, "axis is 3; expected 1 or 2, that of heads", lambda: quantize(q, axis=3)),
        (TypeError, "power_of_two is 2; expected True or False", lambda: quantize(q, power_of_two=2)),
    ]
    for error, text, call in refused:
        with pytest.raises(error, match="^" + text):
            call()


def test_the_operator():
    torch = pytest.importorskip("torch")
    of = OfPyTorch()
    q, k, v = map(of.make, caches())
    (k, k_scale), (v, v_scale) = (quantize(x, axis=2) for x in (k, v))
    scales = {"k_scale": k_scale, "v_scale": v_scale}
    expected = decode(q, k, v, **scales)  # also loads the operators
    first = [x.transpose(1, 2) for x in (q, k, v)]
    # Not test_schema: it multiplies the inputs, and PyTorch multiplies none of this type
    both = [k_scale, v_scale], [], [], ["k_scale", "v_scale"]
    tests = "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"
    torch.library.opcheck(torch.ops.flash_ladder.decode.default,
                          (*first, True, *both, None, None, "cpu"), test_utils=tests)
    compiled = torch.compile(lambda q, k, v, scale: decode(q + 0, k, v, k_scale=scale, v_scale=v_scale), fullgraph=True,
                             backend="aot_eager")
    assert torch.equal(compiled(q, k, v, k_scale), expected)
    with torch.autocast(of.device, torch.bfloat16):
        assert decode(q.float(), k, v, **scales).dtype == torch.bfloat16
    refused = [
        (TypeError, "k_scale is float64; expected float32", lambda: decode(q, k, v, k_scale=k_scale.double(), v_scale=1)),
        (ValueError, r"k_scale: they are \(2\); expected \(2, 2\)", lambda: decode(q, k, v, k_scale=k_scale[0], v_scale=1)),
        (ValueError, "k_cache is float8_e4m3fn and k_scale is None", lambda: decode(q, k, v)),
        (TypeError, "k_scale is given and k_cache is float16", lambda: decode(q, k.half(), v.half(), **scales)),
        (ValueError, f"{PLAIN} does not take K and V in e4m3", lambda: decode(q, k, v, **scales, stage=PLAIN)),
        (TypeError, "Q is float8_e4m3fn; expected", lambda: decode(k, k, v, **scales)),
        (TypeError, "Q is float8_e4m3fn; expected", lambda: attention(*(x.transpose(1, 2) for x in (k, k, v)), stage=OF_8_BITS)),
        (TypeError, "K is float16 and has scales; expected float8_e4m3fn",
         lambda: torch.ops.flash_ladder.decode(*(x.half() for x in first), False, *both, None, None, "cpu")),
        (ValueError, "k_scale and v_scale go together",
         lambda: torch.ops.flash_ladder.decode(*first, False, [k_scale], [], [], ["k_scale"], None, None, "cpu")),
        (TypeError, r"k_scale is \[\[0.5\], 1\]; expected numbers", lambda: decode(q, k, v, k_scale=[[0.5], 1], v_scale=1)),
        (ValueError, "quantize has no gradients", lambda: quantize(q.detach().requires_grad_())),
        (ValueError, "K requires a gradient, and no stage computes gradients in 8 bits",
         lambda: attention(first[1], first[1].detach().requires_grad_(), first[2], q_scale=1, k_scale=1, v_scale=1,
                           stage=OF_8_BITS)),
    ]
    for error, text, call in refused:
        with pytest.raises(error, match=text):
            call()


@pytest.mark.skipif(not GPU, reason="there is no GPU")
def test_in_a_cuda_graph():
    torch = pytest.importorskip("torch")
    q, k, v = map(OfPyTorch().make, caches(128))
    (k, k_scale), (v, v_scale) = (quantize(x, axis=2) for x in (k, v))
    for scales in {"k_scale": k_scale, "v_scale": v_scale}, {"k_scale": 0.5, "v_scale": 0.25}:
        expected = decode(q, k, v, **scales)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = decode(q, k, v, **scales)
        o.zero_()
        graph.replay()
        assert torch.equal(o, expected)
