#!/usr/bin/env python3
"""Tests what holds predictions and published numbers to the recordings. Usage: test_predictions.py LAB"""

import copy
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs/publish"), str(ROOT / "tests")]
sys.dont_write_bytecode = True

import found  # noqa: E402
import predictions  # noqa: E402
import published  # noqa: E402
import quantities  # noqa: E402
import reading  # noqa: E402
import spans  # noqa: E402
from blocks import Failure, Page  # noqa: E402
from markdown import without_spans  # noqa: E402
from sample_records import cells, derived, fields, peer_of, row_of  # noqa: E402
from sources import Sources  # noqa: E402

LAB = sys.argv.pop() if len(sys.argv) > 1 else ROOT / "build/lab"
HERE = Sources(LAB)


class PublishedTest(unittest.TestCase):
    def test_published_numbers_stand_beside_what_the_recordings_say(self):
        sources = Sources(LAB)
        sources.recorded = copy.deepcopy(HERE.recorded)
        # The papers' "1.7 to 1.8x": 05 without a mask over 05 with one.
        for without_mask, verdict in ((1.75, "same"), (1.6, "same"), (1.5, "less"), (2.0, "more")):  # within a tenth
            for row in sources.recorded.rows:
                if row.stage == 5 and row.timing:
                    row.timing["median_ms"] = 1 if row.causal else without_mask
            row = next(row for row in cells(published.published_table(sources)) if row["here"].endswith("x (05)"))
            self.assertEqual((row["here"], row["verdict"]), (f"{without_mask:.2f}x (05)", verdict))
        sources.recorded["rows"] = []
        with self.assertRaisesRegex(Failure, "FlashAttention-1 over standard attention: no recording has it") as caught:
            published.published_table(sources)
        self.assertEqual(caught.exception.code, 3)

    def test_every_section_is_on_the_page(self):
        page = (ROOT / "docs/claimed_and_measured.md").read_text(encoding="utf-8")
        titles = re.findall(r"^## (.*)", page, re.M)
        anchors = {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}
        data = json.loads((ROOT / "docs/publish/published.json").read_text(encoding="utf-8"))
        self.assertLessEqual(set(data["sections"]), anchors)


def timed_here(own_ms=1.0):
    """Sources of one recording: 04 and 05 under two causal masks, with a peer."""
    rows = [row_of("causal", stage, ms, causal=True, Nk=n, Nq=n, shows_here=stage == 5, folder=HERE.stage(stage).folder)
            for n, fast in ((2048, own_ms), (16384, 1.6)) for stage, ms in ((4, 2.0), (5, fast))]
    results = derived(rows, [peer_of(rows[1], "cuDNN", 0.5)])
    results["hardware"]["gpu"] = "NVIDIA H200"
    results["kernels"] = fields({HERE.stage(stage).folder: HERE.stage(stage).fingerprint for stage in (4, 5)})
    sources = copy.copy(HERE)
    sources.timings, sources.recorded, sources.kept = [results], results, {}
    return sources


class FoundTest(unittest.TestCase):
    def test_the_fastest_stage_stands_beside_the_fastest_library(self):
        row, = cells(found.found_block(timed_here(), Page("docs/results.md"), []))
        self.assertEqual((row["problem"], row["fastest stage"][1:3], row["over the fastest library"]), ("causal 16k", "05", "not timed"))
        sources = timed_here()
        sources.recorded["peers"] = [peer_of(sources.recorded.rows[3], name, ms, rate=1) for name, ms in
                                     (("cuDNN", 0.8), ("FlashAttention-2", 3.2), ("unfused", 0.1))]
        row, = cells(found.found_block(sources, Page("docs/results.md"), []))
        self.assertEqual((row["over the fastest library"], row["over FlashAttention-2"]), ("0.50x (cuDNN)", "2.00x"))

    def test_a_regime_s_own_run_comes_before_that_of_all_stages(self):
        self.assertIs(HERE.anew("backward"), HERE.record("h200-backward"))
        self.assertIs(found.problem_of(HERE, "backward")[1], HERE.record("h200-backward"))
        self.assertIs(found.problem_of(HERE, "train")[1], HERE.recorded)
        for regime in ("train", "gradients"):  # without one; a sweep, which the run of all stages has not
            self.assertIsNone(HERE.anew(regime), regime)


