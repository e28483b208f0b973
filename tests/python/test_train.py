"""examples/train_gpt.py: a few steps of the tiny model."""

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F

from conftest import example_of
from flash_ladder.torch import attention

GPU = torch.cuda.is_available()
STAGES = {} if GPU else {"stage": 5, "backward_stage": 40}


@pytest.fixture(scope="module")
def example():
    return example_of("train_gpt")


def test_the_losses_are_those_of_sdpa(example):
    curves = [example.train(attend, example.TINY, 6, "cuda" if GPU else "cpu")[0] for attend in (
        lambda q, k, v: attention(q, k, v, causal=True, **STAGES),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))]
    assert curves[0][0] - curves[0][-1] > 0.3  # it learns
    assert max(abs(a - b) for a, b in zip(*curves)) < 5e-3


def test_a_missing_mask_gives_other_losses(example):
    """So the test above would notice."""
    curves = [example.train(lambda q, k, v: attention(q, k, v, causal=causal, **STAGES), example.TINY, 3,
                            "cuda" if GPU else "cpu")[0] for causal in (True, False)]
    assert max(abs(a - b) for a, b in zip(*curves)) > 5e-3
