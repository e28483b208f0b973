"""The package in PyTorch: on a CPU by the stages of the algorithm, on a GPU by the last rungs."""

import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import gradients_of, reference, relative, stage_that

torch = pytest.importorskip("torch")
import torch.nn.functional as F

import flash_ladder
from flash_ladder.torch import attention, attention_backward

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
STAGES = {} if GPU else {"stage": 5, "backward_stage": gradients_of()}
ADDS_BY_ATOMICS = gradients_of(repeats_exactly=False)
BOUND = {torch.float16: 1e-3, torch.bfloat16: 8e-3}


def tensors(dtype=torch.float16, gradients=True, rows=70, keys=90, d=64):
    torch.manual_seed(1)
    return [torch.randn(2, heads, n, d, device=DEVICE).to(dtype).requires_grad_(gradients)
            for heads, n in ((4, rows), (2, keys), (2, keys))]


def sdpa(q, k, v, causal=False):
    """In fp32, with the mask aligned bottom-right."""
    rows, keys = q.shape[2], k.shape[2]
    mask = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows) if causal else None
    return F.scaled_dot_product_attention(*(x.float() for x in (q, k, v)), attn_mask=mask, enable_gqa=True)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("causal", [False, True])
def test_forward_and_backward_are_those_of_sdpa(dtype, causal):
    inputs = tensors(dtype)
    o = attention(*inputs, causal=causal, **STAGES)
    expected = sdpa(*inputs, causal)
    assert relative(o.detach().float().cpu(), expected.detach().cpu().double().numpy()) < BOUND[dtype]
    do = torch.randn_like(o)
    gradients = torch.autograd.grad(o, inputs, do)
    for got, exact in zip(gradients, torch.autograd.grad(expected, inputs, do.float())):
        assert relative(got.float().cpu(), exact.cpu().double().numpy()) < 2 * BOUND[dtype]


@pytest.mark.parametrize("causal, window", [(True, (20, -1)), (False, (0, 7)), (False, (-1, 3)), (True, (3, 5))])
def test_windows_forward_and_backward(causal, window):
    inputs = tensors()
    stages = {} if GPU else {"stage": 60, "backward_stage": 66}
    o = attention(*inputs, causal=causal, window=window, **stages)
    q, k, v = (x.float() for x in inputs)
    rows, keys = q.shape[2], k.shape[2]
    mask = torch.ones(rows, keys, dtype=torch.bool, device=q.device)
    mask = mask.tril(keys - rows) if causal else mask
    left, right = window
    mask = mask if left < 0 else mask.triu(keys - rows - left)
    mask = mask if right < 0 else mask.tril(keys - rows + right)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    assert relative(o.detach().float().cpu(), expected.detach().cpu().double().numpy()) < 1e-3
    do = torch.randn_like(o)
    gradients = torch.autograd.grad(o, inputs, do)
    for got, exact in zip(gradients, torch.autograd.grad(expected, inputs, do.float())):
        assert relative(got.float().cpu(), exact.cpu().double().numpy()) < 2e-3


def test_the_generic_call_takes_tensors():
    q, k, v = tensors(gradients=False)
    o, lse = flash_ladder.attention(q, k, v, return_lse=True, stage=5)
    expected, L = reference(*(x.cpu().numpy() for x in (q, k, v)))
    assert relative(o.cpu(), expected) < 1e-3 and abs(lse.cpu().numpy() - L).max() < 1e-4
    gradients = flash_ladder.attention_backward(q, k, v, o, lse, o, stage=gradients_of())
    assert [x.shape for x in gradients] == [q.shape, k.shape, v.shape]


def test_a_sum_s_gradient_and_transposed_views():
    q, k, v = (x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in tensors())
    o = attention(q, k, v, causal=True, **STAGES)
    assert o.stride() == q.stride()
    o.sum().backward()
    expected = torch.autograd.grad(sdpa(q, k, v, True).sum(), v)[0]
    assert relative(v.grad.float().cpu(), expected.cpu().double().numpy()) < 2e-3


def test_a_gradient_that_no_kernel_can_read_is_copied():
    """cat's, of rows of two tensors, begins in the middle of a row; half of them at no multiple of 16 bytes."""
    q, k, v = tensors()
    rest = [torch.zeros(*q.shape[:3], n, device=DEVICE, dtype=q.dtype) for n in (4, 12)]
    do = torch.randn(*q.shape[:3], 80, device=DEVICE, dtype=q.dtype)
    got = torch.autograd.grad(torch.cat([rest[0], attention(q, k, v, **STAGES), rest[1]], -1), (q, k, v), do)
    expected = torch.autograd.grad(attention(q, k, v, **STAGES), (q, k, v), do[..., 4:68].contiguous())
    assert all(same(x, y) for x, y in zip(got, expected))


