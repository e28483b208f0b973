#!/usr/bin/env python3
"""Tests what is made of all recordings together: the parts' tables, the fastest stages. Usage: test_parts.py LAB"""

import copy
import json
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs/publish"), str(ROOT / "tests")]
sys.dont_write_bytecode = True

import errors  # noqa: E402
import fastest  # noqa: E402
import found  # noqa: E402
import parts  # noqa: E402
import peer_tests  # noqa: E402
import replaced  # noqa: E402
from blocks import Page  # noqa: E402
from records import Fields, by_problem  # noqa: E402
from sample_records import cells, derived, fields, row_of  # noqa: E402
from sources import SHOWN_GPU, Sources  # noqa: E402

LAB = sys.argv.pop() if len(sys.argv) > 1 else ROOT / "build/lab"
HERE = Sources(LAB)
SIX = HERE.stage(6).folder


class FastestTest(unittest.TestCase):
    def test_times_of_the_newest_recordings_come_first_and_wrong_answers_not_at_all(self):
        def write(file, date, *rows):
            made = {"date": f"{date}T07:52:00Z", "kernels": {SIX: "0123", "16_stage": "4567"}}
            (folder / file).write_text(json.dumps(derived(list(rows)) | made))

        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            wrong = row_of("few-rows", 3, 0.5)
            wrong["verified"] = False
            write("x-few-rows.json", "2026-02-03", row_of("few-rows", 6, 1.02, folder=SIX), row_of("few-rows", 5, 1.000049), wrong,
                  row_of("few-rows", 16, 0.1), row_of("few-rows", 5, 3.0, Nq=4))  # there is no such stage any more
            write("y-few-rows.json", "2026-02-04", row_of("few-rows", 5, 2.0))
            write("x-serving-odd.json", "2026-02-05", row_of("serving-odd", 5, 3.0))
            write("x-prefix.json", "2026-02-05", row_of("prefix", 6, 3.0, folder=SIX, features={"pages": 16, "prefix": 64}))
            write("x-prefill.json", "2026-02-06", row_of("prefill", 4, 0.1))  # none that decides
            made = json.loads(fastest.fastest(Sources(LAB, folder)))
        self.assertEqual([each["file"] for each in made["recordings"]],
                         ["y-few-rows.json", "x-few-rows.json", "x-serving-odd.json", "x-prefix.json"])
        self.assertEqual(made["recordings"][1], {"file": "x-few-rows.json", "gpu": "Test GPU", "date": "2026-02-03",
                                                 "kernels": {SIX: "0123"}})
        self.assertEqual([(each["recording"], each["shape"][3]) for each in made["problems"]],
                         [(0, 2048), (1, 2048), (1, 4), (2, 2048), (3, 2048)])
        self.assertEqual(made["problems"][1], {
            "recording": 1, "shape": [8, 16, 16, 2048, 2048, 128], "pass": "forward", "dtype": "bf16", "causal": False,
            "median_ms": {"05_stage": 1.0, SIX: 1.02}})
        self.assertEqual(made["problems"][4]["features"], {"pages": 16, "prefix": 64})
        self.assertEqual((made["timed"], made["profiled"]), ({SIX: ["0123"]}, {}))


