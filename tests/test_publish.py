#!/usr/bin/env python3
"""Tests what makes tables of the recordings. Usage: test_publish.py LAB"""

import json
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("docs/publish", "tests", "harness/time")]
sys.dont_write_bytecode = True

import counters  # noqa: E402
import errors  # noqa: E402
import fastest  # noqa: E402
import nsight  # noqa: E402
import package  # noqa: E402
import peers  # noqa: E402
import profiles  # noqa: E402
import quantities  # noqa: E402
import stale  # noqa: E402
import tables  # noqa: E402
import times  # noqa: E402
from blocks import NOT_RECORDED, Failure, Page  # noqa: E402
from markdown import human_bytes, table  # noqa: E402
from records import Fields, label  # noqa: E402
from sample_records import cells, derived, fields, free_number, named, peer_of, row_of, sample  # noqa: E402
from sources import PROFILES, SHOWN_GPU, Sources  # noqa: E402

LAB = sys.argv.pop() if len(sys.argv) > 1 else ROOT / "build/lab"
HERE = Sources(LAB)
PARENT, CHILD, MERGES = (HERE.stage(number).folder for number in (3, 4, 6))
FREE = free_number(HERE)


class MarkdownTest(unittest.TestCase):
    def test_bars_and_line_ends_do_not_end_a_cell(self):
        self.assertEqual(table(["a", ">b"], [["x|y", "1\n2"], [""]]), "| a | b |\n|---|---:|\n| x\\|y | 1 2 |\n| | |\n")

    def test_bytes(self):
        self.assertEqual([human_bytes(n) for n in (0, 1023, 1536, 50331648)], ["0 B", "1023 B", "1.5 KiB", "48 MiB"])


def link(stage):
    return f"[{stage.number}](../stages/{stage.folder}/README.md)"


class PackageTest(unittest.TestCase):
    def test_what_combines_is_what_stages_take(self):
        shown = package.features(HERE, Page("docs/python.md"))
        bounds, on_hopper = (stage for stage in HERE.stages.values()
                             if stage.takes == ("window", "columns") and not stage.backward)
        dropping = next(stage for stage in HERE.stages.values()
                        if "dropout" in stage.takes and stage.backward and 64 in stage.head_dims)
        self.assertIn(f"| `window`, `columns` | {link(bounds)} (64, 128), [{on_hopper.number}](", shown)
        self.assertIn(f"README.md) (64, 128, 256) | {link(dropping)} (64, 128), [", shown)
        everything = next(stage for stage in HERE.stages.values() if {"columns", "tiles"} <= {*stage.takes})
        rows = [line for line in shown.splitlines() if f"| [{everything.number}]" in line]  # where nothing else is chosen
        self.assertEqual([[mask for mask in ("`columns`", "`cu_seqlens_q`", "`tiles`") if mask in row] for row in rows],
                         [["`columns`"], ["`cu_seqlens_q`"], ["`tiles`"], ["`cu_seqlens_q`"]])
        gradients = next(line for line in shown.splitlines() if "`cu_seqlens_q`" in line and "`sinks`" in line and
                         "`dropout_p`" in line).split("|")[3]
        self.assertEqual(gradients, " no stage ")  # what the last of these rows has without dropout
        for stage in HERE.stages.values():
            if "ranks" in stage.takes:
                self.assertNotIn(f"[{stage.number}]", shown)


