#!/usr/bin/env python3
"""Tests the plots that are made of the recordings. Usage: test_plots.py LAB"""

import copy
import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs/publish"), str(ROOT / "tests")]
sys.dont_write_bytecode = True

import climbs  # noqa: E402
import roofline  # noqa: E402
import scaling  # noqa: E402
import standard  # noqa: E402
from blocks import Page  # noqa: E402
from records import Fields  # noqa: E402
from sample_records import branched, cells, derived, fields, free_number, named, peer_of, row_of, sample  # noqa: E402
from sources import Sources  # noqa: E402

LAB = sys.argv.pop() if len(sys.argv) > 1 else ROOT / "build/lab"
HERE = Sources(LAB)
FREE = free_number(HERE)


class ClimbTest(unittest.TestCase):
    def test_a_climb_follows_the_parents_up_to_the_last_stage_of_its_branch(self):
        both = climbs.climbs(HERE, branched(FREE))
        self.assertEqual(climbs.picture_of(both[0]).words, "train 2k in TFLOP/s on Test GPU: 00 stage 43, "
                         f"01 stage 86 (2.00x), {FREE} stage 344 (4.00x), <A & B> 172")
        self.assertIn("01 stage 42 (2.00x), 02 stage 34 (0.80x), a copy 4000", climbs.picture_of(both[1]).words)
        for climb in both:
            self.assertEqual([step["shared"] for step in climb["steps"]], [True, True, False])
        self.assertEqual([climb["steps"][1]["shows_here"] for climb in both], [True, False])

    def test_gradients_are_a_branch_of_their_own(self):
        results = branched(FREE)
        first = next(stage for stage in HERE.stages.values() if stage.backward)
        gradients = {"pass": "backward", "regime": "backward", "stage": first.number, "folder": first.folder, "parent": -1}
        results.rows.append(Fields(results.rows[3] | gradients))
        three = climbs.climbs(HERE, results)
        self.assertEqual(three[0], climbs.climbs(HERE, branched(FREE))[0])  # shared steps, too
        self.assertEqual([(step["stage"], step["shared"]) for step in three[2]["steps"]], [(first.folder, False)])

    def test_a_page_may_show_one_of_them(self):
        sources = Sources(LAB)
        sources.recorded = branched(FREE)
        shown = climbs.climbs_block(sources, Page("README.md"), ["train"])
        self.assertEqual((shown.count("<img"), "train.svg" in shown), (1, True))
        self.assertEqual(climbs.climbs_block(sources, Page("README.md"), []).count("<img"), 2)

    def test_nobody_climbs_to_a_stage_that_takes_a_change_away(self):
        results = branched(FREE)
        for stage in (next(stage for stage in HERE.stages.values() if stage.experiment), named(HERE, "fp8_products")):
            results.rows.append(Fields(results.rows[3], stage=stage.number, folder=stage.folder))
        self.assertEqual(climbs.climbs(HERE, results)[0], climbs.climbs(HERE, branched(FREE))[0])

    def test_a_climb_ends_with_a_stage_whose_change_shows_where_00_cannot_run(self):
        results = branched(FREE)
        later = named(HERE, "xor_swizzle")
        last = Fields(results.rows[3], stage=later.number, parent=FREE, folder=later.folder, shows_here=False)
        wide = {"regime": "wide", "shape": Fields(last.shape, d=256)}
        results.rows += [last, Fields(results.rows[0] | wide, timing=None), Fields(last | wide, shows_here=True)]
        self.assertEqual(climbs.climbs(HERE, results)[0]["steps"][-1]["stage"], later.folder)
        results = sample(HERE)
        results.rows[2]["shows_here"] = True  # of a wrong answer
        words = climbs.picture_of(climbs.climbs(HERE, results)[0]).words
        self.assertIn(": 00 naive not timed, 01 flash attention 1 69, 02 deferred normalization not timed", words)
        self.assertEqual(climbs.climbs(HERE, derived([])), [])

    def test_a_plot_is_known_by_the_recording_that_it_shows(self):
        train, decode = map(climbs.picture_of, climbs.climbs(HERE, branched(FREE)))
        line = json.loads(train.line)
        self.assertEqual((line["unit"], line["steps"][0]["over_parent"], line["yardsticks"][0]["name"]),
                         ("TFLOP/s", None, "<A & B>"))
        svg = f"<dc:description>{train.line.replace('<A & B>', '&lt;A &amp; B&gt;')}</dc:description>"
        self.assertTrue(train.is_shown(svg))
        self.assertFalse(decode.is_shown(svg))
        newer = copy.deepcopy(train.data)
        newer["steps"][1]["rate"] += 0.001
        self.assertFalse(climbs.picture_of(newer).is_shown(svg))
        self.assertIn('src="docs/plots/train.svg"', train.html(Page("README.md")))
        self.assertIn("&lt;A &amp; B&gt; 172", train.html(Page("README.md")))


