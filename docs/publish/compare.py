#!/usr/bin/env python3
"""Recordings side by side: `lab compare A.json B.json` runs it, and one table of the pages has the GPUs as columns.

    compare.py A B [--json FILE] [--markdown]

A and B are two files of `lab time --json`. Exit codes: 0 ok; 2 a file is none, or nothing was timed in both.
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True

from blocks import Failure, block  # noqa: E402
from command import Options, finish, run  # noqa: E402
from markdown import rounded, table, times  # noqa: E402
from peers import problem_name  # noqa: E402
from records import (by_problem, geometric_mean, key_of, label, libraries, ms_of, peer_names, read,  # noqa: E402
                     right_ms)
from times import rate_and_speedup  # noqa: E402


def header(results):
    """What a recording was made on, by the name of each fact."""
    machine = results.hardware
    ceilings = {"bf16 GEMM, TFLOP/s": results.ceilings.bf16_tflops, "copy, GB/s": results.ceilings.copy_gbs}
    return {"GPU": machine.gpu, "driver": machine.get("driver", ""), "toolkit": f"CUDA {machine.get('toolkit', '')}",
            "commit": results.commit[:7], "date": results.date[:10],
            **{name: "" if value is None else f"{value:.0f}" for name, value in ceilings.items()},
            "libraries": libraries(results)}


def same_kernel(first, second, folder):
    """Whether both timed the same code of a stage; None if one of them does not say what it timed."""
    prints = [results.get("kernels", {}).get(folder) for results in (first, second)]
    return None if None in prints else prints[0] == prints[1]


def names_of(problems):
    """What each is called: by regime and N alone where that tells them apart."""
    short = [problem.short_name for problem in problems]
    return [name if short.count(name) == 1 else problem.full_name for name, problem in zip(short, problems)]


def rows_of(first, second):
    """A row for each stage and library on each problem, where both recordings have a time for a right answer."""
    there = {key_of(problem.first): problem for problem in by_problem(second)}
    pairs = [(problem, there[key_of(problem.first)]) for problem in by_problem(first) if key_of(problem.first) in there]
    found = []
    for name, (a, b) in zip(names_of([a for a, _ in pairs]), pairs):
        stages = {row.folder: row for row in b.rows}
        timed = [(row, row.folder, right_ms(row), right_ms(stages.get(row.folder))) for row in a.rows]
        timed += [(row, f"peer: {row.peer}", ms_of(row), ms_of(b.peer(row.peer))) for row in a.peers]
        for row, who, a_ms, b_ms in timed:
            if a_ms and b_ms:
                found.append({"regime": row.regime, "problem": name, "shape": row.shape, "dtype": row.dtype,
                              "causal": row.causal, "who": who, "a_ms": a_ms, "b_ms": b_ms, "a_rate": row.rate,
                              "b_rate": row.rate * a_ms / b_ms, "unit": row.unit, "ratio": a_ms / b_ms,
                              "same_kernel": None if who.startswith("peer: ") else same_kernel(first, second, who)})
    return found


def means_of(rows):
    """By regime: how many rows, and the geometric mean, the least and the greatest of their ratios."""
    found = []
    for regime in dict.fromkeys(row["regime"] for row in rows):
        ratios = [row["ratio"] for row in rows if row["regime"] == regime]
        found.append({"regime": regime, "rows": len(ratios), "mean": geometric_mean(ratios), "least": min(ratios),
                      "greatest": max(ratios)})
    return found


def differences(first, second, rows):
    """What keeps the two from being compared as a whole, a sentence each."""
    notes = []
    kernels = dict.fromkeys(row["who"] for row in rows if not row["who"].startswith("peer: "))
    of_kind = {kind: [folder for folder in kernels if same_kernel(first, second, folder) is kind]
               for kind in (False, None)}
    if of_kind[False]:
        notes.append(f"* The kernel's code differs between A and B: {', '.join(of_kind[False])}.")
    if of_kind[None]:
        notes.append(f"A or B does not say which code it timed: {', '.join(of_kind[None])}.")
    keys = [{key_of(row): row.regime for row in results.rows} for results in (first, second)]
    for regime in dict.fromkeys([*keys[0].values(), *keys[1].values()]):
        own = [{key for key, of in each.items() if of == regime} for each in keys]
        if own[0] and own[1] and own[0] != own[1]:
            notes.append(f"The problems of {regime} differ: {len(own[0])} in A, {len(own[1])} in B, "
                         f"{len(own[0] & own[1])} in both.")
    timed = [list(dict.fromkeys([*each.values(), *(row.folder for row in results.rows), *peer_names(results)]))
             for results, each in zip((first, second), keys)]
    for name, own, other in (("A", *timed), ("B", *timed[::-1])):
        if only := [who for who in own if who not in other]:
            notes.append(f"Only in {name}: {', '.join(only)}.")
    return notes


def compared(first, second):
    rows = rows_of(first, second)
    if not rows:
        raise Failure("nothing was timed in both recordings")
    return {"a": header(first), "b": header(second), "rows": rows, "means": means_of(rows),
            "notes": differences(first, second, rows)}


def tables_of(answer):
    """Pairs of title and (columns, rows)."""
    facts = [[name, a, b] for (name, a), b in zip(answer["a"].items(), answer["b"].values()) if a or b]
    means = [[mean["regime"], str(mean["rows"]), *(times(mean[key]) for key in ("mean", "least", "greatest"))]
             for mean in answer["means"]]
    found = [("", (["", "A", "B"], facts)),
             ("B over A, by regime", (["regime", ">rows", ">geometric mean", ">least", ">greatest"], means))]
    for mean in answer["means"]:
        own = [row for row in answer["rows"] if row["regime"] == mean["regime"]]
        rows = [[row["problem"], row["who"] + ("*" if row["same_kernel"] is False else ""), rounded(row["a_rate"], 100),
                 rounded(row["b_rate"], 100), times(row["ratio"])] for row in own]
        rows.append(["geometric mean", "", "", "", times(mean["mean"])])
        found.append((f"{mean['regime']}, {own[0]['unit']}", (["problem", "stage", ">A", ">B", ">B over A"], rows)))
    return found


def side_by_side(sources, stages):
    """A row for each problem where a stage's change should show and that two or more GPUs have, from the newest
    recording of each GPU that has it; and the recordings that were used, by GPU."""
    of_gpu, used = sources.by_gpu, {}
    rows = []
    for stage in stages:
        found = {}  # rows by problem and GPU
        for gpu, recordings in of_gpu.items():
            for results in recordings:
                for row in results.rows:
                    if row.folder == stage.folder and row.shows_here and right_ms(row):
                        found.setdefault(key_of(row), {})[gpu] = results, row
        problems = [next(iter(on.values()))[1] for on in found.values()]
        for problem, on in zip(by_problem({"rows": problems}), found.values()):
            if len(on) < 2:
                continue
            cells = []
            for gpu in of_gpu:
                results, row = on.get(gpu, (None, None))
                old = results and sources.changed_since(results, [stage])
                cells.append(rate_and_speedup(row).replace("**", "") + ("*" if old else "") if row else "-")
                if results:
                    used.setdefault(gpu, {})[results.date] = results
            rows.append([stage.folder, problem_name(sources, problem), next(iter(on.values()))[1].unit, *cells])
    return rows, used


@block("gpus")
def gpus(sources, page, _):
    """A lesson's stage, a part's stages, or all, with the GPUs as columns."""
    of_page = sources.of_part(page.part) if page.part is not None else sources.stages.values()
    stages = [page.stage] if page.stage else of_page
    rows, used = side_by_side(sources, stages)
    if not rows:
        return "Recorded on one GPU so far.\n"
    shown = table(["stage", "problem", "unit", *(f">{gpu} (over the parent)" for gpu in sources.by_gpu)], rows)
    labels = dict.fromkeys(label(results) for of_gpu in used.values() for results in of_gpu.values())
    starred = "\\* An earlier form of the kernel.\n\n" if "* |" in shown else ""
    return f"{shown}\n{starred}" + "".join(f"- {each}\n" for each in labels)


def main():
    options = Options("compare")
    options.add_argument("a", type=Path, metavar="A.json")
    options.add_argument("b", type=Path, metavar="B.json")
    given = options.parse_args()
    answer = compared(read(given.a, "timing"), read(given.b, "timing"))
    return finish(given, "compare", answer, tables_of(answer), answer["notes"])


if __name__ == "__main__":
    sys.exit(run(main))
