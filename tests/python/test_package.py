"""The package on NumPy's arrays and the CPU back-end."""

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import gradients_of, reference, reference_gradients, relative, stage_that

import flash_ladder

if why := flash_ladder._core.why_not("cpu"):
    pytest.skip(why, allow_module_level=True)

GRADIENTS = gradients_of()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_attention(problem, causal):
    O, L = flash_ladder.attention(*problem, causal=causal, stage=5, return_lse=True)
    expected_O, expected_L = reference(*problem, causal=causal)
    assert O.dtype == np.float16 and L.dtype == np.float32
    assert relative(O, expected_O) < 1e-3
    assert abs(L - expected_L).max() < 1e-4


@pytest.mark.parametrize("causal, window", [(True, (20, -1)), (False, (20, 0)), (False, (0, 7)), (False, (-1, 30))])
def test_windows(problem, causal, window):
    O, L = flash_ladder.attention(*problem, causal=causal, window=window, return_lse=True)
    expected_O, expected_L = reference(*problem, causal=causal, window=window)
    assert relative(O, expected_O) < 1e-3 and abs(L - expected_L).max() < 1e-4
    gradients = flash_ladder.attention_backward(*problem, O, L, O, causal=causal, window=window,
                                                stage=gradients_of("window"))
    for got, exact in zip(gradients, reference_gradients(*problem, O, causal=causal, window=window)):
        assert relative(got, exact) < 2e-3


def test_windows_are_taken_or_refused_by_name(problem):
    q, k, v = problem
    shape, windowed = (2, 4, 2, 70, 90, 64), stage_that("window")
    assert flash_ladder.default_stage(shape, window=(20, 0)) == windowed
    assert (flash_ladder.attention(q, k, v, window=(-1, -1), stage=5) == flash_ladder.attention(q, k, v, stage=5)).all()
    assert flash_ladder.verify(windowed, shape=shape, window=(9, 3))[0]["passed"] == 1
    assert (flash_ladder.count(windowed, window=(63, 0))["mma"] < flash_ladder.count(windowed)["mma"])
    for call in (lambda: flash_ladder.attention(q, k, v, window=(20, 0), stage=5),
                 lambda: flash_ladder.verify(5, shape=shape, window=(20, 0)),
                 lambda: flash_ladder.count(5, shape, window=(20, 0))):
        with pytest.raises(ValueError, match="causal_skip does not take a sliding window"):
            call()
    for window in (3, (1,), (1, 2, 3), (-2, 0), (0, 1 << 30), "ab", (0.5, 1)):
        with pytest.raises((ValueError, TypeError), match="window"):
            flash_ladder.attention(q, k, v, window=window)


def test_any_order_of_axes_is_a_view(problem):
    expected = flash_ladder.attention(*problem, stage=5, scale=-0.3)
    packed = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in problem]  # (B, N, H, d)
    O = flash_ladder.attention(*packed, stage=5, scale=-0.3)
    assert O.strides == packed[0].strides
    assert (O == expected).all()


def test_the_default_stage_depends_on_the_problem(problem):
    q, k, v = problem
    decoding, prefill = (flash_ladder.default_stage((1, 32, 8, rows, 8192, 128)) for rows in (1, 8192))
    assert flash_ladder.stages(decoding)[0].shows_in in ("decode", "batch")
    assert flash_ladder.stages(prefill)[0].shows_in not in ("decode", "batch")
    default = flash_ladder.default_stage((*q.shape[:2], k.shape[1], 1, *k.shape[2:]))
    assert (flash_ladder.attention(q[:, :, :1], k, v) == flash_ladder.attention(q[:, :, :1], k, v, stage=default)).all()
    with pytest.raises(ValueError, match="320"):
        flash_ladder.default_stage((1, 32, 8, 1, 8192, 320))


def test_rows_without_keys(problem):
    q, k, v = problem
    O, L = flash_ladder.attention(k, q[:, :2], q[:, :2], causal=True, stage=5, return_lse=True)
    assert (O[:, :, :20] == 0).all() and np.isneginf(L[:, :, :20]).all()
    assert np.isfinite(L[:, :, 20:]).all()