class PageTest(unittest.TestCase):
    def test_blocks_are_made_anew_and_nothing_else(self):
        page, opening = Page("docs/some.md"), "<!-- generated: some words -->\n"
        with patch.dict(tables.BLOCKS, some=lambda _, page, words: f"new {page.path} {words}\n"):
            text = tables.regenerated(HERE, page, f"before\n{opening}old\n<!-- end -->\nafter {opening}<!-- end -->\n")
        block = f"{opening}new docs/some.md ['words']\n<!-- end -->\n"
        self.assertEqual(text, f"before\n{block}after {block}")

    def test_what_makes_no_sense_is_named(self):
        for name, why in (("dance", "there is no generated block 'dance' here"),
                          ("measured", "no generated block 'measured'"),
                          ("moved x", "no numbers in 'x'"), (f"counters 1 {FREE}", f"there is no stage {FREE}"),
                          ("record nothing", "cannot read"),
                          ("peers h200-rising", "h200-rising.json has no peers")):
            with self.assertRaisesRegex(Failure, why):
                tables.regenerated(HERE, Page("docs/some.md"), f"<!-- generated: {name} -->\n<!-- end -->")
        with self.assertRaisesRegex(Failure, "docs/some.md: a generated block has no <!-- end -->"):
            tables.regenerated(HERE, Page("docs/some.md"), "<!-- generated: times -->\n")

    def test_links_of_a_page(self):
        self.assertEqual(Page("README.md").link("docs/plots/x.svg"), "docs/plots/x.svg")
        self.assertEqual(Page("stages/10s_x.md").link("stages/04/README.md"), "04/README.md")
        self.assertEqual(Page("stages/04/README.md").link("docs/plots/x.svg"), "../../docs/plots/x.svg")

    def test_a_record_that_is_torn_or_of_another_kind(self):
        with tempfile.TemporaryDirectory() as folder:
            sources = Sources(LAB, Path(folder))
            self.assertEqual(errors.errors_block(sources), "Not recorded yet.\n")
            self.assertIsNone(sources.recorded)
            for text, why in (('{"kind": "timing"}', "not a verification"), ('{"kind"', "cannot read"),
                              ('{"kind": "verification"}', "cannot be made of what is recorded")):
                (Path(folder) / "h200-verify.json").write_text(text)
                with self.assertRaisesRegex(Failure, why):
                    tables.content(Sources(LAB, Path(folder)), Page("docs/results.md"), "errors")

    def test_what_lab_says_of_its_failure_is_passed_on(self):
        with self.assertRaisesRegex(Failure, f"^there is no stage '{FREE}'") as caught:
            HERE.ask("diff", str(FREE))
        self.assertEqual(caught.exception.code, 2)

    def test_an_answer_is_kept_until_lab_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            lab, asked = Path(folder) / "lab", Path(folder) / "asked"
            (Path(folder) / "kernels").mkdir()

            def times_asked(command, end):
                """How often lab, which ends so, was asked in all, after two questions more."""
                lab.write_text(f"#!/bin/sh\nprintf x >> {asked}\nfor file; do :; done\necho 1 > $file\n{end}\n")
                lab.chmod(0o755)
                for _ in range(2):
                    try:
                        Sources(lab).ask(command, "5")
                    except Failure:
                        self.assertEqual(end, "exit 1")
                return len(asked.read_text())

            self.assertEqual([times_asked("count", "exit 0"), times_asked("count", "exit 0 # another"),
                              times_asked("count", "exit 1"), times_asked("list", "exit 0")], [1, 2, 4, 6])

    def test_the_newest_full_measurement_is_found_by_its_date(self):
        regimes = [name for name, regime in HERE.regimes.items() if not regime["sweep"] and regime["pass"] == "forward"]
        with tempfile.TemporaryDirectory() as folder:
            for file, date, shown in (("a", "2026-11-22", regimes), ("b", "2026-11-21", regimes),
                                      ("c", "2026-11-23", regimes[1:])):
                full = derived([row_of(regime, 1, 1.0, shows_here=True) for regime in shown])
                (Path(folder) / f"{file}.json").write_text(json.dumps(full | {"date": date}))
            own = derived([row_of("decode", 6, 1.0, shows_here=True)])
            own |= {"date": "2026-11-20", "kernels": {MERGES: HERE.stage(6).fingerprint}}
            (Path(folder) / "own.json").write_text(json.dumps(own))
            sources = Sources(LAB, Path(folder))
            self.assertEqual(sources.recorded.date, "2026-11-22")
            shown = json.loads(fastest.shown_in(sources))
            self.assertEqual((shown["all"], shown[MERGES]), ("a.json", "own.json"))