class OfTodayTest(unittest.TestCase):
    def test_rows_of_a_stage_that_is_no_more_are_left_out_and_those_of_one_with_another_name_get_it(self):
        def listed(number, name, parent, formerly=None, shows_in="train"):
            return SimpleNamespace(number=number, folder=f"{number:02}_{name}", parent=parent, formerly=formerly,
                                   shows_in=shows_in)

        sources = Sources(LAB)
        sources.stages = {stage.number: stage for stage in (
            listed(0, "stage", -1, shows_in="long"), listed(1, "both", 0, "02_stage"), listed(3, "stage", 1))}
        rows = [row_of("train", stage, 8.0 / 2 ** stage) for stage in range(5)]
        rows[4]["folder"] = "mine"  # a student's, of which a recording has no fingerprint
        of_then = derived(rows, kernels=fields({f"{stage:02}_stage": str(stage) for stage in range(4)}))
        self.assertEqual([row.over_parent and row.over_parent.value for row in of_then.rows], [None, 2.0, 2.0, 2.0, 2.0])
        today = sources.of_today(of_then)
        self.assertEqual([(row.stage, row.folder, row.parent, row.over_parent and row.over_parent.value) for row in today.rows], [
            (0, "00_stage", -1, None), (1, "01_both", 0, 4.0), (3, "03_stage", 1, 2.0), (4, "mine", 3, 2.0)])
        self.assertEqual(today.kernels, {"00_stage": "0", "01_both": "2", "03_stage": "3"})
        self.assertEqual([row.shows_here for row in today.rows], [False, True, True, False])  # by what it declares now
        problem, = by_problem(today)
        self.assertEqual((problem.left_row("01_stage").timing.median_ms, problem.left_row("02_stage")), (4.0, None))

    def test_a_kernel_that_left_stands_for_the_stage_that_has_its_types_where_that_was_not_timed(self):
        sources, left, now = Sources(LAB), "98_tile_gradients", "97_any_mask_gradients"
        sources.stages = {97: SimpleNamespace(number=97, folder=now, parent=66, formerly=None, shows_in="backward-scores")}

        def read_today(rows):
            folders = {row["folder"] for row in rows}
            return sources.of_today(derived(rows, kernels=fields({folder: folder[:2] for folder in sorted(folders)})))

        def rows_of(regime, *folders):
            return [Fields(row_of(regime, int(folder[:2]), 2.0), folder=folder) for folder in folders]

        alone = read_today(rows_of("backward-tiles", left))
        self.assertEqual(([(row.stage, row.folder) for row in alone.rows], alone.kernels), ([(97, now)], {now: "98"}))
        both = read_today(rows_of("backward-tiles", left, now))
        self.assertEqual(([(row.stage, row.folder) for row in both.rows], both.kernels), ([(97, now)], {now: "97"}))
        self.assertEqual(read_today(rows_of("backward", left)).rows, [])  # another mask's problem

    def test_a_kernel_that_left_and_its_successor_are_compared(self):
        shown = replaced.replaced(Sources(LAB), None, ["h200-backward-tiles-types"])
        self.assertTrue(shown.startswith("Recorded on NVIDIA H200, 2026-11-30, commit fb9e73a"))
        self.assertIn("| backward-tiles causal 8k | 98_tile_gradients | 2.390 | 2.395 | 1.00x | ", shown)
        self.assertIn("1.10x FlashAttention-4, 1.55x flex |\n", shown)

    def test_of_several_runs_the_one_with_most_libraries_says_how_fast_a_stage_is(self):
        problem, _ = found.problem_of(Sources(LAB), "backward-tiles")
        self.assertEqual({peer.peer for peer in found.libraries_in(problem)}, {"FlashAttention-4", "flex"})


class PeerTestsTest(unittest.TestCase):
    def test_a_sentence_for_each_record(self):
        record = {"kind": "peer-tests", "project": "P", "project_commit": "abcdefgh", "passed": 1200, "failed": 3,
                  "collected": 20000, "skipped": 0, "gpu": "Test GPU",
                  "left_out": {"of few": 7, "not drawn": 790, "of many": 18000},
                  "date": "2026-11-21T07:52:00Z", "commit": "0123456789", "torch": "2.7"}
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(peer_tests.peer_tests(Sources(LAB, Path(folder))), "")
            (Path(folder) / "x-peer-tests.json").write_text(json.dumps(record))
            self.assertEqual(peer_tests.peer_tests(Sources(LAB, Path(folder))), (
                "The P project's own tests (at abcdefg) pass with the default stages, 1,200 of 1,203, drawn from 1,993, on "
                "Test GPU (2026-11-21, commit 0123456, PyTorch 2.7; `tests/peer_tests.sh CHECKOUT`). Of its 20,000 tests, "
                "the others need what no stage took then: of many (18,000), of few (7).\n"))
            record.update(skipped=5000, each_alone={"a cache": 60, "packed sequences": 5})
            (Path(folder) / "x-peer-tests.json").write_text(json.dumps(record))
            self.assertIn("drawn from 1,993, 65 of these with a call for each document or request, on Test GPU",
                          said := peer_tests.peer_tests(Sources(LAB, Path(folder))))
            self.assertIn("Of its 20,000 tests, 5,000 skip themselves, and the others need", said)