def test_gradients_are_those_of_finite_differences(problem):
    q, k, v = (x[:1, :2, :20] for x in problem)
    O, L = flash_ladder.attention(q, k, v, causal=True, stage=5, return_lse=True)
    dO = np.random.default_rng(2).standard_normal(O.shape).astype(np.float16)
    gradients = flash_ladder.attention_backward(q, k, v, O, L, dO, causal=True, stage=GRADIENTS)
    loss = lambda *tensors: (reference(*tensors, causal=True)[0] * dO).sum()
    inputs = [x.astype(np.float64) for x in (q, k, v)]
    for i, gradient in enumerate(gradients):
        direction = np.random.default_rng(3).standard_normal(inputs[i].shape)
        moved = [[x + sign * 1e-5 * direction if j == i else x for j, x in enumerate(inputs)] for sign in (1, -1)]
        assert (gradient * direction).sum() == pytest.approx((loss(*moved[0]) - loss(*moved[1])) / 2e-5, rel=2e-2)


def test_L_may_be_laid_out_in_any_way(problem):
    q, k, v = problem
    O, L = flash_ladder.attention(q, k, v, stage=5, return_lse=True)
    expected = flash_ladder.attention_backward(q, k, v, O, L, O, stage=GRADIENTS)
    unaligned = np.frombuffer(b"." + L.tobytes(), np.float32, offset=1).reshape(L.shape)
    for lse in (np.asfortranarray(L), np.repeat(L, 2, axis=-1)[..., ::2], unaligned):
        for got, same in zip(flash_ladder.attention_backward(q, k, v, O, lse, O, stage=GRADIENTS), expected):
            assert (got == same).all()


def test_inputs_that_repeat_over_the_batch(problem):
    q, k, v = (x[:1] for x in problem)
    wide = [np.broadcast_to(x, (2, *x.shape[1:])) for x in (q, k, v)]
    O, L = flash_ladder.attention(*wide, stage=5, return_lse=True)
    expected = flash_ladder.attention(q, k, v, stage=5)
    assert (O == np.broadcast_to(expected, O.shape)).all()
    for gradient in flash_ladder.attention_backward(*wide, O, L, O, stage=GRADIENTS):
        assert (gradient[0] == gradient[1]).all() and gradient.flags.c_contiguous


@pytest.mark.parametrize("d", [1, 40, 80, 112, 200])
def test_other_head_dimensions_by_columns_of_zeros(d):
    """With the scale of d, and of any stride, since they are copied."""
    random = np.random.default_rng(d)
    q, k, v = (random.standard_normal((1, heads, rows, d)).astype(np.float16)
               for heads, rows in ((2, 20), (1, 30), (1, 30)))
    stages = {"forward": 5, "backward": 40} if d <= 128 else {"forward": None, "backward": None}
    O, L = flash_ladder.attention(q, k, v, causal=True, stage=stages["forward"], return_lse=True)
    expected_O, expected_L = reference(q, k, v, causal=True)
    assert O.shape == q.shape and relative(O, expected_O) < 1e-3 and abs(L - expected_L).max() < 1e-4
    gradients = flash_ladder.attention_backward(q, k, v, O, L, O, causal=True, stage=stages["backward"])
    for got, exact, like in zip(gradients, reference_gradients(q, k, v, O, causal=True), (q, k, v)):
        assert got.shape == like.shape and np.linalg.norm(got - exact) < 2e-3 * np.linalg.norm(exact) + 1e-3
    scaled = flash_ladder.attention(q, k, v, scale=0.3, stage=stages["forward"])
    assert relative(scaled, reference(q, k, v, scale=0.3)[0]) < 1e-3


