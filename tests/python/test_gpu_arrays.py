"""CuPy's and JAX's arrays on a GPU."""

import os

import numpy as np
import pytest
from conftest import gradients_of, reference, reference_gradients, relative, stage_that, visible

import flash_ladder

pytestmark = pytest.mark.skipif(bool(flash_ladder._core.why_not("gpu")), reason="there is no GPU")


def check(problem, to_gpu, to_numpy):
    """O, L and gradients of arrays that to_gpu() has made, one of them a view; they are where the inputs are."""
    q, k, v = map(to_gpu, problem)
    q = q.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3)
    O, L = flash_ladder.attention(q, k, v, causal=True, stage=5, return_lse=True)
    assert type(O) is type(L) is type(q) and O.device == q.device and O.dtype == q.dtype
    expected, expected_L = reference(*problem, causal=True)
    assert relative(to_numpy(O), expected) < 1e-3
    assert abs(to_numpy(L) - expected_L).max() < 1e-4
    gradients = flash_ladder.attention_backward(q, k, v, O, L, O, causal=True, stage=gradients_of())
    for got, exact in zip(gradients, reference_gradients(*problem, to_numpy(O), causal=True)):
        assert relative(to_numpy(got), exact) < 2e-3
    seen = visible(*(x.shape[2] for x in problem[:2]), True, None)
    for mask in seen, to_gpu(seen):
        O = flash_ladder.attention(q, k, v, tiles=flash_ladder.tile_lists(mask), stage=stage_that("tiles"))
        assert relative(to_numpy(O), expected) < 1e-3
    kept = dict(dropout_p=0.3, seed=2**64 - 1)
    O = to_numpy(flash_ladder.attention(q, k, v, **kept, stage=stage_that("dropout")))
    assert relative(O, flash_ladder.attention(*problem, **kept, stage=stage_that("dropout")).astype(float)) < 1e-3
    for given in list, lambda x: np.array(x, np.int32), lambda x: to_gpu(np.array(x, np.int32)):
        O = flash_ladder.attention(k[:1], k[:1], v[:1], cu_seqlens_q=given([0, 33, 90]), stage=stage_that("documents"))
        alone, _ = reference(*(x[:1, :, 33:] for x in (problem[1], *problem[1:])))
        assert relative(to_numpy(O)[:, :, 33:], alone) < 1e-3
        O = flash_ladder.decode(*(x.transpose(0, 2, 1, 3) for x in (q, k, v)), seqused=given([0, 33]))
        alone, _ = reference(problem[0], *(x[:, :, :33] for x in problem[1:]))
        assert relative(to_numpy(O)[1], alone[1].swapaxes(0, 1)) < 1e-3


def test_cupy_in_a_stream_of_its_own(problem):
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Stream(non_blocking=True):
        check(problem, cupy.asarray, cupy.asnumpy)


def test_jax(problem):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other libraries' tests need memory, too
    jax = pytest.importorskip("jax")
    try:
        gpu = jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(str(error))
    check(problem, lambda x: jax.device_put(x, gpu), np.asarray)
