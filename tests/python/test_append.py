"""flash_ladder.torch.append: new rows of a cache, rotated and rounded on their way, in one launch."""

import random

import pytest

torch = pytest.importorskip("torch")

import flash_ladder  # noqa: E402

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
if not GPU and (why := flash_ladder._core.why_not("cpu")):
    pytest.skip(why, allow_module_level=True)

from flash_ladder import flash_attn_interface as flash_attn  # noqa: E402
from flash_ladder.torch import append, decode  # noqa: E402

BACKENDS = ["gpu"] if GPU else ["cpu", "checked"]
#: The largest error of rounding to nearest: relative, and absolute with what fp32 adds
ROUNDING = {torch.float16: (2**-11, 1e-6), torch.bfloat16: (2**-8, 1e-6), torch.float8_e4m3fn: (2**-4, 2**-10 + 1e-6)}


def rotated(x, cos, sin, positions, interleaved):
    """x (B, N, H, d) in double precision, as complex numbers: a pair of columns is multiplied by cos + i sin of its row."""
    x, columns = x.double(), 2 * cos.shape[1]
    order = torch.arange(columns).view(-1, 2) if interleaved else torch.arange(columns).view(2, -1).T
    turn = torch.complex(*(table[positions].double()[:, :, None] for table in (cos, sin)))
    y = torch.complex(x[..., order[:, 0]], x[..., order[:, 1]]) * turn
    x = x.clone()
    x[..., order[:, 0]], x[..., order[:, 1]] = y.real, y.imag
    return x


def is_rounded(got, exact):
    relative, absolute = ROUNDING[got.dtype]
    return ((got.double() - exact).abs() <= relative * exact.abs() + absolute).all()