def test_which_rows_a_nan_of_a_masked_key_spoils():
    """docs/python.md says so: of V those whose query tile computes the key's tile, of K those that see the key."""
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal((1, 1, 300, 64)).astype(np.float16) for _ in range(3))
    spoiled = v.copy()
    spoiled[0, 0, 250, 3] = np.nan
    for stage, first in ((0, 0), (5, 192)):
        O = flash_ladder.attention(q, k, spoiled, causal=True, stage=stage)
        assert list(np.flatnonzero(np.isnan(O[0, 0, :, 3]))) == list(range(first, 300))
        assert not np.isnan(np.delete(O, 3, axis=-1)).any()
        O = flash_ladder.attention(q, spoiled, v, causal=True, stage=stage)
        assert list(np.flatnonzero(np.isnan(O[0, 0]).any(-1))) == list(range(250, 300))


def test_where_bf16_overflows():
    """docs/python.md says so: a stage that divides P sums weights of at most 1, one that divides O sums P V before."""
    bf16 = pytest.importorskip("ml_dtypes").bfloat16
    q = np.ones((1, 1, 256, 64), bf16)
    for large, stage, finite in ((3e38, 0, True), (3e38, 5, False), (1e36, 5, True)):
        O = flash_ladder.attention(q, q, q * bf16(large), stage=stage)
        assert np.isfinite(O.astype(np.float32)).all() == finite