class CountersTest(unittest.TestCase):
    def test_counters_that_move_and_those_that_stay(self):
        before = {"mma": 1000, "global_load_bytes": 4096, "tiles": 3, "atomics": 0, "launches": 0}
        after = before | {"global_load_bytes": 2048, "atomics": 12}
        self.assertEqual(counters.change_table(["01", "02", "factor"], before, after), (
            "| counter | 01 | 02 | factor |\n|---|---:|---:|---:|\n| global load bytes | 4,096 | 2,048 | x0.5 |\n"
            "| atomics | 0 | 12 | new |\n\nUnchanged: mma, tiles.\n"))


    def test_counters_that_the_claims_do_not_name_are_folded(self):
        self.assertEqual(counters.claimed(HERE.stage(5)), {"tiles", "masked_tiles", "mma", "barriers", "exponentials"})
        shown = counters.in_sight(["counter", ">n"], {name: [name, "1"] for name in ("mma", "votes")}, {"mma"})
        self.assertEqual(shown.split("<details>")[0], "| counter | n |\n|---|---:|\n| mma | 1 |\n\n")
        self.assertIn("| votes | 1 |", shown.split("<details>")[1])
        self.assertNotIn("<details>", counters.in_sight(["counter"], {"votes": ["votes"]}, {"mma"}))  # none to show else


