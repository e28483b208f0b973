"""The examples of docs/python.md, as they stand there, and its table of arguments that combine."""

import importlib.util
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import flash_ladder

if why := flash_ladder._core.why_not("cpu"):
    pytest.skip(why, allow_module_level=True)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
FEATURES = {"window": {"window": (9, -1)}, "cu_seqlens_q": {"cu_seqlens_q": [0, 30, 70], "cu_seqlens_k": [0, 40, 70]},
            "columns": {"columns": np.full((1, 1, 70, 1), 60, np.int32)},
            "tiles": {"tiles": flash_ladder.tile_lists(np.tri(70, dtype=bool))}, "dropout_p": {"dropout_p": 0.1, "seed": 1}}
CACHES = {"seqused": [20, 64], "block_table": [[0, 1, 2, 3], [0, 1, 6, 7]], "prefix": 16}


def examples(section):
    """The blocks under a heading that are Python and no command."""
    text = PAGE.partition(f"# {section}\n")[2].partition("\n## ")[0]
    blocks = [re.sub("^    ", "", block, flags=re.M) for block in re.findall("(?:^    .*\n)+", text, re.M)]
    return [block for block in blocks if not block.startswith(("pip ", "python ", "torchrun "))]


def rows():
    """The arguments of each row of the table."""
    table = PAGE.partition("<!-- generated: python-features -->\n")[2].partition("<!-- end -->")[0]
    return [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()[2:]]


def test_examples_run_one_after_the_other():
    names = {}
    for section in "The ladder from Python", "Masks", "Dropout", "Caches", "In 8 bits":
        assert examples(section), section
        if section == "In 8 bits" and not importlib.util.find_spec("ml_dtypes"):
            continue
        for example in examples(section):
            exec(compile(example, f"docs/python.md: {section}", "exec"), names)


def test_what_the_table_combines_is_taken():
    q, k, v = (np.random.default_rng(n).standard_normal((1, 2, 70, 64)).astype(np.float16) for n in range(3))
    cache = [x[:, :, :64].reshape(2, 64, 1, 64) for x in (k, v)]
    found = {name for row in rows() for name in row}
    assert found == {name for feature in FEATURES.values() for name in feature} | set(CACHES)
    for row in rows():
        if "seqused" in row:
            pools = [x.reshape(8, 16, 1, 64) for x in cache] if "block_table" in row else cache
            flash_ladder.decode(q[:, :, :2].reshape(2, 1, 2, 64), *pools, **{name: CACHES[name] for name in row})
        else:
            options = {key: value for name in row for key, value in FEATURES.get(name, {}).items()}
            flash_ladder.attention(q, k, v, causal="tiles" not in row, **options)


def test_what_the_table_does_not_combine_is_refused():
    q = np.zeros((1, 1, 70, 64), np.float16)
    pairs = [pair for pair in itertools.combinations(FEATURES, 2) if not any({*pair} <= {*row} for row in rows())]
    assert len(pairs) == 8
    for pair in pairs:
        with pytest.raises(ValueError, match="no stage computes attention with .*, |lists of tiles are the whole mask"):
            flash_ladder.attention(q, q, q, **FEATURES[pair[0]], **FEATURES[pair[1]])
    with pytest.raises(ValueError, match="lists of tiles are the whole mask"):
        flash_ladder.attention(q, q, q, causal=True, **FEATURES["tiles"])
