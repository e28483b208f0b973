"""The package in PyTorch: on a CPU by the stages of the algorithm, on a GPU by the last rungs."""

import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import reference, relative

torch = pytest.importorskip("torch")
import torch.nn.functional as F

import flash_ladder
from flash_ladder.torch import attention, attention_backward

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
STAGES = {} if GPU else {"stage": 5, "backward_stage": 40}
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


def test_the_generic_call_takes_tensors():
    q, k, v = tensors(gradients=False)
    o, lse = flash_ladder.attention(q, k, v, return_lse=True, stage=5)
    expected, L = reference(*(x.cpu().numpy() for x in (q, k, v)))
    assert relative(o.cpu(), expected) < 1e-3 and abs(lse.cpu().numpy() - L).max() < 1e-4
    gradients = flash_ladder.attention_backward(q, k, v, o, lse, o, stage=40)
    assert [x.shape for x in gradients] == [q.shape, k.shape, v.shape]


def test_a_sum_s_gradient_and_transposed_views():
    q, k, v = (x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in tensors())
    o = attention(q, k, v, causal=True, **STAGES)
    assert o.stride() == q.stride()
    o.sum().backward()
    expected = torch.autograd.grad(sdpa(q, k, v, True).sum(), v)[0]
    assert relative(v.grad.float().cpu(), expected.cpu().double().numpy()) < 2e-3


def test_operators_pass_opcheck():
    q, k, v = tensors()
    stage, backward = (str(x) if x else None for x in (STAGES.get("stage"), STAGES.get("backward_stage")))
    torch.library.opcheck(torch.ops.flash_ladder.attention.default, (q, k, v, True, None, stage, backward, "cpu"))
    o, lse = attention(q, k, v, causal=True, return_lse=True, **STAGES)
    inputs = [x.detach() for x in (q, k, v, o, lse, torch.randn_like(o))]
    torch.library.opcheck(torch.ops.flash_ladder.attention_backward.default, (*inputs, True, None, backward, "cpu"))


def test_under_torch_compile():
    q, k, v = tensors()

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
        expected, results = attention(*inputs, stage=33), []
        thread = threading.Thread(target=lambda: results.append(attention(*inputs, stage=33)))
        thread.start()
        thread.join()
        assert torch.equal(results[0], expected)

    @pytest.mark.parametrize("stage", [5, 16, 36])
    def test_an_L_that_nobody_asks_for_changes_nothing(self, stage):
        """16 and 36 have a workspace, with counters at its end."""
        inputs = tensors(torch.bfloat16, gradients=False, rows=1 if stage == 16 else 300, keys=2000)
        expected, _ = attention(*inputs, stage=stage, return_lse=True)
        for _ in range(3):
            assert torch.equal(attention(*inputs, stage=stage), expected)

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is no second GPU")
    @pytest.mark.parametrize("stages", [{"stage": 5, "backward_stage": 42}, {}])
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
