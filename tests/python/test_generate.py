"""examples/generate.py: a few requests of the tiny model."""

import re
from types import SimpleNamespace

import pytest

np = pytest.importorskip("numpy")

import flash_ladder
from conftest import example_of

FEW = ["--check", "--requests", "3", "--batch", "2", "--answer", "6"]


@pytest.fixture
def example():
    return example_of("generate")


@pytest.mark.parametrize("arrays, cache", [("numpy", "fp16"), ("torch", "fp16"), ("torch", "e4m3")])
def test_the_tokens_are_those_of_a_contiguous_cache(example, arrays, cache, capsys):
    pytest.importorskip(arrays)
    if arrays == "numpy" and (why := flash_ladder._core.why_not("cpu")):
        pytest.skip(why)
    example.main([*FEW, "--arrays", arrays, "--cache", cache])
    said = capsys.readouterr().out
    tokens, compared, of = map(int, re.search(r"(\d+) tokens in .*check: (\d+) of (\d+)", said, re.DOTALL).groups())
    assert tokens == of and compared > 0.8 * tokens


@pytest.mark.skipif(bool(flash_ladder._core.why_not("cpu")), reason="this build has no CPU back-end")
def test_guesses_in_a_tree(example, capsys):
    example.main(["--check", "--requests", "4", "--batch", "2", "--answer", "12", "--branches", "3", "--arrays", "numpy"])
    said = capsys.readouterr().out
    tokens, compared, right = map(int, re.search(r"(\d+) tokens in .*check: (\d+) of", said, re.DOTALL).groups()
                                  + re.search(r"(\d+) of \d+ guesses", said).groups())
    assert compared > 0.8 * tokens and right > 0


def test_the_keys_of_the_right_path_move_together(example):
    tokens = [1, 2, 3, 1, 2, 4, 1]
    assert example.guess(tokens, 2, 1) == ([1, 2, 4], [-1, 0, 1])
    rows, parents = example.guess(tokens, 2, 2)
    assert (rows, parents) == ([1, 2, 4, 3, 0], [-1, 0, 1, 1, 0])
    path = example.right_path(rows, parents, [2, 3, 9, 9, 9])
    assert path == [0, 1, 3]
    arrays = SimpleNamespace(empty=lambda *axes: np.arange(np.prod(axes)).reshape(axes))
    pool = example.Pool(SimpleNamespace(layers=[0], kv_heads=1, arrays=arrays), 4, 2)
    request = example.Request([], 9, keys=3, pages=[2, 0, 3, 1])
    slots = pool.K[0][request.pages, :, 0, 0].ravel().tolist()
    pool.keep(request, path)
    moved = pool.V[0][request.pages, :, 0, 0].ravel().tolist()
    assert request.keys == 6 and moved == [*slots[:5], slots[6], *slots[6:]]


@pytest.mark.skipif(bool(flash_ladder._core.why_not("cpu")), reason="this build has no CPU back-end")
def test_a_draft_that_sees_what_comes_after_it_is_noticed(example, monkeypatch):
    """So the test above would notice."""
    decode = flash_ladder.decode
    monkeypatch.setattr(flash_ladder, "decode", lambda *arrays, causal, block_table=None, **options: decode(
        *arrays, causal=causal and block_table is None, block_table=block_table, **options))
    with pytest.raises(AssertionError, match="token .* is another one than without pages"):
        example.main([*FEW, "--arrays", "numpy"])


@pytest.mark.parametrize("left_out", [None, "window", "sinks"])
def test_a_model_with_windows_and_sinks(example, left_out, monkeypatch, capsys):
    """Its tokens are those of transformers' own attention without a cache; without one of these they would not be."""
    pytest.importorskip("torch")
    if not hasattr(pytest.importorskip("transformers"), "GptOssForCausalLM"):
        pytest.skip("this version of transformers has no gpt-oss")
    arguments = [*FEW, "--model", "gpt-oss", "--arrays", "torch"]
    if left_out is None:
        example.main(arguments)
        said = capsys.readouterr().out
        tokens, compared = map(int, re.search(r"(\d+) tokens in .*check: (\d+) of", said, re.DOTALL).groups())
        assert compared > 0.8 * tokens
        return
    decode = flash_ladder.decode
    monkeypatch.setattr(flash_ladder, "decode", lambda *arrays, **options: decode(*arrays, **options | {left_out: None}))
    with pytest.raises(AssertionError, match="token .* is another one than without a cache"):
        example.main(arguments)


def test_transformers_answers_with_the_same_tokens(example, capsys):
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, "ContinuousBatchingConfig"):
        pytest.skip("this version of transformers has no settings of continuous batching")
    example.main(["--requests", "3", "--batch", "2", "--answer", "6", "--compare", "transformers"])
    said = capsys.readouterr().out
    rate, same, of = re.search(r"transformers: (\d+) tokens per second; (\d) of (\d) answers", said).groups()
    assert int(rate) > 0 and same == of == "3"


def test_a_library_to_compare_with_needs_its_arrays(example, capsys):
    for words, arguments in (("needs --arrays torch", ["--arrays", "numpy", "--compare", "transformers"]),
                             ("gpt-oss needs --arrays torch", ["--arrays", "numpy", "--model", "gpt-oss"]),
                             ("e4m3 needs --arrays torch", ["--arrays", "numpy", "--cache", "e4m3"]),
                             ("no stage computes sinks", ["--model", "gpt-oss", "--cache", "e4m3"]),
                             ("no stage computes trees", ["--branches", "2", "--cache", "e4m3"]),
                             ("at most 64 tokens", ["--branches", "22"]),
                             ("serves the Llama alone", ["--model", "gpt-oss", "--compare", "transformers"])):
        with pytest.raises(SystemExit):
            example.main(arguments)
        assert words in capsys.readouterr().err


def test_a_guess_is_what_followed_before(example):
    assert example.guess([5, 1, 2, 3, 9, 1, 7, 1], 3, 1) == ([1, 7, 1, 0], [-1, 0, 1, 2])
    assert example.guess([5, 1, 2, 3, 1], 2, 1) == ([1, 2, 3], [-1, 0, 1])
    assert example.guess([5], 2, 1) == ([5, 0, 0], [-1, 0, 1])
    assert example.guess([5, 1, 2, 3, 9, 1, 2, 7, 1], 2, 2) == ([1, 2, 7, 3, 0], [-1, 0, 1, 1, 0])