def same(x, y):
    """On a GPU the last rung adds dQ up in any order."""
    return torch.allclose(x, y, rtol=1e-2, atol=1e-2) if GPU else torch.equal(x, y)


def test_inputs_that_repeat_over_the_batch():
    """As expand() makes them: they are read as they are, and the results are laid out in the order of their axes."""
    one = [x[:1].detach() for x in tensors()]
    wide = [x.expand(2, -1, -1, -1).requires_grad_() for x in one]
    o = attention(*wide, **STAGES)
    assert o.is_contiguous() and same(o, attention(*one, **STAGES).expand_as(o))
    gradients = torch.autograd.grad(o, wide, torch.ones_like(o))
    assert all(x.is_contiguous() and same(x[0], x[1]) for x in gradients)


@pytest.mark.parametrize("d", [32, 40, 80, 96, 112] + [50] + [200] * GPU)
def test_other_head_dimensions_by_columns_of_zeros(d):
    inputs = tensors(d=d)
    o = attention(*inputs, causal=True, **STAGES)
    exact = sdpa(*inputs, True)
    assert o.shape == exact.shape and relative(o.detach().float().cpu(), exact.detach().cpu().double().numpy()) < 1e-3
    do = torch.randn_like(o)
    gradients = torch.autograd.grad(o, inputs, do)
    for got, expected in zip(gradients, torch.autograd.grad(exact, inputs, do.float())):
        assert relative(got.float().cpu(), expected.cpu().double().numpy()) < 2e-3
    packed = [x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in inputs]
    assert attention(*packed, **STAGES).stride() == packed[0].stride()


def test_deterministic_algorithms():
    """They are the default where PyTorch is to be deterministic; others raise, or warn."""
    inputs = tensors(rows=130, keys=300)
    o = attention(*inputs, causal=True)
    do = torch.randn_like(o)
    backward = lambda **stage: torch.autograd.grad(attention(*inputs, causal=True, **stage), inputs, do)
    forward = {} if GPU else {"stage": 5}
    torch.use_deterministic_algorithms(True)
    try:
        results = [backward(**forward) for _ in range(3)]
        assert all(torch.equal(x, y) for again in results[1:] for x, y in zip(results[0], again))
        with pytest.raises(RuntimeError, match=f"stage {ADDS_BY_ATOMICS} does not have a deterministic implementation"):
            backward(**forward, backward_stage=ADDS_BY_ATOMICS)
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match=f"{ADDS_BY_ATOMICS} does not have a deterministic implementation"):
            backward(**forward, backward_stage=ADDS_BY_ATOMICS)
    finally:
        torch.use_deterministic_algorithms(False)
    backward(**forward, backward_stage=ADDS_BY_ATOMICS)
    exact = flash_ladder._core.default_stage(False, (2, 4, 2, 130, 300, 64), "--causal", DEVICE.replace("cuda", "gpu"), True)
    assert flash_ladder.stages(exact)[0].repeats_exactly
    for d in (64, 128, 256):  # under every mask
        for words in ("--window 20,0", "--columns prefix", "--documents 60,240", "--tiles quarter", "--dropout 0.2,5"):
            shape, device = (1, 4, 2, 300, 300, d), DEVICE.replace("cuda", "gpu")
            assert flash_ladder.stages(flash_ladder._core.default_stage(False, shape, words, device, True))[0].repeats_exactly
    for x, y in zip(results[0], backward(**forward, backward_stage=exact)):
        assert torch.equal(x, y)


