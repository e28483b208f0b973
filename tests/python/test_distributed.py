"""Ring attention on several processes, as torchrun starts them: on GPUs if there are two, else on the CPU back-end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
import flash_ladder

TESTS = Path(__file__).resolve().parent
GPUS = torch.cuda.device_count()
pytestmark = pytest.mark.skipif(
    not dist.is_available() or (GPUS < 2 and bool(flash_ladder._core.why_not("cpu"))),
    reason="this PyTorch has no torch.distributed, or there is neither a CPU back-end nor a second GPU")


def torchrun(ranks, *program):
    """What a program with so many processes prints."""
    package = Path(flash_ladder.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *map(str, program)],
        env={**os.environ, "PYTHONPATH": f"{package}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1",
             "NCCL_NVLS_ENABLE": "0"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def test_rings_are_the_attention_of_the_whole_sequence():
    ranks = min(GPUS, 8) if GPUS > 1 else 4
    assert "ok" in torchrun(ranks, TESTS / "ring_ranks.py")


def test_a_divided_context_trains_with_the_loss_of_one_device(tmp_path):
    out = tmp_path / "train.json"
    said = torchrun(2, TESTS.parents[1] / "examples" / "train_gpt.py", "--tiny", *["--cpu"] * (GPUS < 2), "--steps", 4,
                    "--context-parallel", 2, "--json", out)
    result = json.loads(out.read_text())
    assert result["context_parallel"] == 2 and said.count("the losses differ") == 1
    assert result["largest_difference"] < 5e-3
    losses = result["runs"]["ladder"]["losses"]
    assert losses[0] - losses[-1] > 0.2  # it learns


def test_without_process_group_pytorch_says_what_to_call():
    from flash_ladder.distributed import ring_attention
    x = torch.zeros(1, 1, 64, 64, dtype=torch.float16)
    with pytest.raises(ValueError, match="init_process_group"):
        ring_attention(x, x, x)


def test_context_parallel_without_torchrun_is_refused():
    done = subprocess.run([sys.executable, TESTS.parents[1] / "examples" / "train_gpt.py", "--context-parallel", "2"],
                          env={**os.environ, "PYTHONPATH": str(Path(flash_ladder.__file__).parents[1])},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 2 and "torchrun --nproc-per-node 2" in done.stdout