class TimesTest(unittest.TestCase):
    def test_problems_of_other_regimes_are_folded_unless_they_are_slower(self):
        stage = HERE.stage(5)
        rows = [row_of(regime, number, ms, folder=HERE.stage(number).folder, shows_here=regime == stage.shows_in)
                for regime, own in (("causal", 1.0), ("train", 2.0), ("long", 2.1)) for number, ms in ((4, 2.0), (5, own))]
        sight, fold = times.stage_table(derived(rows), stage).split("<details>")
        self.assertEqual([row["problem"] for row in cells(sight)], ["causal 2k", "long 2k"])
        self.assertEqual([row["problem"] for row in cells(fold)], ["causal 2k", "train 2k", "long 2k"])
        self.assertEqual([list(cells(part)[0])[1:] for part in (sight, fold)],
                         [["parent's ms", "its own ms", "over parent"],
                          ["parent's ms", "its own ms", "noise", "rate", "of ceiling", "over parent"]])

    def test_the_worst_losses_are_in_sight_and_the_others_counted(self):
        stage = HERE.stage(5)
        rows = [row_of(regime, number, 2.0 if number == 4 else own, folder=HERE.stage(number).folder,
                       shows_here=regime == stage.shows_in)
                for regime, own in (("causal", 1.0), ("train", 2.1), ("long", 2.4), ("narrow", 2.2), ("wide", 2.3)) for number in (4, 5)]
        sight, fold = times.stage_table(derived(rows), stage).split("<details>")
        self.assertEqual([row["problem"] for row in cells(sight)], ["causal 2k", "long 2k", "wide 2k", "narrow 2k"])
        self.assertIn("; slower by over 2%: 1 more", fold)

    def test_rates_stand_by_unit_and_pass(self):
        results = sample(HERE)
        (title, shown), = times.rate_tables(HERE, results)
        self.assertEqual(title, "TFLOP/s (speedup over the parent)")
        self.assertEqual([row["train 2k"] for row in cells(shown)][:2], ["-", "**68.7**"])
        self.assertEqual(label(results), "Recorded on Test GPU, 2026-11-21, commit 0123456")
        measured = cells(times.stage_table(results, HERE.stage(1)).split("<details>")[0])
        self.assertEqual([row["its own ms"] for row in measured], ["4.000"])
        self.assertEqual(cells(times.stage_table(results, HERE.stage(0)))[0]["its own ms"], "it needs 12 GiB")
        self.assertFalse(times.stage_table(results, HERE.stage(3)))
        sight, drafts = map(cells, times.draft_table(HERE.record("h200-draft"), named(HERE, "split_keys")).split("<details>"))
        self.assertEqual([row["problem"] for row in sight], ["geometric mean", "smallest", "largest"])
        self.assertEqual(list(drafts[0]), ["problem", *(f"{rows} rows" for rows in (4, 8, 16, 32, 64, 128))])
        self.assertEqual([row["problem"] for row in drafts[:3]], ["B=1 N=2k", "B=1 N=16k", "B=1 N=64k"])
        results.rows[2]["pass"] = "backward"
        self.assertEqual([(title, shown.count("\n")) for title, shown in times.rate_tables(HERE, results)],
                         [("TFLOP/s (speedup over the parent)", 4), ("Gradients: TFLOP/s (speedup over the parent)", 3)])

    def test_speedups_over_one_stage_and_over_peers(self):
        rows = [row_of("train", stage, ms, folder=HERE.stage(stage).folder) for stage, ms in ((3, 2.0), (4, 1.0))]
        results = derived(rows, [peer_of(rows[0], "FlashAttention-2", 1.5), peer_of(rows[0], "cuDNN", None)])
        self.assertEqual(cells(times.speedup_table(HERE, results, 3, [3, 4])),
                         [{"problem": "train 2k", "03 over 03": "1.00x", "04 over 03": "2.00x",
                           "04 over FlashAttention-2": "1.50x", "04 over cuDNN": ""}])
        self.assertEqual(cells(times.speedup_table(HERE, results, 17, [4])), [])  # 17 was not timed

    def test_stages_stand_over_another_one_once_the_last_was_timed(self):
        rows = [row_of("train", stage, ms, folder=HERE.stage(stage).folder) for stage, ms in ((0, 6.0), (3, 2.0), (4, 1.0))]
        sources = Sources("", folder=None)
        sources.stages, sources.recorded = HERE.stages, derived(rows)
        self.assertEqual(cells(times.over(sources, None, ["0", "3", "4"]).split(":\n\n")[1]),
                         [{"problem": "train 2k", "03 over 00": "3.00x", "04 over 00": "6.00x"}])
        self.assertEqual(times.over(sources, None, ["0", "3", "5"]), NOT_RECORDED)

    def test_the_newest_timing_of_a_kernel_as_it_is_shows_where_its_change_should(self):
        def recorded(ms, shows_here=True, parent=None, gpu="Test GPU", **kernels):
            rows = [row_of("train", 4, ms, shows_here=shows_here)] + ([row_of("train", parent, 9.0)] if parent else [])
            return derived(rows) | {"kernels": kernels, "hardware": Fields(gpu=gpu)}

        stage, sources = HERE.stage(4), Sources("", folder=None)
        now = stage.fingerprint
        for timings, ms in (([recorded(3.0, **{stage.folder: now}), recorded(2.0, **{stage.folder: now})], 2.0),
                            ([recorded(3.0, **{stage.folder: now}), recorded(2.0, **{stage.folder: "an older one"})], 3.0),
                            ([recorded(3.0, **{stage.folder: now}), recorded(2.0, False, **{stage.folder: now})], 3.0),
                            ([recorded(3.0, **{stage.folder: "an older one"}), recorded(2.0, False, **{stage.folder: now})], 3.0),
                            ([recorded(2.0, False, **{stage.folder: now})], 2.0),
                            ([recorded(3.0, parent=3, **{stage.folder: now}), recorded(2.0, **{stage.folder: now})], 3.0),
                            ([recorded(3.0, gpu=SHOWN_GPU, **{stage.folder: now}), recorded(2.0, **{stage.folder: now})], 3.0),
                            ([recorded(2.0, **{stage.folder: "an older one"})], 2.0),
                            ([recorded(2.0)], None)):
            sources.timings = [Fields(each) for each in timings]
            found = sources.newest_with(stage)
            self.assertEqual(found and found.rows[0].timing.median_ms, ms)

    def test_gains_on_the_way_up_stand_beside_what_they_are_worth_at_the_end(self):
        without, swapped, *_ = (stage.number for stage in HERE.stages.values() if stage.experiment)
        own = {1: 24.0, 2: 12.0, 3: 4.0, without: 5.0, swapped: 16.0}
        rows = [row_of("causal" if causal else "train", stage, ms, causal=causal) for causal in (False, True)
                for stage, ms in own.items() if not (causal and stage == swapped)]  # a problem that not all have is left out
        changes = [(2, without), (3, swapped)]
        shown = [list(row.values()) for row in cells(times.leave_one_out_table(HERE, derived(rows), 3, changes))]
        self.assertEqual(shown, [["train 2k", HERE.stage(2).folder, "2.00x", "1.25x", "12.000", "1.000"],
                                 ["train 2k", HERE.stage(3).folder, "3.00x", "4.00x", "8.000", "12.000"],
                                 ["train 2k", "all of them", "6.00x", "5.00x", "20.000", "13.000"]])
        rows[0]["verified"] = False
        self.assertEqual(cells(times.leave_one_out_table(HERE, derived(rows), 3, changes)), [])

    def test_a_parts_share_is_its_stages_where_it_starts_and_its_kind_of_problem(self):
        decodes, attends = named(HERE, "packed_gqa"), named(HERE, "wide_warps")
        rows = [row_of(regime, stage, 1.0, shows_here=shows, Nq=1 if regime == "decode" else 2048)
                for stage, regime, shows in (
                    (5, "train", False), (5, "decode", False), (6, "decode", True), (decodes.number, "train", False),
                    (decodes.number, "decode", True), (attends.number, "train", True))]
        results = derived(rows)
        for part, stages in ((decodes.part, [6, decodes.number]), (attends.part, [5, attends.number]), (0, [5, 6])):
            self.assertEqual([row.stage for row in times.of_part(HERE, results, part).rows], stages)