def in_a_child(run):
    """Whether run() comes to its end in a child of this process, and without an error."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # instead of a wait without an end
        try:
            run()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def test_a_child_of_fork_computes_as_its_parent_does(problem):
    expected = flash_ladder.attention(*problem, stage=5)

    def run():
        assert (flash_ladder.attention(*problem, stage=5) == expected).all()
        assert (flash_ladder.attention(*problem, stage=4) != 0).all()  # perhaps compiled, by processes of its own

    assert in_a_child(run)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for O in pool.map(forked_attention, [problem] * 4):
            assert (O == expected).all()
    assert (flash_ladder.attention(*problem, stage=5) == expected).all()


def forked_attention(problem):
    return flash_ladder.attention(*problem, stage=5)


def test_a_fork_waits_for_the_calls_of_other_threads(problem):
    """A child has no other thread: what one of them holds, nobody would give back."""
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            flash_ladder.attention(*problem, stage=5)

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert all(in_a_child(lambda: flash_ladder.attention(*problem, stage=5)) for _ in range(10))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_kernel_of_ones_own(problem, tmp_path):
    stage = flash_ladder.stages(5)[0]
    folder = tmp_path / "my"
    folder.mkdir()
    source = Path(stage.source).read_text()
    shutil.copy(stage.source, folder / "kernel.cu")
    O = flash_ladder.attention(*problem, stage=folder)
    assert (O == flash_ladder.attention(*problem, stage=5)).all()

    wrong = tmp_path / "wrong"
    wrong.mkdir()
    barrier = "        __syncthreads();  // all copies of Q, K and V have landed\n"
    assert barrier in source
    (wrong / "kernel.cu").write_text(source.replace(barrier, ""))
    with pytest.raises(flash_ladder.CheckFailed, match="kernel.cu:"):
        flash_ladder.attention(*problem, stage=wrong, backend="checked")

    (wrong / "kernel.cu").write_text(source.replace("__device__ bool visible", "__device__ boole visible"))
    with pytest.raises(flash_ladder.CheckFailed, match="does not compile"):
        flash_ladder.attention(*problem, stage=str(wrong) + "/")

    (folder / "kernel.cu").write_text(source.replace("= p.scale * log2_e", "= 2 * p.scale * log2_e"))
    changed = flash_ladder.attention(*problem, stage=folder)
    assert relative(changed, reference(*problem, scale=2 / 8)[0]) < 1e-3  # not what was loaded before


def test_what_is_said_of_stages():
    split_q = flash_ladder.stages("split_q")[0]
    parent = flash_ladder.stages("sequence_parallel")[0]
    assert (split_q.folder, split_q.parent) == (f"{split_q.number:02}_split_q", parent.number)
    numbers = [stage.number for stage in flash_ladder.stages()]
    folders = [kernel.parent for kernel in Path(split_q.source).parents[1].glob("*/kernel.cu")]
    assert sorted(numbers) == sorted(int(folder.name[:2]) for folder in folders)


def test_count_and_verify():
    work = flash_ladder.count(5, (1, 2, 2, 128, 128, 64))
    assert work["mma"] == 2 * 2 * 128 * 128 * 64 * 2 // (2 * 16 * 8 * 16)  # S and O, of 16 x 8 x 16 products
    assert work["bypassed_bytes"] == 0
    verdict = flash_ladder.verify(5, shape=(1, 2, 1, 65, 63, 64), causal=True)[0]
    assert (verdict["passed"], verdict["failed"], verdict["reports"]) == (1, 0, [])


def test_time_needs_a_gpu():
    if not flash_ladder._core.why_not("gpu"):
        pytest.skip("there is a GPU")
    with pytest.raises(flash_ladder.CannotRun, match="GPU|CUDA device"):
        flash_ladder.time(5, (1, 1, 1, 64, 64, 64))


def call(problem, **options):
    return lambda *changed: flash_ladder.attention(*(changed or problem), **{"stage": 5, **options})


def test_bad_input_is_refused_in_one_sentence(problem):
    q, k, v = problem
    f = call(problem)
    refused = [
        (ValueError, "Q is (2, 4, 70, 64) and K is (2, 2, 90, 32): B and d must agree",
         lambda: f(q, k[..., :32], v[..., :32])),
        (ValueError, "K is (2, 2, 90, 64) and V is (2, 2, 89, 64): they must agree", lambda: f(q, k, v[:, :, 1:])),
        (ValueError, "H = 3 is not a multiple of Hkv = 2: each key/value head serves", lambda: f(q[:, :3], k, v)),
        (ValueError, "05_causal_skip has no head dimension 256; it has 64, 128, and by columns of zeros all that are",
         lambda: f(*(x.repeat(4, axis=-1) for x in problem))),
        (ValueError, "no stage has head dimension 320; there are 64, 128, 256, and by columns of zeros all that are",
         lambda: flash_ladder.attention(*(x.repeat(5, axis=-1) for x in problem))),
        (ValueError, "Q is (2, 4, 70, 48) and K is (2, 2, 90, 40): B and d must agree",
         lambda: f(q[..., :48], k[..., :40], v[..., :40])),
        (ValueError, "d = 0: every size must be at least 1", lambda: f(*(x[..., :0] for x in problem))),
        (ValueError, "there is no stage 'splitq' (did you mean 'split_q'?); see flash_ladder.stages()",
         call(problem, stage="splitq")),
        (ValueError, "there is no ", call(problem, stage="no/such/folder")),
        (ValueError, f"{GRADIENTS} computes gradients (dQ, dK and dV), not attention", call(problem, stage=GRADIENTS)),
        (ValueError, "there is no back-end 'tpu'; there are cpu, checked and gpu", call(problem, backend="tpu")),
        (ValueError, "scale must be a finite number", call(problem, scale=float("nan"))),
        (ValueError, "scale must be a finite number", call(problem, scale=1e39)),
        (ValueError, "scale must be a finite number", call(problem, scale=10**400)),
        (TypeError, "scale is 'wide'; expected a number", call(problem, scale="wide")),
        (TypeError, "scale is array([1.]); expected a number", call(problem, scale=np.ones(1))),
        (TypeError, "causal is 'no'; expected True or False", call(problem, causal="no")),
        (TypeError, "causal is None; expected True or False", call(problem, causal=None)),
        (TypeError, "backend is None; expected 'cpu', 'checked' or 'gpu'", call(problem, backend=None)),
        (ValueError, "Q is (4, 70, 64), of rank 3; expected (B, H, N, d)", lambda: f(q[0], k, v)),
        (ValueError, "Nk = 0: every size must be at least 1", lambda: f(q, k[:, :, :0], v[:, :, :0])),
        (ValueError, "K: its last axis must be contiguous", lambda: f(q, k.repeat(2, axis=-1)[..., ::2], v)),
        (ValueError, "K: it must begin at a multiple of 16 bytes",
         lambda: f(q, np.concatenate([k, k], axis=-1)[..., 1:65], v)),
        (ValueError, "K: its strides in elements, (11520, 5760, -64, 1), must not be negative", lambda: f(q, k[:, :, ::-1], v)),
        (ValueError, "x is (2, 2, 0, 64): each axis must have an element", lambda: flash_ladder.quantize(k[:, :, :0])),
        (ValueError, "words is empty; expected stages, or 'all'", lambda: flash_ladder.verify([])),
        (ValueError, "K: its strides in elements, (12240, 6120, 68, 1), must be multiples of 8",
         lambda: f(q, np.concatenate([k, k[..., :4]], axis=-1)[..., :64], v)),
        (TypeError, "Q is float32; expected float16 or bfloat16", lambda: f(*(x.astype(np.float32) for x in problem))),
        (TypeError, "Q is float16 and K is float32: they must agree", lambda: f(q, k.astype(np.float32), v)),
        (TypeError, "Q is builtins.list; expected an array of NumPy, PyTorch, CuPy or JAX", lambda: f([1], k, v)),
        (TypeError, "K is numpy.float16; expected an array of NumPy, PyTorch, CuPy or JAX", lambda: f(q, np.float16(1), v)),
        (TypeError, "K is a masked array, and no stage takes its mask", lambda: f(q, np.ma.masked_array(k), v)),
        (ValueError, "K: its strides in bytes, (23220, 11610, 129, 2), must be multiples of 16",
         lambda: f(q, np.lib.stride_tricks.as_strided(np.zeros(23300, np.float16), k.shape, (23220, 11610, 129, 2)), v)),
        (ValueError, "backend is 'gpu' and Q is in the CPU's memory",
         lambda: flash_ladder.attention(q, k, v, backend="gpu")),
        (ValueError, "there is no stage ''", lambda: flash_ladder.attention(q, k, v, stage="")),
        (TypeError, "L is float64; expected float32",
         lambda: flash_ladder.attention_backward(q, k, v, q, np.zeros(q.shape[:3]), q)),
        (ValueError, "L is (2, 4, 69); expected (2, 4, 70), the first axes of Q",
         lambda: flash_ladder.attention_backward(q, k, v, q, np.zeros((2, 4, 69), np.float32), q)),
        (TypeError, "L is builtins.list; expected an array", lambda: flash_ladder.attention_backward(q, k, v, q, [0], q, stage=GRADIENTS)),
        (TypeError, "L is a masked array, and no stage takes its mask",
         lambda: flash_ladder.attention_backward(q, k, v, q, np.ma.zeros((2, 4, 70), np.float32), q, stage=GRADIENTS)),
        (TypeError, "a size is 'many'; expected a whole number",
         lambda: flash_ladder.default_stage((1, 1, 1, "many", 64, 64))),
        (ValueError, "shape is 5; expected (B, H, Hkv, Nq, Nk, d)", lambda: flash_ladder.count(5, 5)),
        (TypeError, "quick is 2; expected True or False", lambda: flash_ladder.verify(5, quick=2)),
        (ValueError, "dO is (2, 4, 69, 64) and Q is (2, 4, 70, 64): they must agree",
         lambda: flash_ladder.attention_backward(q, k, v, q, np.zeros((2, 4, 70), np.float32), q[:, :, 1:], stage=GRADIENTS)),
        (ValueError, "shape 'B=0", lambda: flash_ladder.count(5, ("B=0", 1, 1, 1, 1, 64))),
        (ValueError, "dtype is 'fp8'; expected 'fp16' or 'bf16'", lambda: flash_ladder.verify(5, dtype="fp8")),
    ]
    for kind, sentence, wrong in refused:
        with pytest.raises(kind, match="^" + re.escape(sentence)):
            wrong()


def test_options_may_be_of_another_library(problem):
    O = flash_ladder.attention(*problem, stage=np.int64(5), causal=np.True_, scale=np.float32(0.25))
    assert (O == flash_ladder.attention(*problem, stage=5, causal=True, scale=0.25)).all()
    assert [stage.number for stage in flash_ladder.stages(np.int64(5))] == [5]
    assert len({flash_ladder.default_stage(shape) for shape in ((1, 2, 2, 9, 9, 80), np.array([1, 2, 2, 9, 9, 128]))}) == 1


def test_read_only_and_overlapping_inputs(problem):
    q = problem[0]
    q.flags.writeable = False
    O = flash_ladder.attention(q, q, q, stage=5, backend="checked")
    assert relative(O, reference(q, q, q)[0]) < 1e-3


def test_bf16_of_ml_dtypes(problem):
    bf16 = pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = (x.astype(bf16) for x in problem)
    O = flash_ladder.attention(q, k, v, stage=5)
    assert O.dtype == bf16
    assert relative(O, reference(q, k, v)[0]) < 8e-3


def test_jax_on_a_cpu(problem):
    jax = pytest.importorskip("jax")
    for dtype in ("float16", "bfloat16"):
        q, k, v = (jax.numpy.asarray(x, dtype, device=jax.devices("cpu")[0]) for x in problem)
        O, L = flash_ladder.attention(q, k, v, causal=True, stage=5, return_lse=True)
        assert isinstance(O, jax.Array) and O.dtype == dtype
        assert relative(O, reference(*map(np.asarray, (q, k, v)), causal=True)[0]) < 8e-3
        gradients = flash_ladder.attention_backward(q, k, v, O, L, O, causal=True, stage=GRADIENTS)
        assert [x.shape for x in gradients] == [q.shape, k.shape, v.shape]
        assert not (gradients[1] == gradients[2]).all()  # each has memory of its own


def test_jax_traces_are_refused(problem):
    jax = pytest.importorskip("jax")
    q, k, v = (jax.numpy.asarray(x, device=jax.devices("cpu")[0]) for x in problem)
    attention = lambda *tensors: flash_ladder.attention(*tensors, stage=5)
    with pytest.raises(TypeError, match="Q is a tracer of JAX's, without values"):
        jax.jit(attention)(q, k, v)
    with pytest.raises(TypeError, match="V is a tracer of JAX's"):
        jax.grad(lambda v: attention(q, k, v).sum())(v)
    with pytest.raises(TypeError, match="scale is .*; expected a number"):
        jax.jit(lambda scale: flash_ladder.attention(q, k, v, stage=5, scale=scale))(0.5)


def test_ctrl_c_ends_a_call(tmp_path):
    """Within a second, and no other signal does. The next call computes as ever."""
    done = subprocess.Popen([sys.executable, "-c", f"""
