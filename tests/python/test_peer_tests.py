"""tests/peer_tests.sh, with a checkout, a PyTorch and a package that are made up."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "peer_tests.sh"
INTERFACE = SCRIPT.parents[1] / "python" / "flash_ladder" / "flash_attn_interface.py"
TORCH = """
import sys, types
float16, float8_e4m3fn, __version__ = "float16", "float8_e4m3fn", "2.11"
class Tensor:
    dtype = float16
    def __init__(self, *shape): self.shape = shape
    def transpose(self, *_): return self
    def tolist(self): return [0, 1]
    def __len__(self): return 1
    def dim(self): return 4
    def __getitem__(self, _): return self
    def __mul__(self, factor):  # from a share that is kept to one that is not dropped
        assert abs(factor - 212 / 256 / 0.83) < 1e-12
        return self
def zeros(*shape, **_): return Tensor(*shape)
def cat(parts, *_): return parts
def randint(*_): return types.SimpleNamespace(item=lambda: 1)
def no_grad(): return lambda function: function
def is_grad_enabled(): return False
cuda = types.SimpleNamespace(is_available=lambda: not {blind}, get_device_name=lambda: "a GPU", is_initialized=lambda: False)
"""
# Head dimensions up to 256, gradients of features up to 64, but of dropout not in documents, and exact ones without
PACKAGE = """
from types import SimpleNamespace
def default_stage(forward, sizes, options, backend, exactly):
    assert backend == ("cpu" if {blind} else "gpu")
    if sizes[5] > 256 or not forward and options and (exactly or sizes[5] > 64 or "dropout" in options and "cu_" in options):
        raise ValueError("no stage")
    return "exact" if exactly else "fast"
_core = SimpleNamespace(default_stage=default_stage)
_arguments = SimpleNamespace(options=lambda causal, window, **others: ["window"] * bool(window) + list(others),
                             window_of=lambda window: window)
def stages(): return [SimpleNamespace(head_dims=[64, 128, 256])]
"""
ATTENTION = """
calls = []
def attention(q, k, v, *, backward_stage, return_lse, **asked):
    calls.append({name: x for name, x in asked.items() if x and x != (-1, -1)} | {"backward_stage": backward_stage})
    return q, q
def decode(q, k_cache, v_cache, **_): return q, 0
"""
TESTS = """
import pytest, torch
from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn.bert_padding import padding
from flash_attn.flash_attn_interface import USE_TRITON_ROCM
from flash_attn.layers.rotary import apply_rotary_emb
from flash_ladder.torch import calls
def x(d): return torch.zeros(1, 1, 1, d)
@pytest.mark.parametrize("d", [32, 59, 160])
@pytest.mark.parametrize("local, causal", [(False, True), (True, False)])
@pytest.mark.parametrize("dropout_p", [0.0, 0.17])
def test_output(d, local, causal, dropout_p):
    '''A text first'''
    if d == 32 and dropout_p > 0:
        pytest.skip()
    flash_attn_func(x(d), x(d), x(d), dropout_p, None, causal, (2, 1) if local else (-1, -1))
    assert calls.pop().get("window") == ((2, 1) if local else None)
    assert d != {wrong}
@pytest.mark.parametrize("d", [32, 160])
@pytest.mark.parametrize("dropout_p", [0.0, 0.17])
def test_varlen(d, dropout_p):
    flash_attn_varlen_func(x(d), x(d), x(d), x(2), x(2), 1, 1, dropout_p)
    assert ("cu_seqlens_q" in calls.pop()) == (d == 32 and dropout_p == 0)
@pytest.mark.parametrize("has_leftpad, d", [(False, 64), (False, 32)])
def test_kvcache(d, has_leftpad):
    if d == 64: assert flash_attn_with_kvcache(x(d), x(d), x(d)) is not None
def test_num_splits(): pass
@pytest.mark.parametrize("d, deterministic", [(64, True), (160, True), (160, False)])
def test_exact(d, deterministic):
    flash_attn_func(x(d), x(d), x(d), deterministic=deterministic)
    assert calls.pop()["backward_stage"] == ("exact" if deterministic else None)
@pytest.mark.parametrize("local", [False, True])
def test_deterministic_window(local):
    flash_attn_func(x(64), x(64), x(64), window_size=(2, 1) if local else (-1, -1), deterministic=True)
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
        write("modules/flash_ladder/__init__.py", PACKAGE, blind=blind)
        write("modules/flash_ladder/torch.py", ATTENTION)
        shutil.copy(INTERFACE, tmp_path / "modules/flash_ladder")
        write("checkout/tests/test_flash_attn.py", TESTS, wrong=wrong)
        write("checkout/flash_attn/bert_padding.py", "padding = 0\n")
        write("checkout/flash_attn/layers/rotary.py", "apply_rotary_emb = 0\n")
        write("checkout/flash_attn/ops/triton/rotary.py", "")
        alone = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
        return subprocess.run(["sh", SCRIPT, *arguments], capture_output=True, text=True, cwd=tmp_path,
                              env={**alone, "PYTHONPATH": str(tmp_path / "modules"), "LADDER_COMMIT": "abc",
                                   "LADDER_PYTHON": sys.executable, "LADDER_BUILD": str(tmp_path)})
    return run


LEFT_OUT = {"gradients of more than a causal mask at head dimension 160": 4,
            "gradients of more than a causal mask that repeat exactly": 1, "arguments of their extension": 1}


def test_what_no_stage_takes_is_left_out_and_counted(run, tmp_path):
    done = run("checkout", "--json", "record.json")
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    counts = {name: record[name] for name in ("kind", "commit", "gpu", "collected", "passed", "failed", "skipped")}
    assert counts == {"kind": "peer-tests", "commit": "abc", "gpu": "a GPU", "collected": 24, "passed": 16, "failed": 0,
                      "skipped": 2}
    assert record["left_out"] == {**LEFT_OUT, "not drawn": 0}
    assert record["each_alone"] == {"packed sequences": 2, "a cache": 1}
    assert "16 passed, 0 failed, 0 were not drawn" in " ".join(done.stdout.split())


def test_a_count_needs_no_gpu_and_runs_nothing(run):
    done = run("checkout", "--count", blind=True, wrong=32)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert [int(count) for count, _ in said[:3]] == [24, 2, 16]
    assert {why: int(count) for count, why in said[6:]} == LEFT_OUT


def test_a_failure_fails_and_a_sample_is_a_part(run, tmp_path):
    done = run("checkout", "--json", "record.json", wrong=59)
    assert done.returncode == 1
    assert json.loads((tmp_path / "record.json").read_text())["failed"] == 4
    for part, left in ("--sample", "1"), ("--seconds", "0"):
        done = run("checkout", "--json", "record.json", part, left)
        record = json.loads((tmp_path / "record.json").read_text())
        ran = 1 if part == "--sample" else 16  # 0 is no limit
        assert (record["passed"], record["left_out"]["not drawn"]) == (ran, 16 - ran), done.stdout


@pytest.mark.parametrize("arguments, blind, code, words", [
    ([], False, 2, "usage: "), (["checkout", "--sample", "x"], False, 2, "usage: "),
    (["checkout", "--seconds"], False, 2, "usage: "),
    (["nowhere"], False, 2, "there is no nowhere/tests/test_flash_attn.py"),
    (["checkout"], True, 3, "PyTorch finds no GPU here")])
def test_what_cannot_run_says_why_in_one_line(run, arguments, blind, code, words):
    done = run(*arguments, blind=blind)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr and done.stderr.count("\n") == 1