class PeersTest(unittest.TestCase):
    def sweep(self):
        rows, own = [], []
        for d, keys, factor in ((64, 40, 1), (128, 40, 1), (64, 80, 4), (72, 40, None)):
            for stage, ms in ((3, 2.0), (4, 1.0)):
                why = "" if factor else f"has no kernel for d = {d}"
                rows.append(row_of("prefill", stage, ms if factor else None, folder=HERE.stage(stage).folder, d=d, Nq=40,
                                   Nk=keys, B=1, H=2, Hkv=1, why_not=why))
            own += [peer_of(rows[-1], "FlashAttention-2", 1.5 * (factor or 1), why_not=""),
                    peer_of(rows[-1], "cuDNN", None, why_not="does not like it")]
        return derived(rows, own)

    def test_a_sweep_is_one_row_for_each_problem_and_its_mean(self):
        results = self.sweep()
        (_, rates, _), (title, means, is_mean) = peers.comparisons(HERE, results)
        rates, means = cells(rates), cells(means)
        self.assertEqual((title, is_mean), ("Geometric mean and minimum of the ratios", True))
        self.assertEqual([rates[i]["problem"] for i in (0, 2)],
                         ["d=64 N=40 B=1 H=2 Hkv=1", "d=64 N=80 Nq=40 B=1 H=2 Hkv=1"])
        self.assertTrue(rates[0][CHILD].endswith(" (2.00x)"))
        self.assertEqual((rates[0]["04 over FlashAttention-2"], rates[0]["04 over cuDNN"]), ("1.50x", ""))
        self.assertEqual(rates[0][""], "cuDNN: does not like it")
        self.assertEqual(rates[3][""], "03: has no kernel for d = 72; 04: has no kernel for d = 72; cuDNN: does not like it")
        self.assertEqual([(row["problems"], row["04 over FlashAttention-2"]) for row in means],
                         [("d=64", "3.00x, 1.50x"), ("d=72", "-"), ("d=128", "1.50x, 1.50x"), ("all", "2.38x, 1.50x")])

    def test_a_stage_that_lacks_what_another_has_gets_no_mean(self):
        results = self.sweep()
        results.rows[0]["verified"] = False
        row = cells(peers.comparisons(HERE, results)[1][1])[0]
        self.assertEqual((row["03 over FlashAttention-2"], row["04 over FlashAttention-2"]), ("-", "3.00x, 1.50x"))

    def test_a_peer_that_lacks_problems_has_a_mean_over_the_others(self):
        results = self.sweep()
        results.peers[0]["timing"] = None  # of d = 64; cuDNN has none at all
        results.peers[1].update(timing=results.peers[2].timing, rate=1.0)
        rows = cells(peers.comparisons(HERE, results)[1][1])
        self.assertEqual([row["04 over FlashAttention-2"] for row in rows],
                         ["6.00x, 6.00x (1 of 2)", "-", "1.50x, 1.50x", "3.00x, 1.50x (2 of 3)"])

    def test_one_stage_or_the_fastest_of_many(self):
        results = self.sweep()
        one = cells(peers.comparisons(HERE, results, HERE.stage(3))[0][1])[0]
        self.assertEqual((len(one), one["03 over FlashAttention-2"]), (1 + 1 + 2 + 2 + 1, "0.75x"))
        results.rows += [Fields(results.rows[0], stage=stage, verified=False, rate=1e6) for stage in (0, 1)]
        fastest = cells(peers.comparisons(HERE, results)[0][1])
        self.assertTrue(fastest[0]["fastest"].endswith(" (04)"))
        self.assertEqual((fastest[0]["fastest over FlashAttention-2"], fastest[3]["fastest"]), ("1.50x", "-"))

    def test_gradients_in_one_order_are_compared_with_a_stage_that_exists_for_it(self):
        results = self.sweep()
        for peer in results.peers[::2]:
            peer["peer"] = "FlashAttention-4-deterministic"
        for in_order, ratios in ((False, []), (True, ["04 over FlashAttention-4-deterministic"])):
            with patch.object(HERE.stage(4), "for_order", in_order):
                for _, shown, _ in peers.comparisons(HERE, results):
                    self.assertEqual([name for name in cells(shown)[0] if name.endswith("over FlashAttention-4-deterministic")],
                                     ratios)

    def test_without_peers_no_ratios_and_no_mean(self):
        results = self.sweep()
        results["peers"] = []
        (_, rates, _), = peers.comparisons(HERE, results)
        self.assertEqual(len(cells(rates)[0]), 1 + 2 + 1)
        results["rows"] = results.rows[:6]  # every one was timed
        self.assertEqual(len(cells(peers.comparisons(HERE, results)[0][1])[0]), 1 + 2)