class RooflineTest(unittest.TestCase):
    def test_it_has_operations_per_byte_of_what_was_timed_and_profiled(self):
        inner = named(HERE, "async_copies")
        rows = [row_of("train", stage, 0.001 * (stage + 1), folder=HERE.stage(stage).folder, B=1, H=1, Hkv=1, Nq=1000,
                       Nk=1000, d=64) for stage in (4, 5, inner.number)]
        kernel = {"metrics": {"hbm_read_bytes": 1e6, "hbm_write_bytes": 3e6}}
        profile = Fields(fields({"date": "2026-11-22T07:52:00Z", "hardware": {"gpu": "NVIDIA H200"}}),
                         rows=[Fields(rows[n], kernels=fields([kernel, kernel])) for n in (0, 2)])
        point, = roofline.points(HERE, derived(rows), profile)  # 05 was not profiled, the last is not the last of its part
        self.assertEqual((point["stage"], point["intensity"], round(point["tflops"], 6)),
                         (HERE.stage(4).folder, 32, 51.2))  # 4 x 1000 x 1000 x 64, 8 MB
        sources, results = Sources(LAB), derived(rows)
        newer = Fields(profile, date="2026-11-23T07:52:00Z", rows=profile.rows[1:])  # of the last alone
        sources.recorded_on = {"NVIDIA H200": results}.get
        sources.record = lambda name, _: {"h200-profile": profile, "h200-parts-profile": newer}.get(name)
        self.assertEqual(len(roofline.roofline(sources)), 1)
        results.ceilings["copy_gbs"] = None
        self.assertEqual(roofline.roofline(sources), [])


def standard_results(lengths):
    """00, 01 and 05 on 16 x 8 heads of 64, at these N; 01 takes twice the time of 00 at every length but the first."""
    return derived([row_of("standard", stage, (0.5 if n == lengths[0] else 2.0) if stage == 1 else 1.0, B=16, H=8,
                           Hkv=8, Nq=n, Nk=n, d=64, folder=HERE.stage(stage).folder) for n in lengths for stage in (0, 1, 5)])


class ScalingTest(unittest.TestCase):
    def test_a_chart_has_a_panel_for_each_head_dimension_and_mask(self):
        results = standard_results([512, 1024])
        masked = Fields(results.rows[3], causal=True, verified=False)
        grouped = Fields(results.rows[0], shape=Fields(results.rows[0].shape, Hkv=1))
        results = derived([*results.rows, masked, grouped],
                          [peer_of(results.rows[3], "A & B", 1.0, why_not=""),
                           peer_of(results.rows[0], "A & B", None, why_not="does not like it")])
        picture = scaling.benchmark_chart(results)
        data = picture.data
        self.assertEqual((data["N"], [line["name"] for line in data["lines"]][3]), ([512, 1024], "A & B"))
        plain, causal = data["panels"]
        self.assertEqual((plain["values"][0][1], plain["values"][3]), (results.rows[3].rate, [None, results.peers[0].rate]))
        self.assertEqual((causal["title"], causal["values"][0][1]), ("d = 64, causal mask", None))  # a wrong answer
        self.assertIn("At N = 512 1k. d = 64, no mask: 00 naive 8.6 34, ", picture.words)
        self.assertIn("A & B - 34; d = 64, causal mask: ", picture.words)
        rates = cells(scaling.rates_by_problem(HERE, results))
        self.assertEqual([row["A & B"] for row in rates[:2]] + [rates[2]["00 naive"]], ["-", "34.4", "WRONG"])
        self.assertEqual(scaling.peer_reasons(results), "A & B: does not like it")
        grid = cells(scaling.grid_table(results))
        self.assertEqual(grid[0]["01 SMs with a block"], "25%")
        self.assertEqual([grid[1][f"05 {what}"] for what in ("blocks", "SMs with a block", "TFLOP/s")], ["2,048", "100%", "34"])


class StandardTest(unittest.TestCase):
    def test_bytes_requested_are_a_quadratic_in_N(self):
        sources = Sources(LAB)
        counted = standard.count_tiles(sources, 64, "bf16")
        _, work = sources.work([sources.stage(stage) for stage in (0, 1, 5)], "--shape 1,1,1,320,320,64 --dtype bf16")
        for stage, counters in zip((0, 1, 5), work):
            self.assertEqual(standard.quadratic(counted[stage][0], 320),
                             counters["global_load_bytes"] + counters["global_store_bytes"])
            self.assertEqual(standard.quadratic(counted[stage][1], 320), counters["workspace_bytes"])
        self.assertEqual([counters["blocks"] for counters in work[1:]], [1, 5])  # what grid_table() says

    def test_flash_attention_1_beside_standard_attention(self):
        self.assertEqual(standard.standard_accesses(2048, 128), 2048 * 2048 + 2048 * 128)
        self.assertEqual(standard.flash_attention_accesses(2048, 128, standard.sram_of(128, 64)), 2048 * 2048 / 2)
        results = standard_results([64, 128, 256])
        results.rows[6]["timing"] = None  # 00 at 256
        kernel = {"metrics": {"hbm_read_bytes": 1024, "hbm_write_bytes": 2048}}
        profile = Fields(rows=[Fields(row, kernels=fields([kernel] * (3 if row.stage == 0 else 1))) for row in results.rows
                               if row.shape.Nk != 128])
        rows = standard.standard_rows(HERE, results, profile)
        self.assertEqual([row.stages[0].moved for row in rows], [3 * 3072, None, 3 * 3072])
        self.assertEqual(rows[0].stages[0].workspace, 16 * 8 * 6 * 64 * 64)
        self.assertEqual(standard.crossovers(rows), "- d = 64: 01 is faster than 00 at N = 64, and slower at N = 128.\n")
        own, moved = cells(standard.times_table(rows)), cells(standard.bytes_table(rows))
        self.assertEqual((own[0]["01 over 00"], own[2]["01 over 00"], own[2]["00 workspace"]), ("2.00x", "-", "48 MiB"))
        self.assertEqual([row["01 / 00, moved"] for row in moved], ["0.33x", "-", "0.33x"])
        self.assertEqual(moved[2]["01 / 00, formulas"], "0.20x")  # 1/4 of N^2 over N^2 + 64 N
        self.assertIn("01, time 0.5x 2x -", standard.ratios_chart(rows, "Test GPU").words)


if __name__ == "__main__":
    unittest.main()
