#!/usr/bin/env python3
"""Tests what lays recordings side by side, and estimates for other GPUs. Usage: test_compare.py LAB"""

import io
import json
import os
import statistics
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs/publish"), str(ROOT / "tests")]
sys.dont_write_bytecode = True

import command  # noqa: E402
import compare  # noqa: E402
import like  # noqa: E402
import needs  # noqa: E402
from blocks import Page  # noqa: E402
from markdown import plain_table  # noqa: E402
from records import Fields, long_name  # noqa: E402
from sample_records import cells, derived, fields, free_number, named, peer_of, row_of  # noqa: E402
from sources import SHOWN_GPU, Sources  # noqa: E402

LAB = sys.argv.pop() if len(sys.argv) > 1 else ROOT / "build/lab"
HERE = Sources(LAB)
MODEL = like.Model(HERE)
PARENT, CHILD = HERE.stage(4).folder, HERE.stage(5).folder
HOPPER = next(stage for stage in HERE.stages.values() if stage.capability)
FREE = free_number(HERE)


def recording(gpu, rows, peers=(), date="2026-11-21", **changes):
    """As lab writes it, of this GPU."""
    record = derived(rows, peers) | {"date": f"{date}T07:52:00Z"} | changes
    return Fields(record, hardware=fields({"gpu": gpu, "driver": "580", "toolkit": "13.0"}))


