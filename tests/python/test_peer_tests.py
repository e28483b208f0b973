"""tests/peer_tests.sh, with a checkout, a PyTorch and a package that are made up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "peer_tests.sh"
TORCH = """
import sys, types
float16, __version__ = "float16", "2.11"
class Tensor:
    def __init__(self, *shape): self.shape = shape
    def transpose(self, *_): return self
    def __mul__(self, factor):  # from a share that is kept to one that is not dropped
        assert abs(factor - 212 / 256 / 0.83) < 1e-12
        return self
    def sum(self): return self
    def backward(self): pass
def zeros(*shape, **_): return Tensor(*shape)
def randint(*_): return types.SimpleNamespace(item=lambda: 1)
def no_grad(): return lambda function: function
cuda = types.SimpleNamespace(is_available=lambda: not {blind}, get_device_name=lambda: "a GPU",
                             get_device_capability=lambda: (9, 0))
"""
PACKAGE = """
from types import SimpleNamespace as Stage
def stages():
    return [Stage(number=number, computes="backward", repeats_exactly=True, compute_capability=90, head_dims=head_dims)
            for number, head_dims in ((58, [64, 128]), (59, [256]))]
"""
# Gradients of even head dimensions, by the stage that was asked for
ATTENTION = """
def attention(q, k, v, window=None, backward_stage=None, return_lse=False, cu_seqlens_q=None, dropout_p=0, seed=None, **_):
    if window not in (None, (-1, -1)) and (q.shape[-1] > 32 or dropout_p): raise ValueError("no window")
    assert (seed is not None) == (dropout_p > 0)
    if cu_seqlens_q and q.shape[-1] > 32: raise ValueError("no documents")
    if q.shape[-1] % 2: raise ValueError("no such head dimension")
    return (q, backward_stage) if return_lse else q
def decode(q, k_cache, v_cache, **_):
    if q.shape[-1] % 64: raise ValueError("no such head dimension")
    return q, 0
"""
TESTS = """
import pytest, torch
from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn.bert_padding import padding
from flash_attn.flash_attn_interface import USE_TRITON_ROCM
@pytest.mark.parametrize("d", [32, 59, 64])
@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("dropout_p", [0.0, 0.17])
def test_output(d, local, dropout_p):
    x = torch.zeros(1, 1, 1, d)
    assert flash_attn_func(x, x, x, dropout_p, None, True, (-1, 1) if local else (-1, -1)) is x
    if d == 32: pytest.skip("its own condition")
    assert d != {wrong}
def test_varlen(): flash_attn_varlen_func()
@pytest.mark.parametrize("rotary_fraction", [0.0, 0.5])
@pytest.mark.parametrize("d", [32, 64])
def test_kvcache(d, rotary_fraction):
    x = torch.zeros(1, 1, 1, d)
    assert flash_attn_with_kvcache(x, x, x) is x
def test_exact():
    for d, stage in ((64, 58), (96, 58), (160, 59), (256, 59)):
        x = torch.zeros(1, 1, 1, d)
        assert flash_attn_func(x, x, x, deterministic=True, return_attn_probs=True) == (x, stage, None)
"""


@pytest.fixture
def run(tmp_path):
    """Runs the script on a checkout; `blind` PyTorch finds no GPU, and a head dimension may be `wrong`."""
    def write(name, text, **words):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        for word, value in words.items():
            text = text.replace("{" + word + "}", repr(value))
        (tmp_path / name).write_text(text)

    def run(*arguments, blind=False, wrong=0):
        write("modules/torch.py", TORCH, blind=blind)
        write("modules/einops.py", "")
        write("modules/flash_ladder/__init__.py", PACKAGE)
        write("modules/flash_ladder/torch.py", ATTENTION)
        write("checkout/tests/test_flash_attn.py", TESTS, wrong=wrong)
        write("checkout/flash_attn/bert_padding.py", "padding = 0\n")
        return subprocess.run(["sh", SCRIPT, *arguments], capture_output=True, text=True, cwd=tmp_path,
                              env={**os.environ, "PYTHONPATH": str(tmp_path / "modules"), "LADDER_COMMIT": "abc",
                                   "LADDER_PYTHON": sys.executable, "LADDER_BUILD": str(tmp_path)})
    return run


def test_what_no_stage_takes_is_left_out_and_counted(run, tmp_path):
    done = run("checkout", "--json", "record.json")
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    counts = {name: record[name] for name in ("kind", "commit", "gpu", "collected", "passed", "failed", "skipped")}
    assert counts == {"kind": "peer-tests", "commit": "abc", "gpu": "a GPU", "collected": 18, "passed": 4, "failed": 0,
                      "skipped": 3}
    assert record["left_out"] == {"windows and dropout": 3, "head dimension 59": 3, "rotary embedding": 2,
                                  "gradients of packed sequences at head dimension 64": 1,
                                  "gradients of windows at head dimension 64": 1, "a cache of head dimension 32": 1}
    assert "18 tests collected: 4 passed, 0 failed, 3 skipped" in done.stdout
    assert "left out:       3 for windows and dropout" in done.stdout


def test_a_failure_fails_and_a_sample_is_a_part(run, tmp_path):
    done = run("checkout", "--json", "record.json", wrong=64)
    assert done.returncode == 1
    assert json.loads((tmp_path / "record.json").read_text())["failed"] == 2
    done = run("checkout", "--json", "record.json", "--sample", "1")
    assert json.loads((tmp_path / "record.json").read_text())["left_out"]["not drawn"] == 6


@pytest.mark.parametrize("arguments, blind, code, words", [
    ([], False, 2, "usage: "), (["checkout", "--sample", "x"], False, 2, "usage: "),
    (["nowhere"], False, 2, "there is no nowhere/tests/test_flash_attn.py"),
    (["checkout"], True, 3, "PyTorch finds no GPU here")])
def test_what_cannot_run_says_why_in_one_line(run, arguments, blind, code, words):
    done = run(*arguments, blind=blind)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr and done.stderr.count("\n") == 1


def test_dropout_is_what_their_tests_read(monkeypatch):
    """The sign of the third output, its size by their maximum, and O divided by 1 - p."""
    torch = pytest.importorskip("torch")
    import flash_ladder
    if flash_ladder._core.why_not("cpu"):
        pytest.skip("there is no CPU back-end")
    monkeypatch.syspath_prepend(str(SCRIPT.with_name("peer_tests")))
    import flash_attn
    q, k, v = (torch.randn(2, rows, heads, 64, generator=torch.Generator().manual_seed(rows)).half()
               for rows, heads in ((33, 4), (50, 2), (50, 2)))
    torch.manual_seed(5)
    seed = torch.randint(2**63 - 1, ()).item()
    torch.manual_seed(5)
    o, _, signed = flash_attn.flash_attn_func(q, k, v, 0.17, causal=True, return_attn_probs=True)
    kept = torch.from_numpy(flash_ladder.dropout_mask((2, 4, 33, 50), 0.17, seed))
    k, v = (x.double().repeat_interleave(2, 2) for x in (k, v))
    S = torch.einsum("bihd,bjhd->bhij", q.double(), k) / 8
    seen = torch.ones(33, 50, dtype=torch.bool).tril(17)
    S.masked_fill_(~seen, -torch.inf)
    assert torch.equal((signed >= 0)[..., seen], kept[..., seen])
    assert torch.allclose(signed.abs().double(), torch.exp(S - S.amax(-1, keepdim=True)), atol=1e-4)
    exact = torch.einsum("bhij,bjhd->bihd", S.softmax(-1) * kept, v) / 0.83
    assert ((o - exact).norm() / exact.norm()).item() < 1e-3
