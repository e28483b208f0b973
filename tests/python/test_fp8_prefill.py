"""examples/fp8_prefill.py: a short prompt for the tiny model."""

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import flash_ladder
from conftest import example_of, gradients_of, stage_that
from flash_ladder.torch import attention
from flash_ladder.transformers import register

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
BACKEND = [] if HOPPER else ["--cpu"]
pytestmark = pytest.mark.skipif(not HOPPER and bool(flash_ladder._core.why_not("cpu")),
                                reason="there is neither a CPU back-end nor a GPU with FP8")


OF_8_BITS, OF_E4M3 = stage_that(products="8 bits"), stage_that(products="8 bits of e4m3")


@pytest.fixture(scope="module")
def example():
    return example_of("fp8_prefill")


def test_8_bits_lose_more_than_16_and_not_too_much(example, tmp_path, capsys):
    out = tmp_path / "fp8.json"
    example.main(["--tiny", *BACKEND, "--tokens", "150", "--stage", OF_8_BITS, "incoherent", "--json", str(out)])
    said, rows = capsys.readouterr().out, json.loads(out.read_text())["rows"]
    names = [row["name"] for row in rows]
    assert names[0] == "SDPA" and names[2:] == [OF_8_BITS, flash_ladder.stages("incoherent")[0].folder]
    assert all(name in said for name in names)
    assert [row["products"] for row in rows] == ["16 bits"] * 2 + ["8 bits"] * 2
    sdpa, in_16_bits, *in_8_bits = (row["relative_l2"] for row in rows)
    assert in_16_bits < 1.5 * sdpa
    assert all(2 * sdpa < error < 0.15 for error in in_8_bits)
    assert all(row["same_token"] > 0.7 for row in rows)


def in_e4m3(attend):
    """A layer's attention by attend(Q, K, V in e4m3, their scales, softmax scale), rounded where the layer makes them."""

    def forward(module, query, key, value, attention_mask, scaling=None, **_):
        numbers, scales = zip(*(flash_ladder.quantize(x) for x in (query, key, value)))
        return attend(numbers, scales, scaling).transpose(1, 2).contiguous(), None

    return forward


def by_the_ladder(numbers, scales, scale):
    return attention(*numbers, **dict(zip(("q_scale", "k_scale", "v_scale"), scales)), causal=True, scale=scale, stage=OF_E4M3)


def widened(numbers, scales, scale):
    q, k, v = (x.float() * own[..., None, None] for x, own in zip(numbers, scales))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
    return o.bfloat16()


def test_a_llama_whose_projections_give_e4m3(example):
    """Attention takes them as they are, and differs from attention of the same numbers in fp32 by what P loses."""
    device = "cuda" if HOPPER else "cpu"
    model = example.llama(example.TINY, 150, device)
    prompt = torch.randint(256, (2, 150), device=device)
    for name, attend in ("ladder_e4m3", by_the_ladder), ("ladder_widened", widened):
        register(name)  # with the masks of the ladder, of which there is none here
        transformers.AttentionInterface.register(name, in_e4m3(attend))
    exact = example.read(model.float(), "sdpa", prompt)
    model.bfloat16()
    sdpa, got, same = (example.read(model, name, prompt) for name in ("sdpa", "ladder_e4m3", "ladder_widened"))
    of_16_bits, error, rounded, lost = (example.errors(x, y)["relative_l2"]
                                        for x, y in ((sdpa, exact), (got, exact), (same, exact), (got, same)))
    assert 2 * of_16_bits < error < 0.15
    assert lost < rounded and error < 1.5 * rounded


def test_what_it_cannot_run_is_said_in_one_line(example, capsys):
    gradients, of_caches = gradients_of(), stage_that(products="8-bit cache")
    for arguments, text in ((["--stage", "999"], "999"), (["--stage", gradients], f"{gradients} computes gradients"),
                            (["--stage", of_caches], f"{of_caches} takes K and V in e4m3 alone"),
                            (["--tokens", "0"], "--tokens 0: expected 1 or more")):
        with pytest.raises(SystemExit) as stopped:
            example.main(["--tiny", *BACKEND, "--tokens", "40", *arguments])
        said = capsys.readouterr().err.splitlines()
        assert stopped.value.code == 2 and text in said[-1], said
