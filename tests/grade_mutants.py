#!/usr/bin/env python3
"""Grades every mutant of every exercise as `lab grade` grades a class, at several seeds.

    grade_mutants.py BUILD [--stages 4,5] [--seeds 9] [--jobs N] [--out FILE]

No mutant may have a point for results, or more than a fifth of all points, and the stage's own kernel must have all.
Seeds are 1, which is the default, and up. A grade takes 10 to 60 s of one core and 3 GB at most. What is wrong is
printed, and the exit code is then 1; --out records all of it as JSON.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from recording import machine_and_commit  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ("correct", "edges", "races")


def class_of(build, stage, folder):
    """A class of a stage's mutants, and of its own kernel as `solution`."""
    subprocess.run([build / "tests/check_mutants", "--write", folder, stage], check=True, stdout=subprocess.DEVNULL)
    solution = folder / stage.name / "solution"
    solution.mkdir()
    shutil.copy(stage / "kernel.cu", solution)
    return folder / stage.name


def grades(build, students, number, seed, jobs, work):
    """The grades of a class, by submission."""
    rubric = work / "rubric.json"
    rubric.write_text(json.dumps({"stage": number, "seed": seed}))
    report = work / "report.json"
    out = work / f"grades-{number}-{seed}"
    done = subprocess.run([build / "lab", "grade", students, "--rubric", rubric, "--out", out, "--jobs", str(jobs),
                           "--json", report], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"lab grade exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return {row["submission"]: row for row in json.loads(report.read_text())["grades"]}


def wrong(name, grade):
    """What is wrong with a grade of 100 at most; empty if nothing is."""
    if name == "solution":
        return "" if grade["total"] == 100 else f"{grade['total']:g} of 100 for the stage's own kernel"
    paid = [key for key in RESULTS if grade[key] > 0]
    if paid:
        return "points for " + ", ".join(paid)
    return "" if grade["total"] <= 20 else f"{grade['total']:g} of 100"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--stages", help="numbers, as 4,5 (default: every exercise)")
    parser.add_argument("--seeds", type=int, default=9, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="grades at a time")
    parser.add_argument("--out", type=Path, help="where to record them")
    options = parser.parse_args()
    chosen = {int(word) for word in options.stages.split(",")} if options.stages else None

    record = {"kind": "graded-mutants", **machine_and_commit(), "seeds": list(range(1, options.seeds + 1)), "jobs": options.jobs}
    begin, most, count, failures = time.time(), {}, 0, []
    for exercise in sorted(ROOT.glob("stages/*/exercise.md")):
        stage = exercise.parent
        number = int(stage.name[:2])
        if (chosen and number not in chosen) or not (stage / "mutants").is_dir():
            continue
        with tempfile.TemporaryDirectory(prefix="ladder-mutants-") as folder:
            work = Path(folder)
            students = class_of(options.build.resolve(), stage, work / "class")
            for seed in record["seeds"]:
                for name, grade in grades(options.build.resolve(), students, number, seed, options.jobs, work).items():
                    why, known = wrong(name, grade), f"{stage.name}/{name}"
                    count += 1
                    if name != "solution":
                        most[known] = max(most.get(known, 0), grade["total"])
                    if why:
                        failures.append(f"{known}, seed {seed}: {why}")
                        print(failures[-1], flush=True)
                print(f"{stage.name}, seed {seed}: {count} grades in {time.time() - begin:.0f} s", flush=True)
    record |= {"grades": count, "seconds": round(time.time() - begin), "most_points": most, "failures": failures}
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{len(most)} mutants at {options.seeds} seeds: {len(failures)} grades are wrong")
    return 1 if failures or not most else 0


if __name__ == "__main__":
    sys.exit(main())