class ErrorsTest(unittest.TestCase):
    def test_of_normal_inputs_and_of_all(self):
        error = {"stage": "01", "dtype": "fp16", "input": "normal", "max_error": 1e-3, "standard_max_error": 2e-3,
                 "relative_l2": 3e-4}
        sources = Sources(LAB)
        sources.kept["h200-verify"] = fields({
            "kind": "verification", "device": "Test GPU", "date": "2026-11-21T07:52:00Z", "commit": "0123456789",
            "errors": [error, error | {"input": "huge", "max_error": 8, "standard_max_error": 9, "relative_l2": 1e-4}]})
        shown = errors.errors_block(sources)
        self.assertTrue(shown.startswith("Recorded on Test GPU, 2026-11-21, commit 0123456:\n"))
        self.assertIn("| 01 | 1.0e-03 | 2.0e-03 | 3.0e-04 | | | |", shown)
        self.assertIn("| 01 | 8.0e+00 | 9.0e+00 | 3.0e-04 | | | |", shown)


class PartsTest(unittest.TestCase):
    def test_speedups_where_they_show(self):
        rows = [row_of("causal", stage, ms, causal=True, Nk=n, shows_here=True, folder=HERE.stage(stage).folder)
                for n, fast in ((2048, 1.0), (4096, 0.8)) for stage, ms in ((4, 2.0), (5, fast))]
        elsewhere = [Fields(row, regime="long", shows_here=False) for row in rows[:2]]
        elsewhere[1]["timing"] = fields({"median_ms": 0.1})
        for timed, shown in ((rows + elsewhere, "2.00x to 2.50x (causal)"), (rows[:2], "2.00x (causal)")):
            sources = copy.copy(HERE)
            sources.recorded, sources.timings = derived(timed), []
            rungs = cells(parts.ladder(sources, Page("stages/README.md"), []))
            gained = {row["stage"][:3]: row["over its parent"] for row in rungs}
            self.assertEqual((gained["[05"], gained["[06"]), (shown, "(decode)"))
            numbers = [int(row["stage"][1:3]) for row in rungs if row["stage"].startswith("[")]
            self.assertEqual(numbers, list(HERE.stages))  # every stage, once, in the order in which they are read

    def test_a_stage_that_the_parts_recording_has_not_where_it_shows_has_another_recordings_speedup(self):
        whole = derived([row_of("train", 82, 1.0, folder=HERE.stage(82).folder)])
        rows = [row_of("decode", stage, ms, Nq=1, parent=81, shows_here=True, folder=HERE.stage(stage).folder)
                for stage, ms in ((81, 2.0), (82, 1.0))]
        other = derived(rows, kernels=fields({HERE.stage(82).folder: HERE.stage(82).fingerprint}))
        other["hardware"]["gpu"] = SHOWN_GPU
        for kernels, marked in ((other["kernels"], False), (fields({HERE.stage(82).folder: "another"}), True)):
            sources = copy.copy(HERE)
            sources.recorded, sources.timings, other["kernels"] = whole, [other], kernels
            gained, ((made, _),) = parts.speedups(sources, whole, [HERE.stage(82)])
            self.assertEqual((gained, "since then changed: 82" in made), ({82: "2.00x (decode)"}, marked))

    def test_numbers_in_ranges(self):
        for stages, shown in (((4, 5), "04, 05"), ((4, 5, 6, 10), "04 to 06, 10"), ((80, 81, 82, 83, 85), "80 to 83, 85"),
                              ((90, 91, 92, 93, 94, 79), "90 to 94, 79")):
            self.assertEqual(parts.numbers_of(HERE, [HERE.stage(number) for number in stages[::-1]]), shown)

    def test_a_stage_that_was_changed_has_the_speedup_of_its_lesson(self):
        def recorded(fast, day, **kernels):
            rows = [row_of("causal", stage, ms, causal=True, Nk=2048, shows_here=True, folder=HERE.stage(stage).folder)
                    for stage, ms in ((3, 4.0), (4, 2.0), (5, fast))]
            prints = {HERE.stage(n).folder: HERE.stage(n).fingerprint for n in (4, 5)}
            return derived(rows, date=f"2026-11-{day}T00:00:00Z", kernels=fields(prints | kernels))

        changed = {HERE.stage(5).folder: "another"}
        for old, cell, says in ((recorded(1.0, 1), "2.00x (causal)", False),
                                (recorded(1.0, 1, **changed), "2.50x (causal)", True)):
            sources = copy.copy(HERE)
            sources.recorded, sources.timings = old, [old, recorded(0.8, 2)]
            shown = parts.part(sources, Page("stages/00s_x.md", part=0), [])
            self.assertEqual([row["over its parent"] for row in cells(shown) if row["stage"].startswith("[05")], [cell])
            self.assertEqual(" 05 on " in shown.split("|")[0], says)


if __name__ == "__main__":
    unittest.main()