class ProfileTest(unittest.TestCase):
    def setUp(self):
        """00 that does not fit, 03 with one kernel and 04 with one in train, 06 with two in decode."""
        rows = []
        for stage in (0, 3, 4, 6):
            kernels = []
            for name in ("attention", "merge")[:(0, 1, 1, 2)[len(rows)]]:
                kernels.append({"kernel": name, "threads": 128, "registers": 168, "local_bytes": 0, "shared_bytes": 52224,
                                "blocks_per_sm": 3, "warps_per_sm": 12, "limited_by": "registers", "metrics": {}})
            rows.append(row_of("decode" if stage == 6 else "train", stage, None, folder=HERE.stage(stage).folder,
                               kernels=kernels))
        for row, ns, waits in ((rows[1], 3278016, (6, 3)), (rows[2], 1041000, (1, 2))):
            metrics = {"duration_ns": ns, "stall_barrier": waits[0], "stall_selected": 0.8, "stall_wait": waits[1],
                       "stall_drain": 0.2}
            row.kernels[0]["metrics"] = fields(metrics)
        made = {"kind": "profile", "date": "2026-11-22T07:52:00Z", "commit": "0123456789abcdef",
                "hardware": {"gpu": "NVIDIA H200"}, "profiler": "Nsight Compute 2025.3.1"}
        self.sources = Sources(LAB)
        self.sources.kept |= dict.fromkeys(f"{name}-profile" for name in PROFILES) | {"h200-profile": Fields(fields(made), rows=rows)}

    def lesson(self, stage, *words):
        return profiles.profile_block(self.sources, Page("README.md", HERE.stage(stage)), words)

    def test_rows_that_the_block_names_are_in_sight(self):
        sight, fold = self.lesson(4, "barrier").split("<details>")
        self.assertEqual([row["metric"] for row in cells(sight)], ["time", "waits: barrier"])
        self.assertIn("| waits: wait |", fold)
        with self.assertRaisesRegex(Failure, "has no row 'dance'"):
            self.lesson(4, "dance,", "barrier")

    def test_a_lesson_has_its_kernels_beside_its_parents(self):
        split_q = self.lesson(4)
        self.assertTrue(split_q.startswith("Profile of `train` on NVIDIA H200:\n"))
        self.assertIn("\nNsight Compute 2025.3.1 on NVIDIA H200, 2026-11-22, commit 0123456; train: B=8 H=16", split_q)
        for part in ("| metric | parent | this stage |\n|---|---:|---:|\n", "| time | 3.278 ms | 1.041 ms |\n",
                     "| L2 hits | n/a | n/a |\n", "| waits: wait | 30% | 50% |\n| waits: barrier | 60% | 25% |\n"):
            self.assertIn(part, split_q)
        self.assertIn("| waits: drain | 2% | 5% |\n", split_q)  # which is enough in one of them
        self.assertNotIn("gmma", split_q)
        self.assertIn("| metric | this stage: attention | this stage: merge |", self.lesson(6))
        self.assertEqual({self.lesson(0), self.lesson(5)}, {"Not profiled yet.\n"})

    def test_occupancy_has_all_stages(self):
        shown = profiles.occupancy(self.sources)
        self.assertIn(f"| {MERGES} | merge | 128 | 168 | 0 | 52,224 | 3 | 12 | registers |", shown)
        self.assertIn(f"| {HERE.stage(5).folder} | not profiled yet |", shown)
        self.assertNotIn(f"| {CHILD} | not profiled yet |", shown)
        self.sources.kept["h200-profile"] = None
        self.assertEqual({profiles.occupancy(self.sources), self.lesson(4)}, {"Not profiled yet.\n"})

    def test_a_kernel_alone_is_next_to_a_peer_that_does_less(self):
        timed = [row_of("train", 4, 1.25, folder=CHILD), row_of("long", 4, 2.0, Nq=4096)]  # not profiled
        self.sources.kept["made"] = derived(timed, [peer_of(row, "FlashAttention-3-FP8", 0.5205) for row in timed])
        self.sources.kept["h200-profile"].rows[1].kernels.insert(0, fields({"kernel": "quantize", "metrics": {"duration_ns": 5e4}}))
        self.assertEqual(cells(profiles.alone(self.sources, None, ["3", "4", "made"])),
                         [{"problem": "train 2k", "quantize": "0.050 ms", "03": "3.278 ms", "04": "1.041 ms", "call of 04": "1.250 ms",
                           "FlashAttention-3-FP8": "0.520 ms", "03 over it": "0.16x", "04 over it": "0.50x"}])
        self.sources.kept["again"] = self.sources.kept["made"]
        self.assertEqual(len(cells(profiles.alone(self.sources, None, ["3", "4", "made", "again"]))), 2)
        with self.assertRaisesRegex(Failure, "made has no problem that these stages are profiled with"):
            profiles.alone(self.sources, None, ["0", "4", "made"])

    def test_a_time_of_the_profile_is_in_the_unit_of_predictions(self):
        found = quantities.find(self.sources, HERE.stage(4), "time of 04, train")
        self.assertEqual((str(found), round(found.values[0], 3)), ("1.041 ms", 1.041))

    def test_metrics_are_called_what_lab_profile_calls_them(self):
        self.assertLessEqual(profiles.METRICS.keys(), nsight.METRICS.keys())


