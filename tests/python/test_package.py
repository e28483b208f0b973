"""The package on NumPy's arrays and the CPU back-end."""

import ctypes
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import reference, relative

import flash_ladder

if why := flash_ladder._core.why_not("cpu"):
    pytest.skip(why, allow_module_level=True)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_attention(problem, causal):
    O, L = flash_ladder.attention(*problem, causal=causal, stage=5, return_lse=True)
    expected_O, expected_L = reference(*problem, causal=causal)
    assert O.dtype == np.float16 and L.dtype == np.float32
    assert relative(O, expected_O) < 1e-3
    assert abs(L - expected_L).max() < 1e-4


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
    with pytest.raises(ValueError, match="96"):
        flash_ladder.default_stage((1, 32, 8, 1, 8192, 96))


def test_rows_without_keys(problem):
    q, k, v = problem
    O, L = flash_ladder.attention(k, q[:, :2], q[:, :2], causal=True, stage=5, return_lse=True)
    assert (O[:, :, :20] == 0).all() and np.isneginf(L[:, :, :20]).all()
    assert np.isfinite(L[:, :, 20:]).all()


def test_gradients_are_those_of_finite_differences(problem):
    q, k, v = (x[:1, :2, :20] for x in problem)
    O, L = flash_ladder.attention(q, k, v, causal=True, stage=5, return_lse=True)
    dO = np.random.default_rng(2).standard_normal(O.shape).astype(np.float16)
    gradients = flash_ladder.attention_backward(q, k, v, O, L, dO, causal=True, stage=40)
    loss = lambda *tensors: (reference(*tensors, causal=True)[0] * dO).sum()
    inputs = [x.astype(np.float64) for x in (q, k, v)]
    for i, gradient in enumerate(gradients):
        direction = np.random.default_rng(3).standard_normal(inputs[i].shape)
        moved = [[x + sign * 1e-5 * direction if j == i else x for j, x in enumerate(inputs)] for sign in (1, -1)]
        assert (gradient * direction).sum() == pytest.approx((loss(*moved[0]) - loss(*moved[1])) / 2e-5, rel=2e-2)


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
    barrier = "        __syncthreads();  // Q, K and V are there, whoever copied them\n"
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
    assert (split_q.number, split_q.folder, split_q.parent) == (4, "04_split_q", 3)
    numbers = [stage.number for stage in flash_ladder.stages()]
    assert numbers == sorted(set(numbers)) and {0, 5, 17, 36, 40} <= set(numbers)


def test_count_and_verify():
    work = flash_ladder.count(5, (1, 2, 2, 128, 128, 64))
    assert work["mma"] == 2 * 2 * 128 * 128 * 64 * 2 // (2 * 16 * 8 * 16)  # S and O, of 16 x 8 x 16 products
    assert work["bypassed_bytes"] == 0
    verdict = flash_ladder.verify(5, shape=(1, 2, 1, 65, 63, 64), causal=True)[0]
    assert (verdict["passed"], verdict["failed"], verdict["reports"]) == (1, 0, [])