def drawn(seed):
    """Arguments of append(), and where each new row belongs: (entries, slots), (B, N) each."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    dtype = draw.choice([torch.float16, torch.bfloat16])
    B, N, Nq, d = draw.randint(1, 3), draw.randint(1, 16), draw.randint(1, 16), draw.choice([32, 59, 64, 128])
    Hkv = draw.randint(1, 3)
    H = Hkv * draw.randint(1, 3)
    make = lambda *axes: torch.randn(*axes, generator=generator).to(dtype).to(DEVICE)
    q, k, v = make(B, Nq, H, d), make(B, N, Hkv, d), make(B, N, Hkv, d)
    if draw.random() < 0.5:  # as parts of one product
        k, v = make(B, N, 2 * Hkv, d).split(Hkv, 2)
    given = dict(q=q, causal=draw.random() < 0.5)
    slots, pages = draw.choice([4, 16]), 10
    in_pages = draw.random() < 0.5
    room = slots * pages if in_pages else 40
    lengths = torch.tensor([draw.randint(0, room - 16) for _ in range(B)])
    at = lengths[:, None] + torch.arange(N)
    if in_pages:
        axes = 3 * pages + 2, slots, Hkv, d
        table = torch.tensor(draw.sample(range(axes[0]), B * pages)).view(B, pages)
        entries = table.gather(1, at // slots)
        used = torch.zeros(B, pages, dtype=torch.bool).scatter(1, at // slots, True)
        given["block_table"] = table.masked_fill(~used, draw.choice([-1, 10**6])).int().to(DEVICE)
        at = at % slots
    else:
        axes = B + 2, room, Hkv, d
        rows = torch.arange(B)
        if draw.random() < 0.5:
            rows = torch.tensor(draw.sample(range(B + 2), B))
            given["cache_batch_idx"] = rows.to(draw.choice([torch.int32, torch.int64])).to(DEVICE)
        entries = rows[:, None].expand_as(at)
    caches = make(*axes), make(*axes)
    if draw.random() < 0.5:  # interleaved
        caches = make(axes[0], axes[1], 2, *axes[2:]).unbind(2)
    if d % 16 == 0 and draw.random() < 0.5:
        caches = [x.to(torch.float8_e4m3fn) for x in caches]
        given |= {name: torch.rand(B, Hkv, generator=generator).add(0.01).to(DEVICE) for name in ("k_scale", "v_scale")}
    if draw.random() < 0.7:
        angles = torch.rand(room, draw.choice([8, d // 2, 1]), generator=generator) * 7
        of_type = draw.choice([dtype, torch.float32])
        given |= dict(rotary_cos=angles.cos().to(of_type).to(DEVICE), rotary_sin=angles.sin().to(of_type).to(DEVICE),
                      rotary_interleaved=draw.random() < 0.5)
    return (*caches, k, v, lengths.to(draw.choice([torch.int32, torch.int64])).to(DEVICE)), given, (entries, at)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_rows_are_where_they_belong(backend, first):
    """Rotated, divided by their scales and rounded once; the rest of the cache stays, and entries of a table that no new
    row needs may be anything. No two threads touch one element."""
    for seed in range(first, first + 20):
        (k_cache, v_cache, k, v, lengths), given, places = drawn(seed)
        before = [x.float().clone() for x in (k_cache, v_cache)]
        q, new_lengths = append(k_cache, v_cache, k, v, lengths, backend=backend, **given)
        assert torch.equal(new_lengths, (lengths + k.shape[1]).int()), seed
        exact_k, exact_q = k.double(), given["q"].double()
        if "rotary_cos" in given:
            tables = given["rotary_cos"], given["rotary_sin"]
            rows = lambda x: lengths[:, None].long() + torch.arange(x.shape[1], device=DEVICE)
            of_q = rows(q) if given["causal"] else rows(q)[:, :1].expand(-1, q.shape[1])
            exact_k = rotated(k, *tables, rows(k), given["rotary_interleaved"])
            exact_q = rotated(given["q"], *tables, of_q, given["rotary_interleaved"])
        assert is_rounded(q, exact_q), seed
        for cache, old, exact, scale in zip((k_cache, v_cache), before, (exact_k, v.double()), ("k_scale", "v_scale")):
            if scale in given:
                exact = (exact / given[scale][:, None, :, None].double()).clamp(-448, 448)
            new = cache.float()[places]
            assert is_rounded(new.to(cache.dtype), exact), seed
            old[places] = new
            assert torch.equal(cache.float(), old), seed


def test_decoding_in_8_bits_sees_the_new_rows():
    """As in a cache that was rounded as a whole, whose scales append() takes."""
    q, k, v = (torch.randn(2, n, 2, 128, generator=torch.Generator().manual_seed(n)).half().to(DEVICE) for n in (1, 40, 41))
    (k8, k_scale), (v8, v_scale) = (flash_ladder.quantize(x[:, :40], axis=2) for x in (k, v))
    caches = [x.clone() for x in (k8, v8)]
    for cache in caches:
        cache[:, 37:] = 0
    append(*caches, k[:, 37:40], v[:, 37:40], torch.full((2,), 37, device=DEVICE), k_scale=k_scale, v_scale=v_scale)
    assert all(torch.equal(*(x.view(torch.uint8) for x in pair)) for pair in zip(caches, (k8, v8)))
    scales = dict(k_scale=k_scale, v_scale=v_scale)
    assert torch.equal(decode(q, *caches, **scales), decode(q, k8, v8, **scales))


def step_of(d=64):
    """A step of decoding that appends, and its arguments, made anew"""
    make = lambda *axes: torch.randn(*axes, d, generator=torch.Generator().manual_seed(len(axes))).half().to(DEVICE)
    angles = torch.arange(64, device=DEVICE)[:, None] * 0.1 ** torch.arange(d // 2, device=DEVICE)
    table = torch.tensor([[5, 2, 7, 0], [1, 9, 3, 4]], dtype=torch.int32, device=DEVICE)
    lengths = torch.tensor([20, 0], dtype=torch.int32, device=DEVICE)

    def step(q, k_cache, v_cache, k, v, lengths):
        return flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, angles.cos(), angles.sin(), lengths,
                                                  block_table=table, causal=True)

    return step, lambda: (make(2, 3, 4), make(10, 16, 2), make(10, 16, 2) + 1, make(2, 3, 2), make(2, 3, 2) - 1,
                          lengths.clone())


def test_in_a_compiled_graph():
    step, arguments = step_of()
    eager, in_graph = arguments(), arguments()
    compiled = torch.compile(lambda q, *rest: step(q + 0, *rest) + 0, fullgraph=True,
                             backend="inductor" if GPU else "aot_eager")
    assert torch.equal(compiled(*in_graph), step(*eager))
    assert all(torch.equal(x, y) for x, y in zip(in_graph, eager))


@pytest.mark.skipif(not GPU, reason="no GPU")
def test_in_a_cuda_graph():
    """Each replay appends at the lengths of that time."""
    step, arguments = step_of()
    now = arguments()
    step(*arguments())  # compiles and loads
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = step(*now)
    for length in 7, 40:
        now[5].fill_(length)
        graph.replay()
        expected = [*arguments()]
        expected[5].fill_(length)
        assert torch.equal(o, step(*expected)) and torch.equal(now[1], expected[1])
        for x, fresh in zip(now, arguments()):
            x.copy_(fresh)


def test_nothing_but_two_kernels_runs():
    step, arguments = step_of()
    now = arguments()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        step(*now)
    ran = {event.key for event in profile.key_averages()}
    assert {"flash_ladder::append", "flash_ladder::decode"} <= ran
    assert not ran & {"aten::add", "aten::copy_", "aten::index_put_", "aten::gather", "aten::cat"}


def test_the_operator_passes_opcheck():
    """And autograd knows that it changes the cache."""
    (k_cache, v_cache, k, v, lengths), given, _ = drawn(1)
    cos, sin = torch.rand(2, 64, 8, device=DEVICE)
    torch.library.opcheck(torch.ops.flash_ladder.append.default,
                          (k_cache, v_cache, torch.empty_like(given["q"]), k, v, given["q"], cos, sin, lengths,
                           *map(given.get, ("cache_batch_idx", "block_table", "k_scale", "v_scale")), True, True, "cpu"))
    before = k_cache._version, k._version
    append(k_cache, v_cache, k, v, lengths, **given)
    assert k_cache._version > before[0] and k._version == before[1]


def test_what_does_not_fit_is_refused():
    """And nothing is written."""
    k_cache, v_cache = torch.zeros(2, 4, 16, 2, 64, device=DEVICE).half()
    k8, v8 = (x.to(torch.float8_e4m3fn) for x in (k_cache, v_cache))
    (k, v), q = torch.ones(2, 2, 3, 2, 64, device=DEVICE).half(), torch.ones(2, 3, 4, 64, device=DEVICE).half()
    lengths, scale = torch.tensor([3, 5], device=DEVICE), torch.ones(2, 2, device=DEVICE)
    arguments = dict(k_cache=k_cache, v_cache=v_cache, k=k, v=v, seqused=lengths)
    table, turn = torch.tensor([[0, 1], [2, 3]], device=DEVICE), torch.ones(32, 8, device=DEVICE)
    of_numbers = [] if GPU else [
        (ValueError, "request 1 has 14 keys; expected 0 to 13", dict(seqused=torch.tensor([3, 14]))),
        (ValueError, "request 0 has -1 keys", dict(seqused=torch.tensor([-1, 14]))),
        (ValueError, "rotary_cos has 7 positions", dict(rotary_cos=turn[:7], rotary_sin=turn[:7])),
        (ValueError, "expected 0 to 3: rotary_cos has 5", dict(rotary_cos=turn[:5], rotary_sin=turn[:5], q=q[:, :2],
                                                               causal=True, k=k[:, :1], v=v[:, :1],
                                                               seqused=torch.tensor([3, 4]))),
        (ValueError, "in row 4; expected 0 to 3: the rows", dict(cache_batch_idx=torch.tensor([1, 4]))),
        (ValueError, "in page -1; expected 0 to 3: the pages", dict(block_table=table - 1)),
        (ValueError, "two new rows are in row 2, at key 5", dict(cache_batch_idx=torch.tensor([2, 2]))),
        (ValueError, "two new rows are in page 1, at key 0", dict(block_table=torch.tensor([[0, 1], [1, 3]]),
                                                                   seqused=torch.tensor([16, 0]))),
        (ValueError, "v_scale: one is 0; expected", dict(k_cache=k8, v_cache=v8, k_scale=scale,
                                                         v_scale=torch.tensor([[1, 1], [1, 0.0]]))),
        (ValueError, "backend is 'gpu' and k is in", dict(backend="gpu"))]
    for error, words, other in (
            (ValueError, r"v is \(2, 2, 2, 64\); expected \(2, 3, 2, 64\)", dict(v=v[:, :2])),
            (ValueError, r"k is \(2, 3, 1, 64\); expected", dict(k=k[:, :, :1])),
            (ValueError, r"k is \(3, 2, 64\)", dict(k=k[0])),
            (ValueError, r"v_cache is \(3, 16", dict(v_cache=v_cache[:3])),
            (ValueError, r"seqused is \(1\); expected \(2\)", dict(seqused=lengths[:1])),
            (TypeError, "seqused is float32; expected int32", dict(seqused=lengths.float())),
            (TypeError, "v is bfloat16; expected float16", dict(v=v.bfloat16())),
            (TypeError, "k is float32", dict(k=k.float())),
            (TypeError, "k_cache is float16; expected float8_e4m3fn", dict(k_scale=scale, v_scale=scale)),
            (TypeError, "k_cache is float8_e4m3fn", dict(k_cache=k8)),
            (ValueError, "go together", dict(k_scale=scale)),
            (ValueError, "belong together", dict(rotary_sin=turn)),
            (ValueError, "at most 32", dict(rotary_cos=torch.ones(32, 33), rotary_sin=torch.ones(32, 33))),
            (TypeError, "rotary_sin is float64; expected float32", dict(rotary_cos=turn, rotary_sin=turn.double())),
            (ValueError, r"q is \(1, 3, 4, 64\)", dict(q=q[:1], rotary_cos=turn, rotary_sin=turn)),
            (ValueError, "where the keys of a request", dict(block_table=table, cache_batch_idx=lengths)),
            (ValueError, r"block_table is \(1, 2\); expected \(2, 2\)", dict(block_table=table[:1])),
            (ValueError, "multiples of 16", dict(k_cache=k8.new_empty(4, 16, 2, 65)[..., :64], v_cache=v8,
                                                 k_scale=scale, v_scale=scale)),
            (ValueError, "append has no gradients", dict(k=k.clone().requires_grad_())),
            (ValueError, "side by side", dict(k_cache=k_cache.mT.contiguous().mT)),
            (TypeError, "k is builtins.list; expected", dict(k=[1])), *of_numbers):
        with pytest.raises(error, match=words):
            append(**(arguments | other))
    assert not k_cache.any() and not v_cache.any()