class StaleTest(unittest.TestCase):
    # Blocks whose numbers are counted or verified here, or are of no kernel that a recording has a fingerprint of
    WITHOUT_RECORDED_KERNELS = {"aarch64", "counters", "estimate_errors", "lost", "mutation", "needs", "nvcc", "peer_tests", "prediction",
                                "python", "python-append", "python-features", "python-fp8", "python-ring", "standard", "won"}

    def test_a_kernel_that_was_changed_is_marked_wherever_its_numbers_are_shown(self):
        sources, blocks = Sources(LAB), 0
        sources.listed, sources.lines = HERE.listed, dict.fromkeys(HERE.stages, "1")
        for stage in sources.stages.values():
            stage.fingerprint = "another one"
        for page in tables.pages(sources):
            for name in re.findall(r"<!-- generated: (.*?) -->", (ROOT / page.path).read_text(encoding="utf-8")):
                if name.split()[0] in self.WITHOUT_RECORDED_KERNELS:
                    continue
                shown = tables.content(sources, page, name)
                blocks += 1
                if re.search(r"\d\.\d", shown):  # a measured number, and not a count of lines
                    self.assertRegex(shown, "[Cc]hanged since|since then changed|An earlier form", f"{page.path}: {name}")
        self.assertGreater(blocks, 100)

    def test_what_is_listed(self):
        rows = [row_of("train", stage, 1.0, folder=HERE.stage(stage).folder) for stage in (4, 5)]
        now = {row.folder: HERE.stage(row.stage).fingerprint for row in rows}
        with tempfile.TemporaryDirectory() as folder:
            for file, kind, date, kernels in (
                    ("a", "timing", "2026-02-03", now), ("b", "timing", "2026-02-04", now | {"05_causal_skip": "an older one"}),
                    ("c", "profile", "2026-02-03", {"04_split_q": "an older one"})):
                made = derived(rows) | {"kind": kind, "date": f"{date}T07:52:00Z", "kernels": kernels}
                (Path(folder) / f"{file}.json").write_text(json.dumps(made))
            found = stale.stale(Sources(LAB, Path(folder)))
        rows = {row["stage"]: row for row in found["stages"]}
        self.assertEqual((len(found["stages"]), rows["04_split_q"], rows["05_causal_skip"]), (
            len(HERE.stages), {"stage": "04_split_q", "timing": {"newest": "b.json, 2026-02-04", "as_it_is": True},
                               "profile": {"newest": "c.json, 2026-02-03", "as_it_is": False}},
            {"stage": "05_causal_skip", "timing": {"newest": "a.json, 2026-02-03", "as_it_is": True},
             "profile": {"newest": None, "as_it_is": False}}))
        self.assertEqual([(row["recording"], row["changed_since"]) for row in found["recordings"]],
                         [("b.json", ["05_causal_skip"]), ("c.json", ["04_split_q"])])
        (_, (_, stages)), (_, (_, recordings)) = stale.stale_tables(found)
        self.assertEqual([row for row in stages if row[0] in ("00_naive", "04_split_q", "05_causal_skip")], [
            ["00_naive", "never", "never"], ["04_split_q", "", "c.json, 2026-02-03"], ["05_causal_skip", "", "never"]])
        self.assertEqual(recordings[1], ["c.json", "2026-02-03", "04"])


if __name__ == "__main__":
    unittest.main()
