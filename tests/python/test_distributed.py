"""Ring attention on several processes, as torchrun starts them: on GPUs if there are two, else on the CPU back-end."""

import json
import os
import re
import subprocess
import sys
import textwrap
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


def test_the_example_of_the_page_runs(tmp_path):
    section = (TESTS.parents[1] / "docs" / "python.md").read_text(encoding="utf-8").partition("\n## Several GPUs\n")[2]
    example = textwrap.dedent(re.findall("(?:^    .*\n)+", section, re.M)[1])
    assert example.startswith("from flash_ladder.distributed import")
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(f"""\
        import os, torch, torch.distributed as dist
        on_gpus = torch.cuda.device_count() > 1
        dist.init_process_group("nccl" if on_gpus else "gloo")
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpus else torch.device("cpu")
        if on_gpus:
            torch.cuda.set_device(device)
        random = torch.Generator(device).manual_seed(1)
        q, k, v = (torch.randn(1, 2, 128, 64, device=device, generator=random).half() for _ in range(3))
        """) + example + textwrap.dedent("""\
        assert whole.shape == (1, 2, 128, 64)
        dist.destroy_process_group()
        """))
    torchrun(2, program)


def test_a_record_of_rings_keeps_its_other_lengths(tmp_path):
    from measure_ring import merged, write
    record = {"kind": "ring", "commit": "a", "gpu": "b", "ranks": 2, "torch": "c", "heads": [4, 2], "d": 64}
    old = {**record, "date": "1", "rows": [{"name": "ring", "N": 64}, {"name": "ring", "N": 16}], "failed": {"x": "y"}}
    new = {**record, "date": "2", "rows": [{"name": "ring", "N": 32}, {"name": "one GPU", "N": 64}], "failed": {}}
    both = merged(old, new)
    assert [(row["name"], row["N"]) for row in both["rows"]] == [("ring", 16), ("ring", 32), ("one GPU", 64)]
    assert both["date"] == "2" and both["failed"] == {"x": "y"}
    with pytest.raises(ValueError, match="commit is a in the file and z here: they must agree"):
        merged(old, {**new, "commit": "z"})
    write(both, tmp_path / "ring.json")
    assert json.loads((tmp_path / "ring.json").read_text()) == both and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("ranks, context", [(2, 64), (3, 48)])
def test_a_divided_context_trains_with_the_loss_of_one_device(tmp_path, ranks, context):
    out = tmp_path / "train.json"
    said = torchrun(ranks, TESTS.parents[1] / "examples" / "train_gpt.py", "--tiny", *["--cpu"] * (GPUS < ranks),
                    "--steps", 4, "--context", context, "--context-parallel", ranks, "--json", out)
    result = json.loads(out.read_text())
    assert result["context_parallel"] == ranks and said.count("the losses differ") == 1
    assert result["largest_difference"] < 5e-3
    losses = result["runs"]["ladder"]["losses"]
    assert losses[0] - losses[-1] > 0.2  # it learns


def test_without_process_group_pytorch_says_what_to_call():
    from flash_ladder.distributed import ring_attention
    x = torch.zeros(1, 1, 64, 64, dtype=torch.float16)
    with pytest.raises(ValueError, match="init_process_group"):
        ring_attention(x, x, x)


@pytest.mark.parametrize("ranks, world, said", [(2, {}, "torchrun --nproc-per-node 2"), (
    3, {"WORLD_SIZE": "3"}, "--context 64 does not divide into 6 chunks, two for each of 3 ranks")])
def test_context_parallel_that_cannot_be_is_refused(ranks, world, said):
    done = subprocess.run([sys.executable, TESTS.parents[1] / "examples" / "train_gpt.py", "--tiny", "--context-parallel",
                           str(ranks)],
                          env={**os.environ, **world, "PYTHONPATH": str(Path(flash_ladder.__file__).parents[1])},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 2 and said in done.stdout
