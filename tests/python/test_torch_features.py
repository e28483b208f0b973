"""Masks, dropout and caches in PyTorch. What they mean is checked in test_features.py, on NumPy's arrays."""

import inspect
import re

import numpy as np
import pytest
from conftest import gradients_of, relative, stage_that, visible

torch = pytest.importorskip("torch")
import torch.nn.functional as F
from test_torch import BOUND, DEVICE, GPU, STAGES, tensors

import flash_ladder
from flash_ladder.torch import attention, attention_backward, decode


PARTS = "full_first", "full_tiles", "partial_first", "partial_tiles", "bits"


def mask(causal=False, arrays=(), integers=(), reals=()):
    """As the operators take it, of (name, value)."""
    names, values = zip(*arrays, *integers, *reals) if (arrays or integers or reals) else ((), ())
    first, last = len(arrays), len(arrays) + len(integers)
    return causal, list(values[:first]), list(values[first:last]), list(values[last:]), list(names)


def test_the_package_has_every_argument_that_a_feature_brings():
    """In both of its forms, which have the same."""
    listed = {name for name, argument in flash_ladder._arguments.ARGUMENTS.items() if not argument.is_part}
    found = set()
    for name in "attention", "attention_backward", "decode":
        parameters, in_torch = (inspect.signature(getattr(module, name)).parameters
                                for module in (flash_ladder, flash_ladder.torch))
        assert parameters.keys() == in_torch.keys() - {"backward_stage"}
        assert all(in_torch[word].default == one.default for word, one in parameters.items())
        found |= parameters.keys()
    assert {"window", "seqused", "k_scale"} <= listed <= found


def test_operators_pass_opcheck():
    q, k, v = tensors()
    stage, backward = (str(x) if x else None for x in (STAGES.get("stage"), STAGES.get("backward_stage")))
    options = (*mask(True), None, stage, backward, "cpu")
    torch.library.opcheck(torch.ops.flash_ladder.attention.default, (q, k, v, *options))
    o, lse = attention(q, k, v, causal=True, return_lse=True, **STAGES)
    inputs = [x.detach() for x in (q, k, v, o, lse, torch.randn_like(o))]
    torch.library.opcheck(torch.ops.flash_ladder.attention_backward.default, (*inputs, *mask(True), None, backward, "cpu"))
    given = mask(True, [("sinks", SINKS.clone().requires_grad_())])
    torch.library.opcheck(torch.ops.flash_ladder.attention.default, (q, k, v, *given, None, None, None, "cpu"))
    given = mask(True, [("sinks", SINKS)])
    torch.library.opcheck(torch.ops.flash_ladder.attention_backward.default, (*inputs, *given, None, None, "cpu"))
    for inputs in (tensors(d=40, gradients=False), [x[:1].expand(2, -1, -1, -1) for x in (q, k, v)]):
        inputs = [x.detach() for x in inputs]
        torch.library.opcheck(torch.ops.flash_ladder.attention.default, (*inputs, *options), test_utils="test_faketensor")
    q, k, v = (x.detach()[:1] for x in (q, k, v))
    begin = [("cu_seqlens_q", integers([0, 20, 70])), ("cu_seqlens_k", integers([0, 40, 90]))]
    axes, *tiles = flash_ladder.tile_lists(torch.ones(70, 90, dtype=torch.bool, device=DEVICE).tril())
    lists = list(zip(PARTS, tiles)), [("tiles", axis) for axis in axes]
    for masked in mask(arrays=begin), mask(False, *lists), mask(True, [], [("seed", -5)], [("dropout_p", 0.1)]):
        torch.library.opcheck(torch.ops.flash_ladder.attention.default, (q, k, v, *masked, None, None, None, "cpu"))
    torch.library.opcheck(torch.ops.flash_ladder.decode.default,
                          (q, k, v, *mask(True, [("seqused", integers([77]))]), None, None, "cpu"))


def integers(x):
    return torch.tensor(x, dtype=torch.int32, device=DEVICE)


def alike(got, *arrays, call=flash_ladder.attention, **options):
    """What NumPy's arrays get on the CPU, whose numbers test_features.py checks."""
    expected = call(*(x.detach().cpu().numpy() for x in arrays), **options)
    return torch.allclose(got.detach().cpu(), torch.from_numpy(expected), rtol=1e-2, atol=1e-2 if GPU else 0)