import sys; sys.path[:] = {sys.path!r}
import signal, time, numpy as np, flash_ladder
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background has it ignored
q = np.ones((1, 1, 100, 64), np.float16)
large = np.ones((1, 1, 40000, 64), np.float16)
expected = flash_ladder.attention(q, q, q, stage=5)
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
print("begins", flush=True)
try:
    flash_ladder.attention(large, large, large, stage=5)
except KeyboardInterrupt:
    print(time.time(), len(seen), (flash_ladder.attention(q, q, q, stage=5) == expected).all())
"""], stdout=subprocess.PIPE, text=True)
    assert done.stdout.readline() == "begins\n"
    time.sleep(1)
    done.send_signal(signal.SIGUSR1)
    time.sleep(1)
    done.send_signal(signal.SIGINT)
    sent = time.time()
    ended, seen, same = done.communicate(timeout=300)[0].split()
    assert float(ended) - sent < 1.5 and (seen, same) == ("1", "True")


def test_a_kernel_that_divides_by_zero_has_failed(problem, tmp_path):
    source = Path(flash_ladder.stages(5)[0].source).read_text()
    tile = "= p.scale * log2_e"
    assert tile in source
    (tmp_path / "kernel.cu").write_text(source.replace(tile, "= p.scale * log2_e / (7 / (p.d - 64))"))
    with pytest.raises(flash_ladder.CheckFailed, match=r"kernel.cu:\d+: .*divide.* by zero|integer is divided by zero"):
        flash_ladder.attention(*problem, stage=tmp_path)
    assert relative(flash_ladder.attention(*problem, stage=5), reference(*problem)[0]) < 1e-3


def test_the_version_is_the_changelog_s():
    newest = re.search("^## (.*)$", (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[1]
    assert flash_ladder.__version__ == newest
