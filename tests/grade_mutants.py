#!/usr/bin/env python3
"""Grades every mutant of every exercise as `lab grade` grades a class, at several seeds.

    grade_mutants.py BUILD [--stages 4,5] [--seeds 9] [--jobs N] [--out FILE]

No mutant may have a point for results, or more than a fifth of all points, and the stage's own kernel must have all.
Seeds are 1, which is the default, and up. A grade takes 10 to 60 s of one core and 4 GB at most. What is wrong is
printed, and the exit code is then 1; --out records what has been graded so far as JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.pool import ThreadPool
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / "docs/publish")]
from recording import machine_and_commit  # noqa: E402
from whole_kernel import kernel_text  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ("correct", "edges", "races")


def class_of(build, stage, folder):
    """A class of a stage's mutants, and of its own kernel as `solution`."""
    subprocess.run([build / "tests/check_mutants", "--write", folder, stage], check=True, stdout=subprocess.DEVNULL)
    solution = folder / stage.name / "solution"
    solution.mkdir()
    (solution / "kernel.cu").write_text(kernel_text(stage / "kernel.cu"))
    return folder / stage.name


def grades(build, students, number, seed):
    """The grades of a class, by submission; two are made at a time."""
    with tempfile.TemporaryDirectory(prefix="ladder-grades-") as folder:
        work = Path(folder)
        (work / "rubric.json").write_text(json.dumps({"stage": number, "seed": seed}))
        done = subprocess.run([build / "lab-course", "grade", students, "--rubric", work / "rubric.json", "--jobs", "2",
                               "--out", work / "grades", "--json", work / "report.json"], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"lab grade exited with {done.returncode}:\n{done.stdout}{done.stderr}")
        return {row["submission"]: row for row in json.loads((work / "report.json").read_text())["grades"]}


def wrong(name, grade):
    """What is wrong with a grade of 100 at most; empty if nothing is."""
    if name == "solution":
        return "" if grade["total"] == 100 else f"{grade['total']:g} of 100 for the stage's own kernel"
    paid = [key for key in RESULTS if grade[key] > 0]
    if paid:
        return "points for " + ", ".join(paid)
    return "" if grade["total"] <= 20 else f"{grade['total']:g} of 100"


class Record:
    """What each stage's mutants were given; written after each class, beside what is recorded of other stages, since
    all of them take hours."""

    def __init__(self, out):
        self.head, self.out, self.begin, self.lock = machine_and_commit(), out, time.monotonic(), threading.Lock()
        before = json.loads(out.read_text())["stages"] if out and out.exists() else []
        self.of = {row["stage"]: row for row in before}
        self.count, self.failures, self.begun = 0, 0, set()

    def add(self, stage, seed, graded):
        with self.lock:
            if stage.name not in self.begun:
                self.begun.add(stage.name)
                self.of[stage.name] = {"stage": stage.name, "seeds": [], "grades": 0, "most_points": {}, "failures": [],
                                       **self.head}
            row = self.of[stage.name]
            row["seeds"] = sorted([*row["seeds"], seed])
            row["grades"] += len(graded)
            for name, grade in graded.items():
                if name != "solution":
                    row["most_points"][name] = max(row["most_points"].get(name, 0), grade["total"])
                if why := wrong(name, grade):
                    row["failures"].append(f"{name}, seed {seed}: {why}")
                    print(f"{stage.name}, {row['failures'][-1]}", flush=True)
                    self.failures += 1
            self.count += len(graded)
            seconds = round(time.monotonic() - self.begin)
            print(f"{stage.name}, seed {seed}: {self.count} grades in {seconds} s", flush=True)
            if self.out:
                record = {"kind": "graded-mutants", **self.head, "stages": [self.of[name] for name in sorted(self.of)]}
                self.out.write_text(json.dumps(record, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--stages", help="numbers, as 4,5 (default: every exercise)")
    parser.add_argument("--seeds", type=int, default=9, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="grades at a time")
    parser.add_argument("--out", type=Path, help="where to record them")
    options = parser.parse_args()
    build = options.build.resolve()
    chosen = {int(word) for word in options.stages.split(",")} if options.stages else None
    stages = [exercise.parent for exercise in sorted(ROOT.glob("stages/*/exercise.md"))
              if (exercise.parent / "mutants").is_dir() and (not chosen or int(exercise.parent.name[:2]) in chosen)]
    record = Record(options.out)
    with tempfile.TemporaryDirectory(prefix="ladder-mutants-") as folder:
        classes = {stage: class_of(build, stage, Path(folder)) for stage in stages}
        # The last stages take longest, so they come first.
        todo = [(stage, seed) for stage in reversed(stages) for seed in range(1, options.seeds + 1)]

        def grade(one):
            stage, seed = one
            record.add(stage, seed, grades(build, classes[stage], int(stage.name[:2]), seed))

        with ThreadPool(max(1, options.jobs // 2)) as pool:
            pool.map(grade, todo, chunksize=1)
    print(f"{record.count} grades at {options.seeds} seeds: {record.failures} are wrong")
    return 1 if record.failures or not record.count else 0


if __name__ == "__main__":
    sys.exit(main())
