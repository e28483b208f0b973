#!/usr/bin/env python3
"""Grades a class of 200, of whom 60 and more are hostile, and holds every grade to what it should be.

    class_of_200.py BUILD [--size 200] [--seed 1] [--jobs N] [--out FILE]

The exercise is 05. Its class is made of what is here: solutions, untouched starts, mutants, tests/submissions, and
hostile folders and kernels of this file: links, pipes, odd names, and kernels that take all of the time or memory that
there is. Each grade, the time (an hour on two cores) and the peak of memory (4 GB for each submission that is graded at
a time) must be as docs/course/instructors.md promises; what is not is printed, and the exit code is then 1. --out
records all of it as JSON.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from recording import machine_and_commit  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
STAGE = ROOT / "stages/05_causal_skip"
SOLUTION = (STAGE / "kernel.cu").read_text()
LAUNCH = "    launch(attention<T, d>"
NO_KEYS = "    if (p.Nq > p.Nk) {{ {} }}\n" + LAUNCH


def put(text, old, new):
    assert text.count(old) >= 1, old
    return text.replace(old, new, 1)


class Class:
    """Submissions in a folder, each with the points that it must have, and whether it is hostile."""

    def __init__(self, folder):
        self.folder, self.points, self.hostile = folder, {}, set()
        folder.mkdir(parents=True)

    def expect(self, name, points, hostile=True, shown=None):
        """Points are a number, or the least and the most. `shown`: the name in tables, where it is another."""
        self.points[shown or name] = points if isinstance(points, tuple) else (points, points)
        if hostile:
            self.hostile.add(shown or name)

    def kernel(self, name, text, points, hostile=True, shown=None):
        self.expect(name, points, hostile, shown)
        place = self.folder / name
        place.mkdir()
        (place / "kernel.cu").write_bytes(text if isinstance(text, bytes) else text.encode())


def recorded_submissions():
    """(name, kernel, points) of tests/submissions that are of this exercise: see read_submission() in test_fence.cpp."""
    for file in sorted((ROOT / "tests/submissions").glob("*.txt")):
        head, _, body = file.read_text().partition("\n\n")
        fields = dict(line.split(": ", 1) for line in head.splitlines())
        if int(fields["Stage"]) != int(STAGE.name[:2]):
            continue
        lines = body.splitlines()
        old = "".join(line[1:] + "\n" for line in lines if line.startswith("-"))
        new = "".join(line[1:] + "\n" for line in lines if not line.startswith("-"))
        new = re.sub(rb"\\x(..)", lambda m: bytes([int(m[1], 16)]), new.encode())
        points = tuple(float(word) for word in fields["Score"].split(" to "))
        kernel = SOLUTION.encode()
        assert kernel.count(old.encode()) == 1, file
        yield file.stem, kernel.replace(old.encode(), new), (points[0], points[-1])


def add_folders(students):
    """What is no submission, though it looks like one. A class may name and fill its folders as it likes."""
    place = students.folder
    for name, target in (("friend", "student_000"), ("loop", "loop"), ("nowhere", "not_here"), ("solution", STAGE),
                         ("root", "/")):
        (place / name).symlink_to(target)
        students.expect(name, 0)
    for name, target in (("link_to_solution", STAGE / "kernel.cu"), ("link_to_friend", "../student_000/kernel.cu"),
                         ("link_to_zero", "/dev/zero")):
        (place / name).mkdir()
        (place / name / "kernel.cu").symlink_to(target)
        students.expect(name, 0)
    (place / "pipe").mkdir()
    os.mkfifo(place / "pipe/kernel.cu")
    students.expect("pipe", 0)
    (place / "folder/kernel.cu").mkdir(parents=True)
    students.expect("folder", 0)
    (place / "nothing").mkdir()
    students.expect("nothing", 0)
    for name, shown in (("\u202excod.kernel", "\\xe2\\x80\\xaexcod.kernel"), ("esc\x1b[2J", "esc\\x1b[2J"),
                        ("zero\u200bwidth", "zero\\xe2\\x80\\x8bwidth"), ("line\nbreak", "line\\x0abreak"),
                        ("=cmd|' calc'!A0", None), ("n" * 250, None), ("two words; rm -r $HOME", None)):
        students.kernel(name, SOLUTION, 100, shown=shown)


def add_kernels(students):
    """Kernels that take all of something, or do nothing. Wrong or stopped, each gets the points of *builds*."""
    students.kernel("empty", "", 0)
    students.kernel("too_large", SOLUTION + "//" + "x" * (1 << 20), 0)
    students.kernel("no_text", bytes(range(256)) * 40, 0)
    students.kernel("templates_without_end",
                    put(SOLUTION, "namespace {\n", "namespace {\ntemplate <int n> struct Deep : Deep<n + 1> {};\n"
                        "Deep<0> deep;\n"), 0)
    students.kernel("compiles_for_ever",
                    put(SOLUTION, "namespace {\n", "namespace {\nconstexpr int f(int n) { return n < 2 ? n : f(n - 1) + "
                        "f(n - 2); }\nstatic_assert(f(60) > 0);\n"), 0)
    for name, code in (("spins", "for (volatile int x = 0; x < 1;) {}"),
                       ("takes_memory", "for (;;) *new volatile char[1 << 26] = 1;"),
                       ("faults", "*reinterpret_cast<volatile int*>(std::size_t(p.d)) = 1;"),
                       ("returns", "return;")):
        students.kernel(f"{name}_without_keys", put(SOLUTION, LAUNCH, NO_KEYS.format(code)), 5)
        students.kernel(f"{name}_always", put(SOLUTION, LAUNCH, f"    {code}\n{LAUNCH}"), 5)
    students.kernel("launches_all_day",
                    put(SOLUTION, LAUNCH, f"    for (int n = 0; n < 1 << 30; ++n)\n{LAUNCH}"), 5)
    students.kernel("waits_for_nobody",
                    put(SOLUTION, "        __syncthreads();  // all copies of Q, K and V have landed",
                        "        if (threadIdx.x < 100) __syncthreads();  // all copies of Q, K and V have landed"), 5)
    students.kernel("launches_all_blocks",
                    put(SOLUTION, "dim3(ceil_div(p.Nq, Br), p.H, p.B)", "dim3(~0u / 2, 65535, 65535)"), 5)
    students.kernel("launches_many_blocks",
                    put(SOLUTION, "dim3(ceil_div(p.Nq, Br), p.H, p.B)", "dim3(100000, p.H, p.B)"), 5)
    for mib, points in ((256, 5), (63, (5, 100))):  # a right kernel with a large workspace: if the time is enough, all
        students.kernel(f"wants_{mib}_mib",
                        put(SOLUTION, '.shows_in = "causal");', '.shows_in = "causal",\n    .workspace_bytes = '
                            f"[](const Shape&, int) {{ return std::size_t{{{mib}}} << 20; }});"), points)
    students.kernel("byte_order_mark", b"\xef\xbb\xbf" + SOLUTION.encode(), 100, hostile=False)
    students.kernel("races", put(SOLUTION, "if (t == 0) store(L, ", "store(L, "), 5)
    students.kernel("zeros", put(SOLUTION, "O[n][2 * r] * inverse_l, O[n][2 * r + 1] * inverse_l", "0.0f, 0.0f"), 5)
    students.kernel("beyond_its_tensors", put(SOLUTION, "if (row >= p.Nq) continue;", "if (row >= p.Nq + 1) continue;"), 5)


def add_students(students, build, size):
    """Ordinary ones: the way from the start to the solution, with its mistakes."""
    with tempfile.TemporaryDirectory(prefix="ladder-class-") as folder:
        start = Path(folder) / "my"
        subprocess.run([build / "lab-course", "start", "5", "--dir", start], check=True, stdout=subprocess.DEVNULL)
        untouched = (start / "kernel.cu").read_text()
        subprocess.run([build / "tests/check_mutants", "--write", folder, STAGE], check=True,
                       stdout=subprocess.DEVNULL)
        mutants = [kernel.read_text() for kernel in sorted((Path(folder) / STAGE.name).glob("*/kernel.cu"))]
    renamed = re.sub(r"\bdiagonal\b", "last_key", SOLUTION)
    parent = (ROOT / "stages/04_split_q/kernel.cu").read_text()
    kinds = [(SOLUTION, 100), (renamed, 100), (untouched, 5), (parent, 0), (put(SOLUTION, "const int", "const in"), 0),
             (SOLUTION, 100), *((kernel, (5, 20)) for kernel in mutants)]
    for number in range(max(0, size - len(students.points))):
        text, points = kinds[number % len(kinds)]
        students.kernel(f"student_{number:03}", text + f"// {number}\n", points, hostile=False)


def memory_of(root):
    """Bytes that a process and all that it has started hold, shared ones once where that can be seen."""
    children, total = {}, 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    left = [root]
    while left:
        pid = left.pop()
        left += children.get(pid, [])
        for file, field in (("smaps_rollup", "Pss"), ("status", "VmRSS")):
            try:
                found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/{file}").read_text(), re.M)
            except OSError:
                continue
            total += int(found[1]) * 1024 if found else 0
            break
    return total


def grade(command):
    """Runs it; returns what it said, its seconds, those of processors, and the peak of its memory."""
    begin, peak = time.time(), 0
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        done = threading.Event()

        def watch():
            nonlocal peak
            while not done.wait(0.5):
                peak = max(peak, memory_of(process.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        _, status, used = os.wait4(process.pid, 0)
        done.set()
        watching.join()
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read(), time.time() - begin, used.ru_utime + used.ru_stime, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the rubric")
    parser.add_argument("--jobs", type=int, default=2, help="submissions at a time")
    parser.add_argument("--out", type=Path, help="where to record it")
    options = parser.parse_args()
    build = options.build.resolve()
    wrong = []
    with tempfile.TemporaryDirectory(prefix="ladder-class-") as folder:
        work = Path(folder)
        students = Class(work / "class")
        for name, kernel, points in recorded_submissions():
            students.kernel(name, kernel, points)
        add_folders(students)
        add_kernels(students)
        add_students(students, build, options.size)
        (work / "rubric.json").write_text(json.dumps({"stage": 5, "seed": options.seed}))
        command = [build / "lab-course", "grade", students.folder, "--rubric", work / "rubric.json", "--jobs",
                   str(options.jobs), "--json", work / "report.json", "--out"]
        inside = subprocess.run([*command, students.folder / "grades"], capture_output=True)
        if inside.returncode != 2 or (students.folder / "grades").exists():
            wrong.append("--out in the class's folder is not refused")
        status, said, seconds, processors, peak = grade([*command, work / "grades"])
        if status != 0:
            wrong.append(f"lab grade exited with {status}:\n{said[-2000:]}")
        rows = json.loads((work / "report.json").read_text())["grades"] if (work / "report.json").exists() else []
    totals = {row["submission"]: row["total"] for row in rows}
    for name, (least, most) in students.points.items():
        total = totals.get(name)
        if total is None or not least <= total <= most:
            wrong.append(f"{name}: {total} instead of {least:g}" + (f" to {most:g}" if most > least else ""))
    wrong += [f"{name}: it is no submission" for name in totals if name not in students.points]
    grades_wrong = len(wrong)
    if processors > 2 * 3600 * len(students.points) / 200:
        wrong.append(f"{processors:.0f} s of processors: more than an hour on two cores for 200")
    if peak > options.jobs * (3 << 30):
        wrong.append(f"{peak / 2**30:.1f} GB at a time: more than 3 for each of {options.jobs}")
    record = {"kind": "class", **machine_and_commit(), "exercise": STAGE.name, "seed": options.seed,
              "submissions": len(students.points), "hostile": len(students.hostile), "jobs": options.jobs,
              "seconds": round(seconds), "processor_seconds": round(processors),
              "peak_memory_gb": round(peak / 2**30, 2), "points": totals, "wrong": wrong}
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    print("\n".join(wrong + [f"{len(students.points)} submissions, {len(students.hostile)} of them hostile: "
                             f"{grades_wrong} wrong; {seconds:.0f} s, {processors:.0f} s of processors, "
                             f"{peak / 2**30:.2f} GB at most"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