def test_time_needs_a_gpu():
    if not flash_ladder._core.why_not("gpu"):
        pytest.skip("there is a GPU")
    with pytest.raises(flash_ladder.CannotRun, match="GPU"):
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
        (ValueError, "05_causal_skip has no head dimension 256; it has 64, 128",
         lambda: f(*(x.repeat(4, axis=-1) for x in problem))),
        (ValueError, "no stage has head dimension 48", lambda: f(*(x[..., :48] for x in problem))),
        (ValueError, "there is no stage 'splitq'", call(problem, stage="splitq")),
        (ValueError, "there is no ", call(problem, stage="no/such/folder")),
        (ValueError, "40_standard_gradient computes dQ, dK and dV, and not attention", call(problem, stage=40)),
        (ValueError, "there is no back-end 'tpu'; there are cpu, checked and gpu", call(problem, backend="tpu")),
        (ValueError, "scale must be a finite number", call(problem, scale=float("nan"))),
        (ValueError, "Q is (4, 70, 64), of rank 3; expected (B, H, N, d)", lambda: f(q[0], k, v)),
        (ValueError, "Nk = 0: every size must be at least 1", lambda: f(q, k[:, :, :0], v[:, :, :0])),
        (ValueError, "K: its last axis must be contiguous", lambda: f(q, k.repeat(2, axis=-1)[..., ::2], v)),
        (ValueError, "K: it must begin at a multiple of 16 bytes",
         lambda: f(q, np.concatenate([k, k], axis=-1)[..., 1:65], v)),
        (ValueError, "K: its strides in elements, (12240, 6120, 68, 1), must be multiples of 8",
         lambda: f(q, np.concatenate([k, k[..., :4]], axis=-1)[..., :64], v)),
        (TypeError, "Q is float32; expected float16 or bfloat16", lambda: f(*(x.astype(np.float32) for x in problem))),
        (TypeError, "Q is float16 and K is float32: they must agree", lambda: f(q, k.astype(np.float32), v)),
        (TypeError, "builtins.list is no array of NumPy, PyTorch, CuPy or JAX", lambda: f([1], k, v)),
        (ValueError, "backend is 'gpu' and Q is in the CPU's memory",
         lambda: flash_ladder.attention(q, k, v, backend="gpu")),
        (ValueError, "there is no stage ''", lambda: flash_ladder.attention(q, k, v, stage="")),
        (TypeError, "L is float64; expected float32",
         lambda: flash_ladder.attention_backward(q, k, v, q, np.zeros(q.shape[:3]), q)),
        (ValueError, "L is (2, 4, 69); expected (2, 4, 70), the first axes of Q",
         lambda: flash_ladder.attention_backward(q, k, v, q, np.zeros((2, 4, 69), np.float32), q)),
        (ValueError, "dO is (2, 4, 69, 64) and Q is (2, 4, 70, 64): they must agree",
         lambda: flash_ladder.attention_backward(q, k, v, q, np.zeros((2, 4, 70), np.float32), q[:, :, 1:], stage=40)),
        (ValueError, "shape 'B=0", lambda: flash_ladder.count(5, ("B=0", 1, 1, 1, 1, 64))),
        (ValueError, "dtype is 'fp8'; expected 'fp16' or 'bf16'", lambda: flash_ladder.verify(5, dtype="fp8")),
    ]
    for kind, sentence, wrong in refused:
        with pytest.raises(kind, match="^" + re.escape(sentence)):
            wrong()


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
        gradients = flash_ladder.attention_backward(q, k, v, O, L, O, causal=True, stage=40)
        assert [x.shape for x in gradients] == [q.shape, k.shape, v.shape]
        assert not (gradients[1] == gradients[2]).all()  # each has memory of its own


def test_a_library_is_compiled_once_for_what_it_is_made_of(tmp_path):
    source = tmp_path / "answer.cpp"

    def compiled(answer, made_for="1"):
        return flash_ladder._home.compiled(str(source), [f"-DANSWER={answer}"], made_for)

    source.write_text('extern "C" int answer() { return ANSWER; }')
    with ThreadPoolExecutor(4) as threads:
        library, = set(threads.map(lambda _: compiled(42), range(4)))
    assert ctypes.CDLL(str(library)).answer() == 42
    written = library.stat().st_mtime_ns
    assert compiled(42) == library and library.stat().st_mtime_ns == written
    others = [compiled(43), compiled(42, "2")]
    source.write_text('extern "C" int answer() { return -ANSWER; }')
    others.append(compiled(42))
    assert [ctypes.CDLL(str(other)).answer() for other in others] == [43, 42, -42]
    assert len({library, *others}) == 4
    with pytest.raises(flash_ladder.CannotRun, match="^answer.cpp does not compile:"):
        compiled("?")