def output(module, *words):
    """What one of the commands prints, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    with mock.patch("sys.argv", ["x", *map(str, words)]), redirect_stdout(out), redirect_stderr(err):
        try:
            code = command.run(module.main)
        except SystemExit as exit_:  # of argparse
            code = exit_.code
    return code, out.getvalue(), err.getvalue()


class CompareTest(unittest.TestCase):
    def setUp(self):
        """04 and 05 on two problems of train and one of long in A; B has one of each, of long a wrong 05 alone."""
        timed = ("train", 2048, 2.0, 1.0), ("train", 4096, 4.0, 2.0), ("long", 2048, 3.0, 3.0)
        rows = [row_of(regime, stage, ms, Nk=n, folder=HERE.stage(stage).folder) for regime, n, *both in timed
                for stage, ms in zip((4, 5), both)]
        kernels = {PARENT: "a", CHILD: "b"}
        self.a = recording("GPU A", rows, [peer_of(rows[0], "cuDNN", 0.5)], kernels=kernels)
        other = [Fields(row, timing=fields({"median_ms": ms}))
                 for row, ms in zip((*rows[:2], rows[5]), (1.0, 2.0, 1.0))]
        other[2]["verified"] = False
        self.b = recording("GPU B", other, [peer_of(rows[0], "cuDNN", 0.25)], kernels=kernels | {CHILD: "c"})

    def test_a_failure_fits_its_terminal(self):
        message = "there is no recording of that name; those that there are: " + ", ".join(["a_recording"] * 9)
        self.assertEqual(command.failure_text(message), f"lab: {message}\n")
        with mock.patch.dict(os.environ, COLUMNS="40"), mock.patch.object(sys.stderr, "isatty", lambda: True):
            lines = command.failure_text(message).splitlines()
        self.assertEqual(" ".join(line.strip() for line in lines), f"lab: {message}")
        self.assertTrue(len(lines) > 3 and max(map(len, lines)) <= 40, lines)

    def test_only_what_both_hold_with_ratios_and_means(self):
        answer = compare.compared(self.a, self.b)
        self.assertEqual([(row["problem"], row["who"], row["ratio"]) for row in answer["rows"]],
                         [("train 2k", PARENT, 2.0), ("train 2k", CHILD, 0.5),
                          ("train 2k", "peer: cuDNN", 2.0)])
        first = answer["rows"][0]
        self.assertEqual((first["a_ms"], first["b_ms"], first["b_rate"]), (2.0, 1.0, 2 * first["a_rate"]))
        mean, = answer["means"]
        self.assertEqual((mean["regime"], mean["rows"], mean["least"], mean["greatest"]), ("train", 3, 0.5, 2.0))
        self.assertAlmostEqual(mean["mean"], 2 ** (1 / 3))
        self.assertEqual((answer["a"]["GPU"], answer["b"]["GPU"], answer["b"]["date"], answer["a"]["commit"]),
                         ("GPU A", "GPU B", "2026-11-21", "0123456"))

    def test_it_says_where_kernels_and_sweeps_differ(self):
        self.a.rows.append(row_of("wide", 5, 1.0, folder=CHILD))
        notes = compare.compared(self.a, self.b)["notes"]
        self.assertEqual(notes, ["* The kernel's code differs between A and B: " + CHILD + ".",
                                 "The problems of train differ: 2 in A, 1 in B, 1 in both.", "Only in A: wide."])
        del self.b["kernels"]
        self.assertIn("A or B does not say which code it timed: "
                      f"{PARENT}, {CHILD}.",
                      compare.compared(self.a, self.b)["notes"])

    def test_problems_of_one_size_have_longer_names(self):
        row = row_of("prefill", 5, 1.0, folder=CHILD)
        both = recording("GPU", [row, Fields(row, causal=True)])
        self.assertEqual([row["problem"] for row in compare.compared(both, both)["rows"]],
                         ["d=128 N=2k B=8 H=16", "d=128 N=2k B=8 H=16 causal"])

    def test_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            a, b, answer = (Path(folder) / f"{name}.json" for name in ("a", "b", "answer"))
            a.write_text(json.dumps(self.a))
            b.write_text(json.dumps(self.b))
            code, shown, _ = output(compare, a, b, "--json", answer)
            self.assertEqual((code, json.loads(answer.read_text())["command"]), (0, "compare"))
            self.assertRegex(shown, r"(?s)^ +A +B\nGPU +GPU A +GPU B\ndriver .*\nB over A, by regime:\n\n.*\ntrain, TFLOP/s:\n\n"
                                    r"problem +stage +A +B  B over A\n"
                                    rf"train 2k +{PARENT} +\d+ +\d+ +2.00x\ntrain 2k +{CHILD}\* ")
            self.assertIn(f"| train 2k | {CHILD}* | 275 | 137 | 0.50x |", output(compare, a, b, "--markdown")[1])
            b.write_text(json.dumps(recording("GPU", [row_of("decode", 5, 1.0, Nq=1)])))
            bad = Path(folder) / "bad.json"
            bad.write_text('{"kind": "timing", "version": 2, "rows": [{"a": 1}]}')
            old = Path(folder) / "old.json"
            old.write_text('{"kind": "timing", "rows": []}')
            for words, why in (((a, b), "nothing was timed in both"), ((a, bad), "bad.json: it makes no sense: there is no shape"),
                               ((a, old), "old.json: its form is that of another version; record it again"),
                               ((a, folder), "cannot read"),
                               ((a, Path(folder) / "none.json"), "none.json: No such file or directory"),
                               ((ROOT / "docs/results/mutation.json", a), "mutation.json: not a timing measurement"),
                               ((a,), "required: B.json; see ./lab compare --help"), ((a, b, "--x"), "unrecognized")):
                code, shown, said = output(compare, *words)
                self.assertEqual((code, shown, said.count("\n")), (2, "", 1), said)
                self.assertIn(why, said)


class GpusTest(unittest.TestCase):
    def test_gpus_are_columns_and_none_replaces_another(self):
        regimes = [name for name, regime in HERE.regimes.items() if not regime["sweep"] and regime["pass"] == "forward"]

        def whole(gpu, date, ms):
            rows = [row_of(regime, stage, ms / (stage - 3), shows_here=stage == 5, folder=HERE.stage(stage).folder)
                    for regime in regimes for stage in (4, 5)]
            return recording(gpu, rows, date=date)

        later = row_of("causal", 5, 0.1, folder=CHILD, shows_here=True)
        with tempfile.TemporaryDirectory() as folder:
            sources = Sources(LAB, Path(folder))
            self.assertEqual(compare.gpus(sources, Page("docs/results.md"), []), "Recorded on one GPU so far.\n")
            for file, record in (("a", whole(SHOWN_GPU, "2026-11-22", 2.0)), ("b", whole("GPU B", "2026-11-24", 1.0)),
                                 ("c", recording("GPU B", [later], date="2026-11-25", kernels={later.folder: "old"}))):
                (Path(folder) / f"{file}.json").write_text(json.dumps(record))
            sources = Sources(LAB, Path(folder))
            self.assertEqual(sources.recorded.hardware.gpu, SHOWN_GPU)  # though the other is newer
            shown = compare.gpus(sources, Page("README.md", HERE.stage(5)), [])
            self.assertIn(f"| unit | {SHOWN_GPU} (over the parent) | GPU B (over the parent) |\n", shown)
            self.assertIn(f"| {CHILD} | causal 2k | TFLOP/s | 275 (2.00x) | 2749* |\n", shown)
            self.assertIn(f"| {CHILD} | decode 2k | TFLOP/s | 275 (2.00x) | 550 (2.00x) |\n", shown)
            self.assertIn("- Recorded on GPU B, 2026-11-25, commit 0123456\n", shown)
            self.assertNotIn("05", compare.gpus(sources, Page("stages/10s.md", part=10), []))
            (Path(folder) / "a.json").unlink()
            self.assertEqual(Sources(LAB, Path(folder)).recorded.hardware.gpu, "GPU B")


class LikeTest(unittest.TestCase):
    def test_the_work_of_any_size_follows_from_two_that_were_counted(self):
        stage = HERE.stage(5)
        for options, row in (("--shape 1,2,2,640,640,64", row_of("x", 5, 1.0, B=1, H=2, Hkv=2, Nq=640, Nk=640, d=64)),
                             ("--shape 1,4,1,1,512,128", row_of("x", 5, 1.0, B=1, H=4, Hkv=1, Nq=1, Nk=512))):
            work = like.work_of(Fields(row, folder=stage.folder), MODEL.counted)
            counted = HERE.work([stage], options)[1][0]
            for name in ("mma", "exponentials", "shared_tile_bytes", "blocks", "global_store_bytes", "launches"):
                self.assertAlmostEqual(work[name], counted[name], msg=f"{name} of {options}")
        self.assertIsNone(like.kind_of(row_of("x", 5, 1.0, Nq=128)))

    def test_a_stage_takes_what_its_busiest_resource_takes(self):
        row = row_of("train", 5, 1.0, folder=CHILD)  # 4 x 128 x 2048^2 x 128 operations
        gpu = MODEL.gpu("A100")
        ms = like.bounds(gpu, row, like.work_of(row, MODEL.counted), False)
        self.assertAlmostEqual(ms["tensor cores"], 4 * 128 * 2048**2 * 128 / 312e9)
        self.assertAlmostEqual(ms["HBM"], 4 * 128 * 2048 * 128 * 2 / 2039e6)
        bound, binding = MODEL.bound(gpu, row)
        self.assertEqual((binding, bound), ("shared memory", ms["shared memory"] + like.LAUNCH_MS))
        lonely = like.work_of(Fields(row, shape=Fields(row.shape, B=1, H=1, Hkv=1)), MODEL.counted)
        self.assertAlmostEqual(like.bounds(gpu, row, lonely, False)["exp2"],  # 32 of 108 multiprocessors
                               like.bounds(gpu, row, lonely, True)["exp2"] * 108 / 32)

    def test_every_ceiling_has_a_source(self):
        for gpu in MODEL.gpus.values():
            self.assertTrue(gpu.sources, gpu.name)
            self.assertTrue(all(source.startswith(("https://", "NVIDIA ")) for source in gpu.sources), gpu.name)
            self.assertLess(gpu.fp16_tflops * 1e6 / gpu.sms / gpu.mhz / 2, 4200)  # multiply-adds of an SM in a clock

    def test_errors_are_within_these_bounds(self):
        """These are what the recordings of two GPUs say, and no better."""
        h100, h200 = MODEL.gpu("h100"), MODEL.gpu("H200")
        for gpu, other in ((h100, h200), (h200, h100)):
            bound, scaled = like.errors(MODEL, gpu, other)
            self.assertGreater(min(len(bound), len(scaled)), 20)
            for found, median, worst in ((bound, 2.0, 17), (scaled, 1.052, 1.2)):
                self.assertLess(statistics.median(factor for factor, _ in found), median)
                self.assertLess(max(found)[0], worst, max(found))
        for row in (row for own in MODEL.recorded.values() for row in own.values()):
            gpu = next(gpu for gpu in MODEL.gpus.values() if gpu.get("recorded_as") == row.gpu)
            same = row.kernel == MODEL.counted.get(row.folder, {}).get("kernel")
            if same and (bound := MODEL.bound(gpu, row)):
                self.assertLess(bound[0], 1.01 * row.timing.median_ms, f"{row.folder}, {long_name(row)}: a lower bound")

    def test_stages_that_a_gpu_cannot_run_are_refused_by_name(self):
        for gpu in ("A100", "RTX4090", "T4", "L4", "B200"):
            rows, without = like.estimates(MODEL, MODEL.gpu(gpu), like.chosen(HERE, ["5", str(HOPPER.number)]), "train")
            self.assertEqual([row["stage"] for row in rows], [CHILD])
            has = MODEL.gpu(gpu).capability
            self.assertEqual(without, [f"{HOPPER.folder} needs exactly compute capability 9.0; {gpu} has {has}"])
        wide = named(HERE, "mbarriers")
        _, without = like.estimates(MODEL, MODEL.gpu("A10"), [wide], "wide")
        self.assertRegex(without[0], f"{wide.folder} needs 192 KB of shared memory for a block at d = 256; A10 has 99 KB")

    def test_a_gpu_is_never_estimated_from_itself(self):
        for gpu, other in (("H100", "NVIDIA H200"), ("H200", "NVIDIA H100 80GB HBM3")):
            rows, _ = like.estimates(MODEL, MODEL.gpu(gpu), [HERE.stage(4)], "train")
            self.assertEqual([row["scaled_from"] for row in rows], [other])

    def test_every_row_says_that_it_is_an_estimate(self):
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "answer.json"
            code, shown, _ = output(like, LAB, "--like", "b200", "4-5", "--json", answer)
            self.assertEqual(code, 0)
            title, lines, _ = shown.split("\n\n", 2)
            self.assertEqual(title, "Estimates for B200:")
            for line in lines.split("\n"):
                self.assertTrue(line.startswith(("estimate ", "not measured")), line)
            self.assertIn("No time in this table was measured on B200", shown)
            self.assertIn("it is taken to be", " ".join(shown.split()))
            self.assertTrue(all(row["estimate"] for row in json.loads(answer.read_text())["estimates"]))
        for words, code, why in (((str(HOPPER.number), "--like", "A100"), 3, f"{HOPPER.folder} needs exactly compute capability 9.0"),
                                 (("--like", "X1"), 2, "no ceilings are known of a GPU 'X1', only of H200, "),
                                 ((str(FREE), "--like", "A100"), 2, f"there is no stage '{FREE}'"),
                                 (("--like", "A100", "--regime", "x"), 2, "there is no regime 'x'")):
            status, shown, said = output(like, LAB, *words)
            self.assertEqual((status, shown, said.count("\n")), (code, "", 1), said)
            self.assertIn(why, said)

    def test_short_names_and_reasons_that_are_said_once(self):
        for name, gpu in (("4090", "RTX4090"), ("rtx-5090", "RTX5090"), ("NVIDIA GeForce RTX 3090", "RTX3090"),
                          ("a10", "A10"), ("l40s", "L40S")):
            self.assertEqual(MODEL.gpu(name).name, gpu)
        _, without = like.estimates(MODEL, MODEL.gpu("4090"), like.chosen(HERE, ["30-32"]), "train")
        self.assertEqual(without, ["30_tma_wgmma, 31_producer_warp, 32_ping_pong need exactly compute capability 9.0; "
                                   "RTX4090 has 8.9"])

    def test_a_shape_of_one_s_own(self):
        """As the recording of it where there is one, and by the counted work elsewhere."""
        stage, gpu = [HERE.stage(5)], MODEL.gpu("A100")
        recorded, _ = like.estimates(MODEL, gpu, stage, "train")
        for row in recorded:
            asked, without = like.estimates(MODEL, gpu, stage, shape=tuple(row["shape"].values()), causal=row["causal"])
            self.assertEqual(([each["bound_ms"] for each in asked], without), ([row["bound_ms"]], []))
        (row,), _ = like.estimates(MODEL, gpu, stage, shape=(3, 5, 5, 1152, 1152, 64), causal=True)
        self.assertIsNone(row["scaled_ms"])
        self.assertAlmostEqual(row["rate"], 4 * 15 * 64 * 1152**2 / 2 / row["bound_ms"] / 1e9)
        rows, without = like.estimates(MODEL, gpu, stage, shape=(1, 5, 5, 100, 1152, 64))
        self.assertEqual(rows, [])
        self.assertIn("05_causal_skip was not counted at such sizes", without[0])

    def test_what_is_fastest_on_a_gpu_that_was_not_timed(self):
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "answer.json"
            for problem in ("train", "8,16,16,2048,2048,128"):
                code, shown, _ = output(like, LAB, "--for", problem, "--like", "4090", "--json", answer)
                rows = json.loads(answer.read_text())["estimates"]
                first = [row for row in rows if row["problem"] == rows[0]["problem"]]
                ms = [row["scaled_ms"] for row in first if row["scaled_ms"]]
                self.assertEqual((code, ms), (0, sorted(ms)))
                self.assertGreater(len(ms), 10)
                self.assertFalse([row for row in rows if HERE.stage(int(row["stage"][:2])).capability])
        for words, why in ((("--for", "x", "--like", "4090"), "there is no regime 'x'"),
                           (("--for", "1,2", "--like", "4090"), "shape '1,2': expected six sizes"),
                           (("--for", "train", "--causal", "--like", "4090"), "--causal goes with a shape")):
            code, shown, said = output(like, LAB, *words)
            self.assertEqual((code, shown, said.count("\n")), (2, "", 1), said)
            self.assertIn(why, said)

    def test_several_problems_have_their_five_fastest_stages(self):
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "answer.json"
            code, shown, _ = output(like, LAB, "--for", "decode", "--like", "3090", "--json", answer)
            rows = json.loads(answer.read_text())["estimates"]  # all of them
        printed = [line for line in shown.splitlines() if line.startswith("estimate ")]
        problems = {row["problem"] for row in rows}
        self.assertEqual((code, len(printed)), (0, 5 * len(problems)))
        self.assertGreater(len(rows), len(printed))
        self.assertIn(f"{len(rows) - len(printed)} rows are not", " ".join(shown.split()))
        shape = ",".join(str(rows[-1]["shape"][size]) for size in ("B", "H", "Hkv", "Nq", "Nk", "d"))
        self.assertIn(f"./lab list --for {shape} --like 3090", " ".join(shown.split()))
        _, shown, _ = output(like, LAB, "--for", shape, "--like", "3090")
        self.assertGreaterEqual(shown.count("\nestimate "), len(rows) // len(problems))

    def test_estimates_fit_a_terminal_of_80_columns(self):
        """A row each in one line, also where some stages have TFLOP/s and others GB/s."""
        code, shown, _ = output(like, LAB, "0-6", "16", "--like", "4090")
        self.assertEqual((code, shown.count("Estimates for RTX4090, ")), (0, 2))
        rows, _ = like.estimates(MODEL, MODEL.gpu("4090"), like.chosen(HERE, ["0-6", "16"]))
        for unit in ("TFLOP/s", "GB/s"):
            own = [row for row in rows if row["unit"] == unit]
            lines = plain_table(*like.table_of(own, unit), 80).splitlines()
            self.assertLessEqual(max(map(len, lines)), 80)
            self.assertEqual(len(lines), len(own) + 2)

    def test_tables_fit_a_terminal(self):
        columns, rows = ["problem", "stage", ">ms, scaled", "why"], [["train 2k", "05_causal_skip", "0.123", "one two three"]]
        self.assertEqual(plain_table(columns, rows),
                         "problem   stage           ms, scaled  why\ntrain 2k  05_causal_skip       0.123  one two three\n")
        self.assertEqual(plain_table(columns, rows, 44),
                         "problem   stage              ms,  why\n"
                         "                          scaled\n"
                         "train 2k  05_causal_skip   0.123  one two\n"
                         "                                  three\n")

    def test_which_gpu_runs_what(self):
        runs = lambda gpu, number: MODEL.runs_at(MODEL.gpu(gpu), HERE.stage(number))
        self.assertEqual((runs("H100", 36), runs("B200", 36), runs("B200", 17)), ([64, 128, 256], [], [64, 128, 256]))
        self.assertEqual((runs("A100", 26), runs("T4", 26), runs("T4", 21)), ([64, 128], [], [64, 128]))
        self.assertIn("needs mbarriers, which compute capability 8.0 has; T4 has 7.5", MODEL.why_not(MODEL.gpu("T4"), HERE.stage(26)))
        rows = {row["capability"]: row for row in cells(needs.needs(HERE, None, []))}
        self.assertEqual([*rows], ["12.0", "10.0", "9.0", "8.9", "8.6", "8.0", "7.5"])
        self.assertEqual(rows["9.0"]["not at all"], "")
        of_t4 = needs.needs(HERE, None, ["T4"])
        for how, number in (("up to d = 128", "21 to 25"), ("not at all", "12 to 17, 26, 30 to 39")):
            self.assertRegex(of_t4, f"- {how}: .*{number}")

    def test_what_was_counted_is_counted_anew_only_for_a_new_kernel(self):
        sources = Sources(LAB)
        asked = []
        sources.listed = HERE.listed
        sources.ask = lambda *words: asked.append(words) or {
            "work": [{"counter": "mma", words[1]: 7}], "counters": ["mbarrier_arrivals"],
            "traces": [{"launches": [{"shared_bytes": 5}, {"shared_bytes": 9}], "total": [1]}]}
        sources.stages[5].fingerprint = "new"
        made = json.loads(like.counted_work(sources))
        self.assertEqual(made[CHILD]["kernel"], "new")
        self.assertEqual(made[CHILD]["work"]["decode"], 2 * [[0] * 6 + [7, 0, 0, 0]])
        self.assertEqual((made[CHILD]["shared"], made[CHILD]["mbarriers"]), ({"64": 9, "128": 9}, True))
        self.assertIn(("count", CHILD, "--shape", "1,1,1,768,768,64", "--causal", "--long"), asked)
        same = {folder for folder in made if MODEL.counted[folder].kernel == HERE.stage(int(folder[:2])).fingerprint}
        self.assertFalse((same - {CHILD}) & {words[1] for words in asked})
        self.assertEqual({folder: made[folder] for folder in same - {CHILD}},
                         {folder: MODEL.counted[folder] for folder in same - {CHILD}})


if __name__ == "__main__":
    unittest.main()