class QuantitiesTest(unittest.TestCase):
    def test_what_words_mean(self):
        sources, stage = timed_here(), HERE.stage(5)
        for words, shown in (("over parent, causal 2k", "2.00x"), ("over 04, causal", "1.25x to 2.00x"),
                             ("most over 04, causal, 1 digit", "2.0x"), ("mean over 04, causal", "1.58x"), ("gain over parent, causal 16k", "25%"),
                             ("loss over cuDNN, causal 2k", "50%"), ("longer than cuDNN, causal 2k", "100%"),
                             ("ms of 04, causal 2k", "2.000 ms"), ("us, causal 2k", "1000 us"), ("ms of cuDNN, causal 2k", "0.500 ms"),
                             ("ms, causal", "1.000 to 1.600 ms"), ("ms, causal 16k / ms, causal 2k", "1.60x"),
                             ("over 04, causal, on NVIDIA H200", "1.25x to 2.00x"), ("over 04, N=2k B=8", "2.00x"),
                             ("counter tiles over parent", "x0.5625"), ("counter masked tiles", "16")):
            self.assertEqual(str(quantities.find(sources, stage, words)), shown, words)
        for words in ("over 04, train 2k", "over 03, causal 2k", "over cuDNN, causal 16k", "ms, causal 2k, on NVIDIA H100"):
            self.assertIsNone(quantities.find(sources, stage, words), words)
        for words, why in (("speed, causal 2k", "is not QUANTITY"), ("mean ms, causal", "only ratios"), ("over, causal 2k", "is not QUANTITY"),
                           ("ms, causal / ms, causal 2k", "no ratio of two numbers"), ("counter tulips", "no counter 'tulips'")):
            with self.assertRaisesRegex(Failure, why):
                quantities.find(sources, stage, words)
        with self.assertRaisesRegex(Failure, "must say of which"):
            quantities.find(sources, None, "ms, causal 2k")

    def test_spans_are_filled_and_false_ones_refused(self):
        page = Page("stages/05_causal_skip/README.md", HERE.stage(5))
        text = 'It is <data value="over\nparent, causal 2k">9x</data> as fast, in JSON <data value=\\"ms, causal 2k\\"></data>.'
        shown = spans.filled(timed_here(), page, text)
        self.assertEqual(shown, 'It is <data value="over\nparent, causal 2k">2.00x</data> as fast, in JSON '
                                '<data value=\\"ms, causal 2k\\">1.000 ms</data>.')
        self.assertEqual(without_spans(shown), "It is 2.00x as fast, in JSON 1.000 ms.")
        for words, said in (("over 54_lpt_order", "2.69x"), ("over 51 of 54_lpt_order", "1.01x")):  # which left the ladder
            words += ", d=128 N=2049 B=3 H=5 Hkv=1 causal, in h200-gradients-odd-rungs"
            self.assertEqual(str(quantities.find(HERE, HERE.stage(55), words)), said)
        for words, said in (("over parent of 05, causal 2k", "1.85x"), ("over parent of 25, causal 2k", "at most 1.13x"),
                            ("over parent of 25, causal 2k, from a trial", "1.06x")):
            self.assertEqual(without_spans(spans.filled(HERE, page, f'<data value="predicted {words}"></data>')), said)
        for words, why in (("loss over parent, causal 2k", "it is no loss"), ("over parent, train 2k", "no recording has"),
                           ("predicted over parent of 05, causal 3k", "no recording has 'predicted"),
                           ("dance", "stages/05_causal_skip/README.md: 'dance' is not")):
            with self.assertRaisesRegex(Failure, why):
                spans.filled(timed_here(), page, f'<data value="{words}"></data>')


