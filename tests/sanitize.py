#!/usr/bin/env python3
"""Runs every stage, or those named, on the GPU under compute-sanitizer and writes what it found as JSON.

    tests/sanitize.py build/lab docs/results/sanitizer.json [STAGES]

Exits with 0 if no tool reported anything and every answer was right, 1 if not, 3 if it cannot run here.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from multiprocessing.pool import ThreadPool
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.dont_write_bytecode = True

from recording import machine_and_commit  # noqa: E402

# Small, for a sanitized run is hundreds of times slower; ragged, since most mistakes live in the last tile.
# Grouped heads, both types and layouts, more rows than keys under a causal mask, one query row over several
# splits, more query tiles than multiprocessors, shares of one without a visible key, a single key.
CASES = """--shape 1,2,2,65,65,64 --dtype fp16
--shape 2,4,2,37,127,128 --dtype fp16 --causal --layout bnhd
--shape 1,4,1,127,65,64 --dtype bf16 --causal
--shape 1,2,1,130,193,128 --dtype bf16 --layout bnhd
--shape 1,8,2,1,300,128 --dtype bf16
--shape 1,2,2,1,1025,64 --dtype fp16 --causal
--shape 1,2,1,150,97,256 --dtype bf16 --causal
16 17 --shape 1,6,2,460,460,64 --dtype fp16 --causal
34-36 --shape 1,48,8,600,130,64 --dtype bf16 --causal
50-58 --shape 1,4,2,200,330,64 --dtype bf16 --causal
50-58 --shape 1,2,2,300,150,128 --dtype fp16 --layout bnhd
57 58 --shape 1,4,2,200,161,256 --dtype bf16 --causal
57 58 --shape 1,2,1,1,130,256 --dtype fp16
--shape 1,1,1,1,1,64 --dtype fp16""".splitlines()
TOOLS = "memcheck", "racecheck", "synccheck", "initcheck"  # at once: each leaves most of the GPU idle


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, errors="replace").stdout


def query(what):
    return said("nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader").split("\n")[0]


def sanitize(tool, lab, cases):
    """One tool over all cases: its errors, its largest exit code, and what went wrong."""
    errors, worst, report = 0, 0, ""
    for case in cases:
        with tempfile.TemporaryDirectory() as work:
            log = Path(work, "log")
            ran = subprocess.run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "99", "--log-file", log,
                                  lab, "verify", "--backend", "gpu", *case.split()], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            text = log.read_text(errors="replace") if log.exists() else ""
        sums = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", text)
        found = int(sums[-1]) if sums else 1  # without a sum the tool did not finish
        errors, worst = errors + found, max(worst, ran.returncode)
        report += f"{tool}: {case}: {found} errors, exit code {ran.returncode}\n"
        if found or ran.returncode:
            report += "\n".join([*ran.stdout.splitlines()[-20:], *text.splitlines()[:60], ""])
    return errors, worst, report


def main():
    if len(sys.argv) not in (3, 4):
        print(f"usage: {sys.argv[0]} LAB JSON [STAGES]", file=sys.stderr)
        return 2
    lab, record, stages = sys.argv[1], Path(sys.argv[2]), "".join(sys.argv[3:])
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    missing = [program for program in ("compute-sanitizer", "nvidia-smi", lab) if not shutil.which(program)]
    if missing or not (gpu := query("name")):
        print(f"{sys.argv[0]}: there is no {missing[0] if missing else 'GPU'}", file=sys.stderr)
        return 3
    cases = [case for case in CASES if "bf16" not in case or float(query("compute_cap")) >= 8]
    own = [f"{stages} {case}".strip() if case.startswith("--") else case for case in cases]
    with ThreadPool(len(TOOLS)) as pool:
        outcomes = dict(zip(TOOLS, pool.map(lambda tool: sanitize(tool, lab, own), TOOLS, chunksize=1)))
    print("".join(report for *_, report in outcomes.values()), end="")
    total = sum(errors or int(worst != 0) for errors, worst, _ in outcomes.values())
    made = machine_and_commit()
    all_stages = sorted(kernel.parent.name for kernel in (ROOT / "stages").glob("[0-9]*/kernel.cu"))
    version = re.findall(r"[Vv]ersion ([0-9.]+)", said("compute-sanitizer", "--version"))
    answer = {"kind": "sanitizer", "date": made["date"], "commit": made["commit"], "gpu": gpu, "driver": query("driver_version"),
              "compute_sanitizer": version[0] if version else "", "stages": [stages] if stages else all_stages, "cases": cases,
              "tools": [{"tool": tool, "errors": errors, "exit_code": worst}
                        for tool, (errors, worst, _) in outcomes.items()], "errors": total}
    new = record.with_name(record.name + ".new")
    new.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    new.replace(record)
    print(f"{total} errors")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
