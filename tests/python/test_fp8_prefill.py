"""examples/fp8_prefill.py: a short prompt for the tiny model."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import flash_ladder
from conftest import example_of, gradients_of, stage_that

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
BACKEND = [] if HOPPER else ["--cpu"]
pytestmark = pytest.mark.skipif(not HOPPER and bool(flash_ladder._core.why_not("cpu")),
                                reason="there is neither a CPU back-end nor a GPU with FP8")


OF_8_BITS = stage_that(products="8 bits")


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


def test_what_it_cannot_run_is_said_in_one_line(example, capsys):
    gradients, of_caches = gradients_of(), stage_that(products="8-bit cache")
    for arguments, text in ((["--stage", "999"], "999"), (["--stage", gradients], f"{gradients} computes gradients"),
                            (["--stage", of_caches], f"{of_caches} takes K and V in e4m3 alone"),
                            (["--tokens", "0"], "--tokens 0: expected 1 or more")):
        with pytest.raises(SystemExit) as stopped:
            example.main(["--tiny", *BACKEND, "--tokens", "40", *arguments])
        said = capsys.readouterr().err.splitlines()
        assert stopped.value.code == 2 and text in said[-1], said