class PredictionsTest(unittest.TestCase):
    def row(self, value=2.0, **changes):
        return {"problem": "causal 2k", "quantity": "over parent", "value": value, "gpu": "NVIDIA H200",
                "date": "2026-11-21", "kind": "derived"} | changes

    def test_verdicts(self):
        for value, values, judged in ((2.0, [2.04], "as predicted"), (2.0, [2.06], "3% more"), (2.0, [2.2], "10% more"), (2.0, [1.0, 2.0], "50% less to as predicted"),
                                      ([1, 2], [1.5], "as predicted"), ([1, 2], [2.2], "10% more"), ([None, 2], [1.0], "as predicted"),
                                      ([2, None], [1.0], "50% less"), (2.0, [2.2, 2.4], "10% more to 20% more")):
            self.assertEqual(predictions.verdict(self.row(value), values), judged)
        self.assertEqual(predictions.verdict(self.row(2.0, quantity="ms"), [2.2]), "10% longer")

    def test_what_was_measured(self):
        sources, stage = timed_here(), HERE.stage(5)
        for changes, shown in (({}, ("2.00x", "as predicted")), ({"gpu": "NVIDIA H100"}, ("2.00x (H200)", "as predicted")),
                               ({"problem": "train 2k"}, ("", "")), ({"parent": 3}, ("", "")),
                               ({"quantity": "clocks", "not_measured": "no counter has them"}, ("no counter has them", "")),
                               ({"quantity": "time of both", "recorded": "ms, causal 16k / ms, causal 2k"}, ("1.60x", "20% less"))):
            self.assertEqual(predictions.measured(sources, stage, self.row(**changes))[:2], shown, changes)
        self.assertEqual([predictions.predicted(self.row(value, quantity=quantity)) for value, quantity in
                          ((1.8, "over 04"), ([1.05, 1.4], "over 04"), ([None, 1.5], "ms"), ([7, None], "TFLOP/s"),
                           (0.75, "counter mma over parent"), ("unchanged", "error"))],
                         ["1.80x", "1.05x to 1.40x", "at most 1.5 ms", "at least 7 TFLOP/s", "x0.75", "unchanged"])

    def test_in_sight_is_what_was_first_predicted_of_what_was_measured(self):
        page, kept = Page("stages/05_causal_skip/README.md", HERE.stage(5)), predictions.of_stage
        rows = [self.row(1.8, **{"from": "33 / 64"}), self.row(2.0, kind="fitted afterwards", date="2026-11-22", **{"from": "a model"}),
                self.row(1.3, problem="causal 16k"), self.row(3.0, problem="train 2k", not_measured="that form is gone")]
        predictions.of_stage = lambda stage: rows
        try:
            shown = [block(timed_here(), page, ()).split("<details>") for block in (predictions.prediction_block, predictions.verdict_block)]
            self.assertEqual([cells(sight) for sight, _ in shown], [
                [{"problem": "causal 2k", "over 04, predicted": "1.80x"}, {"problem": "causal 16k", "over 04, predicted": "1.30x"}],
                [{"problem": "causal 2k", "over 04, predicted": "1.80x", "measured": "2.00x", "verdict": "11% more"},
                 {"problem": "causal 16k", "over 04, predicted": "1.30x", "measured": "1.25x", "verdict": "4% less"}]])
            self.assertIn("<summary>Where each comes from, and 2 more</summary>", "<details>".join(shown[0]))
            self.assertIn("33 / 64", shown[0][1])
            for part in ("<summary>When it was recorded, 1 more prediction and what was not measured</summary>", "2.00x | fitted afterwards | 2.00x",
                         "Not measured (that form is gone): train 2k: over 04."):
                self.assertIn(part, "<details>".join(shown[1]))
            del rows[:3]
            self.assertIn("| train 2k | 3.00x |", predictions.prediction_block(timed_here(), page, ()).split("<details>")[0])
        finally:
            predictions.of_stage = kept

    def test_many_that_were_not_measured_are_counted(self):
        self.assertEqual([predictions.named(list("abcdefgh"[:n])) for n in (2, 6, 7)],
                         ["a; b", "a; b; c; d; e; f", "7 of the predictions above"])


class ReadingTest(unittest.TestCase):
    BLOCK = ("<!-- generated: verdict -->\n\n| problem | measured | verdict |\n|---|---:|---|\n| causal 2k | {} | {} |\n<!-- end -->\n"
             "<details><summary>x</summary>\n\n<!-- generated: peers -->\n| a | b |\n|---|---|\n| c | 1.00x |\n<!-- end -->\n</details>\n"
             'It is <data value="ms, causal 2k">{}</data>.')

    def test_lessons_whose_numbers_have_changed_are_named(self):
        old = self.BLOCK.format("1.97x", "as predicted", "0.575 ms")
        self.assertEqual(reading.seen(old), {"verdict: causal 2k": {"measured": "1.97x", "verdict": "as predicted"},
                                             "spans": {"ms, causal 2k": "0.575 ms"}})
        with tempfile.TemporaryDirectory() as folder:
            kept, reading.path_of = reading.path_of, lambda name: Path(folder) / name
            try:
                self.assertEqual(reading.changed("05", old), [])  # never read so
                reading.stamp("05", old)
                for new, changes in (((old), []), (self.BLOCK.format("1.98x", "as predicted", "0.576 ms"), []),
                                     (self.BLOCK.format("1.75x", "11% less", "0.575 ms"),
                                      ["verdict: causal 2k, measured: 1.97x, now 1.75x",
                                       "verdict: causal 2k, verdict: as predicted, now 11% less"]),
                                     (old.replace("causal 2k |", "causal 4k |"),
                                      ["verdict: causal 2k is gone", "verdict: causal 4k is new"])):
                    self.assertEqual(reading.changed("05", new), changes)
            finally:
                reading.path_of = kept


if __name__ == "__main__":
    unittest.main()
