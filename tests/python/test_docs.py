"""The examples of docs/python.md, as they stand there, and its table of arguments that combine."""

import importlib.util
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import reference, reference_gradients, relative
from test_scores import gradients_of_scores, of_scores

import flash_ladder

if why := flash_ladder._core.why_not("cpu"):
    pytest.skip(why, allow_module_level=True)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
FEATURES = {"window": {"window": (9, -1)}, "cu_seqlens_q": {"cu_seqlens_q": [0, 30, 70], "cu_seqlens_k": [0, 40, 70]},
            "columns": {"columns": np.full((1, 1, 70, 1), 60, np.int32)},
            "tiles": {"tiles": flash_ladder.tile_lists(np.tri(70, dtype=bool))}, "dropout_p": {"dropout_p": 0.1, "seed": 1},
            "softcap": {"softcap": 2.0}, "alibi_slopes": {"alibi_slopes": np.array([0.5, 0.01], np.float32)},
            "sinks": {"sinks": np.array([1.0, -2.0], np.float32)}}
SCORES = ["softcap", "alibi_slopes", "sinks"]
SCALES = {"k_scale": 0.5, "v_scale": 0.25}
CACHES = {"seqused": [20, 64], "block_table": [[0, 1, 2, 3], [0, 1, 6, 7]], "prefix": 16, "tree": [1]}


def examples(section):
    """The blocks under a heading that are Python and no command."""
    text = re.split("\n##+ ", PAGE.partition(f"# {section}\n")[2])[0]
    blocks = [re.sub("^    ", "", block, flags=re.M) for block in re.findall("(?:^    .*\n)+", text, re.M)]
    return [block for block in blocks if not block.startswith(("pip ", "python ", "torchrun "))]


def cells():
    """The three cells of each row of the table."""
    table = PAGE.partition("<!-- generated: python-features -->\n")[2].partition("<!-- end -->")[0]
    return [line.split("|")[1:4] for line in table.splitlines()[2:]]


def arguments(cell):
    return re.findall(r"`(\w+)`", cell)


def head_dims(cell):
    return sorted({int(d) for dims in re.findall(r"\) \(([\d, ]+)\)", cell) for d in dims.split(", ")})


def rows():
    """The arguments of each row of the table."""
    return [arguments(cell) for cell, *_ in cells()]


def seen_of(row):
    """Which keys a row of 70 sees by FEATURES."""
    i, j = np.arange(70)[:, None], np.arange(70)
    seen = np.tri(70, dtype=bool)
    if "cu_seqlens_q" in row:
        in_first = (i < 30) & (j < 40)
        offset = np.where(in_first, 10, 0)  # of a document's last key and its last row
        seen = (in_first | ((i >= 30) & (j >= 40))) & (j <= i + offset)
        seen &= ("window" not in row) | (j >= i + offset - 9)
    elif "window" in row:
        seen &= j >= i - 9
    if "columns" in row:
        seen &= i < 60
    return seen


def test_examples_run_one_after_the_other():
    names = {}
    for section in "The ladder from Python", "Masks", "Scores and sinks", "Dropout", "Caches", "In 8 bits":
        assert examples(section), section
        if section == "In 8 bits" and not importlib.util.find_spec("ml_dtypes"):
            continue
        for example in examples(section):
            exec(compile(example, f"docs/python.md: {section}", "exec"), names)


@pytest.mark.parametrize("section, module", [("PyTorch", "torch"), ("New rows of a cache", "torch"),
                                             ("Your own function", "torch"),
                                             ("As FlashAttention's package", "torch"),
                                             ("In a model of transformers", "transformers")])
def test_examples_that_need_another_library_run(section, module):
    pytest.importorskip("torch")
    pytest.importorskip(module)
    names = {}
    for section in {"PyTorch": None, section: None}:  # whose names the others use
        assert examples(section), section
        for example in examples(section):
            exec(compile(example, f"docs/python.md: {section}", "exec"), names)


def test_no_section_is_left_out():
    """Of what the page shows in Python; test_distributed.py runs the example of several GPUs."""
    run = {"The ladder from Python", "Masks", "Scores and sinks", "Dropout", "Caches", "New rows of a cache", "In 8 bits", "PyTorch",
           "Several GPUs", "Your own function", "As FlashAttention's package", "In a model of transformers"}
    assert {section for section in re.findall("^#+ (.*)$", PAGE, re.M) if examples(section)} == run


def test_the_table_names_every_argument():
    found = {name for row in rows() for name in row}
    assert found == {name for feature in FEATURES.values() for name in feature} | {*CACHES, *SCALES, "q_scale", "promotion"}