@pytest.mark.parametrize("given", [list, lambda x: torch.tensor(x, dtype=torch.int32), integers])
def test_packed_documents_and_column_bounds(given):
    q, k, v = (x[:1] for x in tensors(gradients=False))
    rows, keys = [0, 20, 31, 70], [0, 33, 40, 90]
    o = attention(q, k, v, cu_seqlens_q=given(rows), cu_seqlens_k=given(keys), causal=True)
    assert alike(o, q, k, v, cu_seqlens_q=rows, cu_seqlens_k=keys, causal=True)
    columns = [[[[j % 71, 70 - j % 50] for j in range(90)]]]
    o = attention(q, k, v, columns=given(columns), causal=True)
    assert alike(o, q, k, v, columns=columns, causal=True)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    stage = {} if GPU else {"backward_stage": 97}
    o, lse = attention(*inputs, columns=given(columns), causal=True, return_lse=True, **stage)
    gradients = torch.autograd.grad(o, inputs, o.detach())
    on_cpu = [x.detach().cpu().numpy() for x in (q, k, v, o, lse, o)]
    expected = flash_ladder.attention_backward(*on_cpu, columns=columns, causal=True, stage=gradients_of("columns"))
    for got, exact in zip(gradients, expected):
        assert torch.allclose(got.cpu(), torch.from_numpy(exact), rtol=1e-2, atol=1e-2)
    compiled = torch.compile(lambda q, k, v: attention(2 * q, k, v, columns=given(columns)), fullgraph=True,
                             backend="aot_eager")
    assert alike(compiled(q, k, v), 2 * q, k, v, columns=columns)


SLOPES, SINKS = torch.tensor([0.5, 0, 0.1, 1], device=DEVICE), torch.tensor([0.0, 3, -5, 8], device=DEVICE)


def by_formulas(q, k, v, seen, softcap=0.0, alibi_slopes=None, sinks=None, kept=1.0):
    """O in fp64, by PyTorch's own operators, which know its gradients: a sink is the score of a last key."""
    (rows, d), keys = q.shape[2:], k.shape[2]
    S = q.double() @ k.double().repeat_interleave(2, 1).mT * d ** -0.5
    if softcap:
        S = softcap * torch.tanh(S / softcap)
    if alibi_slopes is not None:
        distance = torch.arange(keys, device=DEVICE) - torch.arange(rows, device=DEVICE)[:, None] - (keys - rows)
        S = S - alibi_slopes.double()[:, None, None] * distance.abs()
    last = sinks.double()[:, None, None].expand(len(S), -1, rows, 1)
    P = torch.softmax(torch.cat([S.masked_fill(~seen, -torch.inf), last], -1), -1)[..., :-1]
    return P * kept @ v.double().repeat_interleave(2, 1)


def transposed(x):
    return x.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.mark.parametrize("dtype, d, laid_out, options", [
    (torch.float16, 64, transposed, {"causal": True, "window": (40, -1), "softcap": 2.0, "alibi_slopes": SLOPES}),
    (torch.bfloat16, 40, torch.clone, {}),
    (torch.float16, 64, torch.clone, {"causal": True, "dropout_p": 0.25, "seed": 3}),
    (torch.bfloat16, 64, transposed, {"causal": True, "cu_seqlens_q": [0, 20, 31, 70], "cu_seqlens_k": [0, 33, 33, 90]})])
def test_gradients_of_sinks_are_those_of_the_formulas(dtype, d, laid_out, options):
    packed = "cu_seqlens_q" in options
    inputs = [laid_out(x[:1] if packed else x).requires_grad_() for x in tensors(dtype, gradients=False, d=d)]
    inputs.append(SINKS.clone().requires_grad_())
    seen = torch.from_numpy(visible(70, 90, options.get("causal", False), options.get("window"))).to(DEVICE)
    if packed:
        seen = torch.zeros_like(seen)
        for row, end, key, last in (0, 20, 0, 33), (31, 70, 33, 90):
            seen[row:end, key:last] = torch.ones(end - row, last - key, device=DEVICE).tril(last - key - end + row)
    scores = {name: x for name, x in options.items() if name in ("softcap", "alibi_slopes")}
    if "seed" in options:
        scores["kept"] = torch.from_numpy(flash_ladder.dropout_mask((2, 4, 70, 90), 0.25, 3)).to(DEVICE) / 0.75
    attend = lambda q, k, v, sinks: attention(q, k, v, sinks=sinks, **options)
    o, exact = attend(*inputs), by_formulas(*inputs[:3], seen, sinks=inputs[3], **scores)
    bound = 3 * BOUND[dtype]
    assert relative(o.detach().double().cpu(), exact.detach().cpu().numpy()) < bound
    do = torch.randn_like(o)
    expected = torch.autograd.grad(exact, inputs, do.double())
    compiled = torch.compile(lambda *x: attend(*x) + 0, fullgraph=True, backend="aot_eager")
    for call in attend, compiled:
        gradients = torch.autograd.grad(call(*inputs), inputs, do)
        assert [(x.shape, x.dtype) for x in gradients] == [(x.shape, x.dtype) for x in inputs]
        for got, right in zip(gradients, expected):
            assert relative(got.double().cpu(), right.double().cpu().numpy()) < bound