class Computed(torch.utils.data.Dataset):
    """Attention, computed by whoever loads it."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        torch.manual_seed(i)
        q = torch.randn(1, 2, 70, 64, dtype=torch.float16)
        return attention(q, q, q, stage=5)


@pytest.mark.skipif(bool(flash_ladder._core.why_not("cpu")), reason="this build has no CPU back-end")
def test_in_a_data_loader_s_workers():
    """Which are forked from a process that has called it."""
    expected = torch.stack([Computed()[i] for i in range(4)])
    loader = torch.utils.data.DataLoader(Computed(), num_workers=2, multiprocessing_context="fork", timeout=60)
    assert torch.equal(torch.cat(list(loader)), expected)


def test_derivatives_that_there_are_not_are_refused():
    q, k, v = tensors(gradients=False)
    scale = torch.tensor(0.125, requires_grad=True)
    with pytest.raises(TypeError, match="scale requires a gradient, and none flows to it"):
        attention(q, k, v, scale=scale)
    with torch.no_grad():
        assert torch.equal(attention(q, k, v, scale=scale, stage=5), attention(q, k, v, stage=5))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises(NotImplementedError, match="no derivatives in forward mode"):
            attention(dual, k, v, stage=5)


@pytest.mark.parametrize("d", [64, 40])
def test_under_torch_compile(d):
    q, k, v = tensors(d=d)

    def step(q, k, v):
        return attention(2 * q, k, v, causal=True, **STAGES).float().square().mean()

    compiled = torch.compile(step, fullgraph=True, backend="inductor" if GPU else "aot_eager")
    gradients = [torch.autograd.grad(f(q, k, v), (q, k, v)) for f in (compiled, step)]
    for got, expected in zip(*gradients):
        assert torch.allclose(got, expected, rtol=1e-2, atol=1e-6)


def test_nothing_but_the_stage_runs_for_gradients():
    """No gradient of L, of zeros, is made for it to ignore."""
    inputs = tensors()
    o = attention(*inputs, **STAGES)
    with torch.profiler.profile(acc_events=True) as profile:
        torch.autograd.grad(o, inputs, torch.ones_like(o))
    ran = {event.key for event in profile.key_averages()}
    assert "aten::empty_like" in ran and not ran & {"aten::zeros", "aten::zero_", "aten::clone", "aten::copy_"}


def test_autocast_casts():
    q, k, v = (x.float() for x in tensors())
    with torch.autocast(DEVICE, torch.bfloat16):
        assert attention(q, k, v, **STAGES).dtype == torch.bfloat16


def test_bad_input_is_refused():
    q, k, v = tensors(gradients=False)
    with pytest.raises(TypeError, match="Q is float16 and K is float32: they must agree"):
        attention(q, k.float(), v)
    with pytest.raises(TypeError, match="Q is float32; expected float16 or bfloat16"):
        attention(q.float(), k.float(), v.float())
    with pytest.raises(ValueError, match=r"Q is \(4, 70, 64\), of rank 3"):
        attention(q[0], k, v)
    with pytest.raises(ValueError, match=r"K is \(2, 2, 90, 64\) and V is \(2, 2, 89, 64\)"):
        attention(q, k, v[:, :, 1:])
    with pytest.raises(ValueError, match="there is no stage 'five'"):
        attention(q, k, v, stage="five")
    with pytest.raises(ValueError, match="there is no stage ''"):
        attention(q, k, v, stage="")
    with pytest.raises(ValueError, match="backend is 'gpu' and Q is in the CPU's memory"):
        attention(q.cpu(), k.cpu(), v.cpu(), backend="gpu")
    with pytest.raises(ValueError, match="no stage has head dimension 320; there are 64, 128, 256, and by columns of"):
        attention(*(x.repeat(1, 1, 1, 5) for x in (q, k, v)))
    with pytest.raises(ValueError, match=r"Q is \(2, 4, 70, 40\) and K is \(2, 2, 90, 48\): B and d must agree"):
        attention(q[..., :40], k[..., :48], v[..., :48])
    o, lse = torch.empty_like(q), torch.zeros(q.shape[:3], device=DEVICE)
    for x in v[..., :32], v[..., :1], torch.cat([v, v], -1):  # V of another head dimension
        for call in (lambda: attention(q, k, x), lambda: attention_backward(q, k, x, o, lse, o),
                     lambda: attention(q.requires_grad_(), k, x, stage=5)):
            with pytest.raises(ValueError, match=rf"K is \(2, 2, 90, 64\) and V is \(2, 2, 90, {x.shape[3]}\): they must"):
                call()
    for x in k[..., :32], torch.cat([k, k], -1):
        for call in lambda: attention(q, x, x), lambda: attention_backward(q, x, x, o, lse, o):
            with pytest.raises(ValueError, match=r"Q is \(2, 4, 70, 64\) and K is .*: B and d must agree"):
                call()
    q.requires_grad_(False)
    for wrong in ((o[..., :32], lse, o), (o, lse, o[..., :32])):
        with pytest.raises(ValueError, match="O is .* and Q is .*: they must agree"):
            attention_backward(q, k, v, *wrong)
    with pytest.raises(ValueError, match=r"L is \(2, 4, 69\); expected \(2, 4, 70\), the first axes of Q"):
        attention_backward(q, k, v, o, lse[:, :, 1:], o)
    with pytest.raises(ValueError, match="scale must be a finite number"):
        attention(q, k, v, scale=1e39)
    with pytest.raises(TypeError, match="causal is 'no'; expected True or False"):
        attention(q, k, v, causal="no")
    assert torch.equal(*(attention(q, k, v, causal=yes, stage=5) for yes in (True, np.True_)))
    with pytest.raises(TypeError, match="K is a sparse tensor; expected a dense one"):
        attention(q, k.to_sparse(), v)
    with pytest.raises(TypeError, match="V is numpy.ndarray; expected torch.Tensor"):
        attention(q, k, v.cpu().numpy())
    with pytest.raises(TypeError, match="L is builtins.NoneType; expected torch.Tensor"):
        attention_backward(q, k, v, q, None, q)


def test_what_the_ladder_says_is_of_its_own_kind(tmp_path):
    q, k, v = tensors(gradients=False)
    source = Path(flash_ladder.stages(5)[0].source).read_text()
    (tmp_path / "kernel.cu").write_text(source.replace("__device__ bool visible", "__device__ boole visible"))
    with pytest.raises(flash_ladder.CheckFailed, match="^[^:]*does not compile"):
        attention(q, k, v, stage=tmp_path)
    with pytest.raises(flash_ladder.CheckFailed, match="^[^:]*does not compile"):
        attention_backward(q, k, v, q, torch.zeros(q.shape[:3], device=DEVICE), q, stage=tmp_path)


@pytest.mark.skipif(not GPU, reason="there is no GPU")
class TestOnAGpu:
    @pytest.mark.parametrize("rows", [512, 1])
    def test_cuda_graph(self, rows):
        q, k, v = tensors(torch.bfloat16, gradients=False, rows=rows, keys=512)
        expected = attention(q, k, v, causal=True)  # also compiles and loads
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = attention(q, k, v, causal=True)
        for _ in range(3):
            o.zero_()
            graph.replay()
            assert torch.equal(o, expected)
        fresh = torch.randn_like(v)
        v.copy_(fresh)
        graph.replay()
        assert torch.equal(o, attention(q, k, fresh, causal=True))

    def test_the_current_stream(self):
        """What a side stream has still to write, its attention sees."""
        q, k, v = tensors(torch.bfloat16, gradients=False, rows=512, keys=512)
        expected = attention(q, k, 2 * v)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            later = 2 * v
            o = attention(q, k, later)
            assert not stream.query()  # nothing waited
        stream.synchronize()
        assert torch.equal(o, expected)

    def test_in_a_thread_that_is_new_to_cuda(self):
        """As autograd's are; a tensor map is asked of the driver, which wants a context."""
        inputs = tensors(torch.bfloat16, gradients=False, rows=70, keys=70)
        hopper = stage_that(compute_capability=90)
        expected, results = attention(*inputs, stage=hopper), []
        thread = threading.Thread(target=lambda: results.append(attention(*inputs, stage=hopper)))
        thread.start()
        thread.join()
        assert torch.equal(results[0], expected)

    @pytest.mark.parametrize("stage", [5, "stream_k", "own_diagonal"])
    def test_an_L_that_nobody_asks_for_changes_nothing(self, stage):
        """The last two have a workspace, with counters at its end."""
        inputs = tensors(torch.bfloat16, gradients=False, rows=1 if stage == "stream_k" else 300, keys=2000)
        expected, _ = attention(*inputs, stage=stage, return_lse=True)
        for _ in range(3):
            assert torch.equal(attention(*inputs, stage=stage), expected)

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is no second GPU")
    @pytest.mark.parametrize("stages", [{"stage": 5, "backward_stage": ADDS_BY_ATOMICS}, {}])
    def test_on_another_gpu_than_the_current_one(self, stages):
        inputs = tensors(torch.bfloat16, rows=300, keys=300)
        elsewhere = [x.detach().to("cuda:1").requires_grad_() for x in inputs]
        results = []
        for x in inputs, elsewhere:
            o = attention(*x, causal=True, **stages)
            results.append([o, *torch.autograd.grad(o.sum(), x)])
        assert torch.cuda.current_device() == 0
        for here, there in zip(*results):
            assert there.device == torch.device("cuda:1")
            assert torch.allclose(here, there.to("cuda:0"), rtol=1e-2, atol=1e-2)  # dQ is added up in any order

    def test_what_is_elsewhere_is_refused(self):
        q, k, v = tensors(torch.bfloat16, gradients=False)
        o, lse = attention(q, k, v, return_lse=True)
        with pytest.raises(ValueError, match="L is on cpu and Q on cuda:0: they must agree"):
            attention_backward(q, k, v, o, lse.cpu(), torch.ones_like(o))
        with pytest.raises(ValueError, match="Q is on cuda:0 and V on cpu: they must agree"):
            attention(q, k, v.cpu())

    def test_no_synchronization_and_no_other_memory(self):
        q, k, v = tensors(torch.bfloat16, gradients=False, rows=512, keys=512)
        attention(q, k, v, stage=5)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.set_sync_debug_mode("error")
        try:
            o, lse = attention(q, k, v, stage=5, return_lse=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert torch.cuda.memory_allocated() - before == o.nbytes + (lse.nbytes + 511) // 512 * 512

    @pytest.mark.parametrize("stage", [0, 36])
    def test_gradients_keep_L_but_no_large_workspace(self, stage):
        """0 has S and P in its workspace, 36 a counter."""
        inputs = tensors(torch.bfloat16, rows=512, keys=512)
        attention(*inputs, stage=stage)
        before = torch.cuda.memory_allocated()
        o = attention(*inputs, stage=stage)
        L_bytes = 4 * o.numel() // o.shape[-1]
        assert torch.cuda.memory_allocated() - before <= o.nbytes + L_bytes + 512

    @pytest.mark.parametrize("stages", [{"stage": 5, "backward_stage": 40}, {}])
    def test_first_and_last_rungs_at_d_128(self, stages):
        """`lab verify --backend gpu` has all stages; here it is how they are called."""
        inputs = tensors(torch.bfloat16, rows=300, keys=300, d=128)
        exact = sdpa(*inputs, True)
        o = attention(*inputs, causal=True, **stages)
        assert relative(o.detach().float().cpu(), exact.detach().cpu().double().numpy()) < 8e-3
        for got, expected in zip(torch.autograd.grad(o.sum(), inputs), torch.autograd.grad(exact.sum(), inputs)):
            assert relative(got.float().cpu(), expected.cpu().double().numpy()) < 1.6e-2


def test_a_verdict_is_of_tensors_that_fit():
    from flash_ladder.torch import verdict
    q, k, v = tensors(gradients=False)
    o, lse = attention(q, k, v, stage=5, return_lse=True)
    assert verdict(q, k, v, o, lse)["passed"] and verdict(q, k, v, o, lse, sampled_rows=8)["passed"]
    for call, kind, said in (
            (lambda: verdict(q, k, v.float(), o, lse), TypeError, "V is float32; expected float16 or bfloat16"),
            (lambda: verdict(q, k.bfloat16(), v, o, lse), ValueError, "Q is torch.float16 on .* and K torch.bfloat16 on .*: they"),
            (lambda: verdict(q[:1], k, v, o[:1], lse[:1]), ValueError, r"Q is \(1, .* and K is \(2, .*: B and d must agree"),
            (lambda: verdict(q, k, v[:, :, :80], o, lse), ValueError, r"K is .* and V is \(2, 2, 80, 64\): they must agree"),
            (lambda: verdict(q, k, v[..., :32], o, lse), ValueError, r"K is .* and V is \(2, 2, 90, 32\): they must agree"),
            (lambda: verdict(q[:, :3], k, v, o[:, :3], lse[:, :3]), ValueError, "H = 3 is not a multiple of Hkv = 2"),
            (lambda: verdict(q[0], k, v, o[0], lse[0]), ValueError, r"Q is \(4, 70, 64\), of rank 3"),
            (lambda: verdict(q, k, v, o, lse.half()), ValueError, "O is .* and L .* of torch.float16; expected"),
            (lambda: verdict(q, k, v, o, lse, sampled_rows=-1), ValueError, "sampled_rows is -1; expected"),
            (lambda: verdict(q, k, v, o, lse, sampled_rows="all"), TypeError, "sampled_rows is 'all'; expected")):
        with pytest.raises(kind, match=said):
            call()


def test_a_function_of_one_s_own_is_judged():
    from flash_ladder.torch import judge
    stage = lambda q, k, v, causal, scale: attention(q, k, v, causal=causal, scale=scale, stage=5, return_lse=True)
    said = judge(stage, like=5, device=DEVICE)
    assert said["passed"] == said["cases"] > 5 and not said["reports"]
    said = judge(lambda q, k, v, causal, scale: stage(q, k, v, False, scale), like=5, device=DEVICE)
    assert 0 < said["failed"] < said["cases"] and "O is wrong" in "".join(said["reports"])