@pytest.mark.parametrize("row", [row for row in cells() if "q_scale" not in row[0]], ids=lambda row: "-".join(arguments(row[0])))
def test_each_row_of_the_table_computes_what_it_says(row):
    """At each head dimension, in both passes where it has both, without `stage=`; test_eight_bits.py has Q in 8 bits."""
    names, forward, backward = arguments(row[0]), head_dims(row[1]), head_dims(row[2])
    assert set(backward) <= set(forward) and forward
    scores = {name: FEATURES[name][name] for name in SCORES if name in names}
    if scores:  # test_scores.py has all of it at once
        names = [name for name in names if name not in ("cu_seqlens_q", "cu_seqlens_k", "dropout_p", "seed")]
    for d in forward:
        q, k, v, do = (np.random.default_rng(n).standard_normal((1, 2, 70, d)).astype(np.float16) for n in range(4))
        if "seqused" in names:
            cache = [x[:, :, :64].reshape(2, 64, 1, d) for x in (k, v)]
            given, scales = cache, {}
            if "k_scale" in names:
                ml_dtypes, scales = pytest.importorskip("ml_dtypes"), SCALES
                given = [x.astype(ml_dtypes.float8_e4m3fn) for x in cache]
                cache = [x.astype(float) * scale for x, scale in zip(given, scales.values())]
            pools, given = ([x.reshape(8, 16, 1, d) for x in some] if "block_table" in names else some for some in (cache, given))
            new = q[:, :, :2].reshape(2, 1, 2, d)
            window = FEATURES["window"] if "window" in names else {}
            o = flash_ladder.decode(new, *given, **scales, **{name: CACHES[name] for name in names if name in CACHES}, **scores, **window,
                                    causal="tree" in names)
            for b, keys in enumerate(CACHES["seqused"]):
                pages = [(cache[0][b], cache[1][b])] if "block_table" not in names else [
                    (pools[0][page], pools[1][page]) for page in CACHES["block_table"][b]]
                own = [np.concatenate(x)[:keys].transpose(1, 0, 2)[None] for x in zip(*pages)]
                seen = np.arange(keys)[None] >= (keys - 1 - window["window"][0] if window else 0)
                exact = of_scores(new[b:b + 1].transpose(0, 2, 1, 3), *own, seen, **scores)[0]
                assert relative(o[b:b + 1].transpose(0, 2, 1, 3), exact) < 1e-3
            continue
        options = {key: value for name in names for key, value in FEATURES.get(name, {}).items()}
        options["causal"] = "tiles" not in names
        o, lse = flash_ladder.attention(q, k, v, **options, return_lse=True)
        seen, weights = seen_of(names), 1
        if "dropout_p" in names:
            weights = flash_ladder.dropout_mask((1, 2, 70, 70), **FEATURES["dropout_p"]) * (256 / 230)
        attend = (lambda: of_scores(q, k, v, seen, **scores)) if scores else (lambda: reference(q, k, v, seen=seen))
        exact = attend()[1]
        has_keys = np.broadcast_to(seen.any(-1), exact.shape)
        assert abs(lse - exact)[has_keys].max() < 1e-4
        if "dropout_p" not in names:
            assert relative(o, attend()[0]) < 1e-3
        if d in backward:
            gradients = flash_ladder.attention_backward(q, k, v, o, lse, do, **options)
            with np.errstate(invalid="ignore"):  # of rows without keys
                exact = gradients_of_scores(q, k, v, do, seen, **scores) if scores else [
                    np.nan_to_num(x) for x in reference_gradients(q, k, v, do, seen=seen, weights=weights)]
            assert len(gradients) == len(exact) == 3 + ("sinks" in scores)
            for got, expected in zip(gradients, exact):
                assert relative(got, expected) < 2e-3


def test_what_the_table_does_not_combine_is_refused():
    q = np.zeros((1, 2, 70, 64), np.float16)
    pairs = [pair for pair in itertools.combinations(FEATURES, 2) if not any({*pair} <= {*row} for row in rows())]
    assert len(pairs) == 4
    for pair in pairs:
        with pytest.raises(ValueError, match="lists of tiles are the whole mask|documents do not go with column bounds"):
            flash_ladder.attention(q, q, q, **FEATURES[pair[0]], **FEATURES[pair[1]])
    with pytest.raises(ValueError, match="lists of tiles are the whole mask"):
        flash_ladder.attention(q, q, q, causal=True, **FEATURES["tiles"])
