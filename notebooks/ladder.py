"""What the notebooks share: calls of `lab`, recorded results, and one style for all plots."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("LADDER_LAB") or ROOT / "lab"  # $LADDER_LAB names another one


def lab(*arguments):
    """Runs `lab` with --json and returns what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [str(PROGRAM), *map(str, arguments), "--json", str(result)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}{done.stdout}")
        return json.loads(result.read_text())


def count(*stages, shape=None, causal=False, **options):
    """Counted work as {stage: {counter: value}}; a counter that is missing is 0. shape is (B, H, Hkv, Nq, Nk, d)."""
    arguments = ["count", *stages] + (["--causal"] if causal else [])
    if shape:
        arguments += ["--shape", ",".join(map(str, shape))]
    for name, value in options.items():
        arguments += [f"--{name}", value]
    work = lab(*arguments)["work"]
    stages = [key for key in work[0] if key != "counter"]
    return {stage: Counter({row["counter"]: row[stage] for row in work}) for stage in stages}


def run(stage, Q, K, V, causal=False):
    """O and L of a stage: Q (B, H, Nq, d), K and V (B, Hkv, Nk, d), float16. On the GPU if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: str(Path(folder) / f"{name}.npy") for name in ("q", "k", "v", "out", "lse")}
        for name, tensor in zip("qkv", (Q, K, V)):
            np.save(files[name], tensor)
        arguments = [word for name, file in files.items() for word in (f"--{name}", file)]
        lab("run", stage, *arguments, *(["--causal"] if causal else []))
        return np.load(files["out"]), np.load(files["lse"])


def gradients(stage, Q, K, V, dO, causal=False):
    """dQ, dK and dV of a stage of the backward pass: dO as Q; its O and L are computed first. Otherwise as run()."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: str(Path(folder) / f"{name}.npy") for name in ("q", "k", "v", "do", "dq", "dk", "dv")}
        for name, tensor in zip(files, (Q, K, V, dO)):
            np.save(files[name], tensor)
        arguments = [word for name, file in files.items() for word in (f"--{name}", file)]
        lab("run", stage, *arguments, *(["--causal"] if causal else []))
        return tuple(np.load(files[name]) for name in ("dq", "dk", "dv"))


def recorded(name="h200"):
    """A result of docs/results, or the file of your own `./lab time --json FILE`, of the stages that there are today."""
    sys.path.append(str(ROOT / "docs/publish"))
    import records  # not at the top: a hand-out has no recordings
    from sources import Sources
    found = records.read(Path(name) if str(name).endswith(".json") else records.RESULTS / f"{name}.json")
    return Sources(PROGRAM).of_today(found)


def select(results, peers=False, **wanted):
    """The rows that match: select(results, stage=5, regime="train", causal=False, Nk=2048)."""

    def value(row, key):
        return row[key] if key in row else row["shape"][key]

    rows = results["peers" if peers else "rows"]
    return [row for row in rows if row["timing"] and all(value(row, key) == wanted[key] for key in wanted)]


def stages(least=0, most=99):
    """The stages numbered `least` to `most`, as `lab list` has them: {"04_split_q": {"parent": "03_...", ...}}."""
    return {row["stage"]: row for row in lab("list")["stages"] if least <= int(row["stage"][:2]) <= most}


def ms(row):
    return row["timing"]["median_ms"]


def label(stage):
    """04_split_q -> 04 split q"""
    return stage.replace("_", " ")


# The algorithm, then decoding, then long queries.
BLUE, GREEN, ORANGE, GREY = "#3b6ea8", "#3a8f5c", "#d07a28", "#8a8a8a"


def color(stage):
    part = int(str(stage)[:2]) // 10
    return (BLUE, GREEN, ORANGE)[part] if part < 3 else GREY


def legend(ax, **options):
    """To the right of the plot, where it covers no line."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, **options)


plt.rcParams.update({
    "figure.dpi": 150, "figure.figsize": (7, 4), "figure.constrained_layout.use": True,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": "#dddddd", "axes.spines.top": False,
    "axes.spines.right": False, "font.size": 10, "legend.frameon": False, "axes.titlesize": 11,
})