def test_sinks_of_any_kind_get_their_gradient():
    """A part of a tensor, one number for all heads, a cast one; also if nothing else requires a gradient."""
    q, k, v = tensors(gradients=False)
    o, lse = attention(q, k, v, sinks=SINKS, return_lse=True)
    expected = attention_backward(q, k, v, o, lse, o, sinks=SINKS)[3]
    for made in (torch.stack([SINKS, SINKS], 1), lambda x: x[:, 0]), (SINKS.half(), torch.Tensor.float), (SINKS, lambda x: x):
        sinks = made[0].clone().requires_grad_()
        got, = torch.autograd.grad(attention(q, k, v, sinks=made[1](sinks)), sinks, o)
        assert torch.allclose((got if got.dim() == 1 else got[:, 0]).float(), expected, rtol=1e-3)
    one = torch.tensor(0.5, device=DEVICE, requires_grad=True)
    o, lse = attention(q, k, v, sinks=0.5, return_lse=True)
    got, = torch.autograd.grad(attention(q, k, v, sinks=one), one, o)
    assert torch.allclose(got, attention_backward(q, k, v, o, lse, o, sinks=0.5)[3].sum())


def test_derivatives_of_scores_that_there_are_not_are_refused():
    q, k, v = tensors(gradients=False)
    with pytest.raises(TypeError, match="alibi_slopes requires a gradient, and none flows to it"):
        attention(q, k, v, alibi_slopes=SLOPES.clone().requires_grad_(), sinks=SINKS)
    with pytest.raises(TypeError, match="sinks requires a gradient, and none flows to it"):
        attention(q, k, v, sinks=torch.tensor(0.5, dtype=torch.float16, requires_grad=True))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(SINKS, SINKS)
        for options in {"sinks": dual}, {"alibi_slopes": dual}:
            with pytest.raises(NotImplementedError, match="no derivatives in forward mode"):
                attention(q, k, v, **options)
    sinks = SINKS.clone().requires_grad_()
    first, = torch.autograd.grad(attention(q, k, v, sinks=sinks), sinks, q, create_graph=True)
    with pytest.raises(RuntimeError, match="flash_ladder::attention_backward"):
        first.sum().backward()


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_lists_of_tiles(device):
    q, k, v = tensors(gradients=False)
    seen = torch.from_numpy(np.random.default_rng(5).random((2, 2, 70, 90)) < 0.5).to(device)
    tiles = flash_ladder.tile_lists(seen)
    assert all(x.device.type == device and x.dtype == torch.int32 for x in tiles[1:])
    o = attention(q, k, v, tiles=tiles)
    assert alike(o, q, k, v, tiles=flash_ladder.tile_lists(seen.cpu().numpy()))
    compiled = torch.compile(lambda q, k, v, tiles: attention(q + 0, k, v, tiles=tiles), fullgraph=True,
                             backend="aot_eager")
    assert torch.equal(compiled(q, k, v, tiles), o)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    o, lse = attention(*inputs, tiles=tiles, return_lse=True, **({} if GPU else {"backward_stage": 97}))
    gradients = torch.autograd.grad(o, inputs, o.detach())
    on_cpu = [x.detach().cpu().numpy() for x in (q, k, v, o, lse, o)]
    expected = flash_ladder.attention_backward(*on_cpu, tiles=flash_ladder.tile_lists(seen.cpu().numpy()),
                                               stage=gradients_of("tiles"))
    for got, exact in zip(gradients, expected):
        assert torch.allclose(got.cpu(), torch.from_numpy(exact), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("heads, block", [(None, 128), (4, 64), (2, (64, 192))])
def test_the_lists_of_a_block_mask(heads, block):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    document = torch.arange(330, device=DEVICE) // 70
    mod = lambda b, h, i, j: ((i + 30 >= j) & (document[i] == document[j])) | (j < 64 * (h + 1))
    lists = flash_ladder.tile_lists(flex.create_block_mask(mod, None, heads, 300, 330, device=DEVICE, BLOCK_SIZE=block))
    seen = flex.create_mask(mod, 1, heads or 1, 300, 330, device=DEVICE)
    expected = flash_ladder.tile_lists(seen)
    assert tuple(lists.axes) == tuple(expected.axes) == (1, heads or 1, 300, 330)
    for got, exact in zip(lists[1:], expected[1:]):
        assert torch.equal(got, exact) and got.device == exact.device
    q, k, v = (torch.randn(1, n, rows, 64, device=DEVICE).half() for n, rows in ((4, 300), (2, 330), (2, 330)))
    exact = F.scaled_dot_product_attention(q.float(), *(x.float().repeat_interleave(2, 1) for x in (k, v)),
                                           attn_mask=seen.repeat_interleave(4 // seen.shape[1], 1))
    assert relative(attention(q, k, v, tiles=lists).cpu(), exact.cpu().double().numpy()) < 1e-3
    with pytest.raises(ValueError, match=r"the mask's blocks are \(32, 32\); expected multiples of 64"):
        flash_ladder.tile_lists(flex.create_block_mask(mod, None, None, 300, 330, device=DEVICE, BLOCK_SIZE=32))


def test_dropout():
    q, k, v = tensors(gradients=False)
    for seed in 3, 2**64 - 2:
        o, lse = attention(q, k, v, causal=True, dropout_p=0.1, seed=seed, return_lse=True)
        assert alike(o, q, k, v, causal=True, dropout_p=0.1, seed=seed)
        of_one_stage = dict(causal=True, return_lse=True, stage=stage_that("dropout"))
        same = attention(q, k, v, **of_one_stage)[1]  # L is of all keys: no probability is missing from it
        assert torch.equal(same, attention(q, k, v, dropout_p=0.1, seed=seed, **of_one_stage)[1])
        assert torch.allclose(lse, same)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    o, lse = attention(*inputs, causal=True, dropout_p=0.1, seed=2**64 - 2, return_lse=True,
                       **({} if GPU else {"backward_stage": 97}))
    gradients = torch.autograd.grad(o, inputs, o.detach())
    on_cpu = [x.detach().cpu().numpy() for x in (q, k, v, o, lse, o)]
    expected = flash_ladder.attention_backward(*on_cpu, causal=True, dropout_p=0.1, seed=2**64 - 2,
                                               stage=gradients_of("dropout"))
    for got, exact in zip(gradients, expected):
        assert torch.allclose(got.cpu(), torch.from_numpy(exact), rtol=1e-2, atol=1e-2)
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(lambda q, seed: attention(q + 0, k, v, dropout_p=0.5, seed=seed), fullgraph=True,
                             backend="aot_eager")
    for seed in range(5, 9):
        assert torch.equal(compiled(q, seed), attention(q, k, v, dropout_p=0.5, seed=seed))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2  # another seed is no other graph


@pytest.mark.parametrize("given", [list, integers])
def test_decoding(given):
    torch.manual_seed(3)
    q, k, v = (torch.randn(3, n, heads, 64, device=DEVICE).half() for n, heads in ((4, 4), (48, 2), (48, 2)))
    lengths, table = [37, 0, 16], [[0, 1, 2], [-1, -1, -1], [6, 7, 8]]
    pools = [x.reshape(9, 16, 2, 64) for x in (k, v)]
    for arrays, options in (((q, k, v), {}), ((q, k, v), {"seqused": lengths}),
                            ((q, *pools), {"seqused": lengths, "block_table": table})):
        o, lse = decode(*arrays, **{name: given(x) for name, x in options.items()}, causal=True, return_lse=True)
        assert o.shape == q.shape and lse.shape == (3, 4, 4)
        assert alike(o, *arrays, call=flash_ladder.decode, causal=True, **options)
        assert torch.equal(flash_ladder.decode(*arrays, **options, causal=True), o)
    shared = {"block_table": [[0, 1, 2], [0, 1, 3], [0, 1, 4]], "seqused": [48, 40, 37]}
    o = decode(q, *pools, **{name: given(x) for name, x in shared.items()}, prefix=32, causal=True)
    assert alike(o, q, *pools, call=flash_ladder.decode, causal=True, prefix=32, **shared)
    compiled = torch.compile(lambda q, k, v: decode(q + 0, k, v, seqused=given(lengths), causal=True), fullgraph=True,
                             backend="aot_eager")
    assert alike(compiled(q, k, v), q, k, v, call=flash_ladder.decode, seqused=lengths, causal=True)


def test_numbers_are_checked_and_gradients_that_no_stage_has_are_refused():
    q, k, v = (x[:1] for x in tensors())
    documents = {"cu_seqlens_q": [0, 20, 70], "cu_seqlens_k": [0, 20, 90]}
    o = attention(q, k, v, **documents, backward_stage=gradients_of())
    with pytest.raises(ValueError, match=f"{gradients_of()} does not take packed documents"):
        o.sum().backward()
    tiles = flash_ladder.tile_lists(torch.ones(70, 90, dtype=torch.bool))
    with pytest.raises(ValueError, match="no stage computes its gradients with packed documents, dropout at head dimension"):
        attention(q, k, v, **documents, dropout_p=0.1, seed=1).sum().backward()
    with torch.no_grad(), pytest.raises(TypeError, match="bits is builtins.float; expected torch.Tensor, or integers of"):
        attention(q, k, v, tiles=tiles._replace(bits=1.5))
    with pytest.raises(TypeError, match="tiles is Tensor; expected TileLists"):
        attention(q, k, v, tiles=tiles.bits)
    with pytest.raises(ValueError, match="dropout_p is 0.1 and seed is None: dropout needs a seed"):
        attention(q, k, v, dropout_p=0.1)
    operator = lambda *given: torch.ops.flash_ladder.attention(q, k, v, *given, None, None, None, "cpu")
    axes = [("tiles", axis) for axis in tiles.axes]
    for arrays, integers_ in (zip(PARTS[:4], tiles[1:]), axes), (zip(PARTS, tiles[1:]), axes[1:]):
        with pytest.raises(ValueError, match="tiles: expected 4 axes and the arrays full_first, full_tiles, partial_first, "):
            operator(*mask(False, list(arrays), integers_))
    with pytest.raises(ValueError, match="window has 1 numbers; expected left and right"):
        operator(*mask(False, [], [("window", 3)]))
    for given in mask(False, [("column", integers([0]))]), mask(False, [], [("column", 0)]), mask(False, [], [], [("column", 0.5)]):
        with pytest.raises(ValueError, match="no call has an argument 'column'"):
            operator(*given)
    for given, said in ((mask(False, [], [("columns", 3)]), "columns is an array"), (mask(False, [], [], [("prefix", 3.0)]),
                        "prefix is an integer"), (mask(False, [("dropout_p", integers([3]))]), "dropout_p is a real")):
        with pytest.raises(ValueError, match=said):
            operator(*given)
    with pytest.raises(TypeError, match="k_scale requires a gradient, and none flows to it"):
        operator(*mask(False, [("k_scale", torch.ones(1, 2, device=DEVICE, requires_grad=True))]))
    with pytest.raises(ValueError, match="there are 0 names of 1 arrays and numbers"):
        operator(False, [], [3], [], [])
    with pytest.raises(ValueError, match="decode has no gradients: call it under torch.no_grad()"):
        decode(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    with pytest.raises(ValueError, match="cu_seqlens_q: the last is 69; expected Nq = 70"):
        attention(q, k, v, cu_seqlens_q=torch.tensor([0, 69], dtype=torch.int32))
    for wrong, said in ((torch.tensor([0.0, 70.0]), "float32"), (torch.tensor([False, True]), "bool")):
        with pytest.raises(TypeError, match=f"cu_seqlens_q is {said}; expected int32"):
            attention(q, k, v, cu_seqlens_q=wrong)
    with pytest.raises(ValueError, match=r"cu_seqlens_q: expected numbers below 2\^31"):
        attention(q, k, v, cu_seqlens_q=torch.tensor([0, 2**32 + 70]))
    for name in "cu_seqlens_q", "columns":
        for five in 5, torch.tensor(5, dtype=torch.int32), torch.tensor(5), np.array(5, np.int32):
            with pytest.raises(ValueError, match=f"{name}: they are "):
                attention(q, k, v, **{name: five})
    for wrong, kind, expected in (([0, 7.5], TypeError, "whole numbers"), ([0, [1, 2]], TypeError, "whole numbers"),
                                  ([0, 2**32 + 70], ValueError, "numbers below 2^31")):
        with pytest.raises(kind, match="^" + re.escape(f"cu_seqlens_q is {wrong}; expected {expected}")):
            attention(q, k, v, cu_seqlens_q=wrong)
    with pytest.raises(TypeError, match="columns is float64; expected whole numbers"):
        attention(q, k, v, columns=np.zeros((1, 1, 90, 1)))
    with torch.no_grad(), pytest.raises(ValueError, match="has no head dimension 32, and decode copies no cache"):
        decode(*(x.transpose(1, 2)[..., :32] for x in (q, k, v)))


def test_integers_of_any_kind():
    """Of Python, NumPy and PyTorch, of any width, on q's device or in the CPU's memory; one number for all requests."""
    q, k, v = (x[:1].detach() for x in tensors())
    expected = attention(q, k, v, cu_seqlens_q=[0, 20, 70], cu_seqlens_k=[0, 30, 90])
    for kind in (tuple, np.array, lambda x: np.array(x, np.int32), torch.tensor, lambda x: torch.tensor(x, device=DEVICE),
                 lambda x: torch.tensor(x, dtype=torch.uint8, device=DEVICE)):
        got = attention(q, k, v, cu_seqlens_q=kind([0, 20, 70]), cu_seqlens_k=kind([0, 30, 90]))
        assert torch.equal(got, expected)
    new, cache, cache_v = (x.transpose(1, 2) for x in (q[:, :, :1], k, v))
    spoiled = [torch.where(torch.arange(90, device=DEVICE)[:, None, None] < 5, x, float("nan")) for x in (cache, cache_v)]
    right = decode(new, *spoiled, seqused=[5])
    assert right.isfinite().all()
    for five in 5, np.array(5), torch.tensor(5), torch.tensor(5, dtype=torch.int32, device=DEVICE), np.array([5], np.int32):
        assert torch.equal(decode(new, *spoiled, seqused=five), right)


def test_a_part_of_a_block_mask_is_refused():
    mask = pytest.importorskip("torch.nn.attention.flex_attention").create_block_mask(
        lambda b, h, i, j: i >= j, 2, 2, 300, 300, device=DEVICE)
    for part in mask[0], mask[0, 1], mask[:, :, torch.tensor([1], dtype=torch.int32, device=DEVICE)]:
        with pytest.raises(ValueError, match=r"mask is a BlockMask with kv_num_blocks .*; expected \(batches, heads, 3\)"
                                             r"|mask is a part of a BlockMask"):
            flash_ladder.tile_lists(part)


def test_lists_of_tiles_under_torch_compile():
    """In one graph; and tile_lists() of a mask that a graph computes, outside of it."""
    q, k, v = (x[:1].detach() for x in tensors())
    seen = torch.ones(70, 90, dtype=torch.bool, device=DEVICE).tril(20)
    tiles = flash_ladder.tile_lists(seen)
    expected = attention(q, k, v, tiles=tiles)
    compiled = torch.compile(lambda *x: attention(*x, tiles=tiles), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(q, k, v), expected)
    torch._dynamo.reset()
    made = torch.compile(lambda q, k, v, seen: attention(q, k, v, tiles=flash_ladder.tile_lists(seen & seen)),
                         backend="aot_eager")
    assert torch.equal(made(q, k, v, seen), expected)


@pytest.mark.skipif(not GPU, reason="there is no GPU")
@pytest.mark.parametrize("feature", ["tiles", "dropout", "prefix"])
def test_in_a_cuda_graph(feature):
    """What is on the GPU is not read, and nothing waits."""
    q, k, v = tensors(gradients=False)
    tiles = flash_ladder.tile_lists(torch.ones(70, 90, dtype=torch.bool, device=DEVICE).tril())
    pools = [torch.randn(5, 16, 2, 64, device=DEVICE).half() for _ in range(2)]
    table = integers([[0, 1, 2], [0, 1, 4]])
    call = {"tiles": lambda: attention(q, k, v, tiles=tiles),
            "dropout": lambda: attention(q, k, v, dropout_p=0.1, seed=3),
            "prefix": lambda: decode(q.transpose(1, 2)[:, :4], *pools, block_table=table, prefix=32)}[feature]
    expected = call()  # also compiles and loads
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = call()
    for _ in range(2):
        o.zero_()
        graph.replay()
        assert torch.equal(o, expected)
