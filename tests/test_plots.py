#!/usr/bin/env python3
"""Tests the plots that are made of the recordings. Usage: test_plots.py LAB"""

import json
import re
import sys
import unittest
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs/publish"), str(ROOT / "tests")]
sys.dont_write_bytecode = True

import choices  # noqa: E402
import climbs  # noqa: E402
import roofline  # noqa: E402
import scaling  # noqa: E402
import standard  # noqa: E402
from blocks import NOT_RECORDED, Failure, Page  # noqa: E402
from parts import part_pages  # noqa: E402
from records import Fields, by_problem  # noqa: E402
from sample_records import branched, cells, derived, fields, free_number, named, peer_of, row_of  # noqa: E402
from sources import SHOWN_GPU, Sources  # noqa: E402

LAB = sys.argv.pop() if len(sys.argv) > 1 else ROOT / "build/lab"
HERE = Sources(LAB)
FREE = free_number(HERE)


def timed(results):
    """Sources that know this recording alone, of the GPU that pages speak of."""
    sources = Sources(LAB)
    results.hardware["gpu"] = SHOWN_GPU
    sources.recorded, sources.timings = results, [results]
    return sources


def shown_on(page, results):
    return climbs.climbs_block(timed(results), page, [])


class ClimbTest(unittest.TestCase):
    def way(self, results, problem=0):
        problems = by_problem(results)
        return [row.stage for row in climbs.path(HERE, problems, problems[problem])]

    def test_the_way_follows_the_parents_up_to_the_last_stage_of_its_branch(self):
        self.assertEqual([self.way(branched(FREE), problem) for problem in (0, 1)], [[0, 1, FREE], [0, 1, 2]])

    def test_no_way_leads_to_a_stage_that_takes_a_change_away(self):
        results = branched(FREE)
        for stage in (next(stage for stage in HERE.stages.values() if stage.experiment), named(HERE, "fp8_products"),
                      next(stage for stage in HERE.stages.values() if stage.for_order)):
            results.rows.append(Fields(results.rows[3], stage=stage.number, folder=stage.folder))
        self.assertEqual(self.way(results), self.way(branched(FREE)))

    def test_a_way_ends_with_a_stage_whose_change_shows_where_00_cannot_run(self):
        results = branched(FREE)
        later = named(HERE, "xor_swizzle")
        last = Fields(results.rows[3], stage=later.number, parent=FREE, folder=later.folder, shows_here=False)
        wide = {"regime": "wide", "shape": Fields(last.shape, d=256)}
        results.rows += [last, Fields(results.rows[0] | wide, timing=None), Fields(last | wide, shows_here=True)]
        self.assertEqual(self.way(results)[-1], later.number)
        self.assertEqual(climbs.whole_picture(climbs.Runs(timed(derived([])))), (None, []))

    def ladder(self, **changes):
        """00 to 02 in `train`, of which 02 is wrong, and two libraries of which one was timed in another run."""
        rows = [Fields(row_of("train", stage, ms, folder=HERE.stage(stage).folder, shows_here=True) | changes)
                for stage, ms in ((0, 1.6), (1, 0.8), (2, 0.4))]
        rows[2]["verified"] = False
        return derived(rows, [peer_of(rows[0], "cuDNN", 0.4), peer_of(rows[0], "unfused", 0.1)])

    def test_a_part_s_picture_has_a_bar_for_each_of_its_stages(self):
        page = Page("stages/00s_x.md", part=0)
        shown = shown_on(page, self.ladder())
        self.assertIn("train 2k: TFLOP/s on NVIDIA H200: 00 naive 172, 01 flash attention 1 344 (2.00x), cuDNN 687\"", shown)
        self.assertIn('src="../docs/plots/00s-train.svg"', shown)
        self.assertEqual(shown_on(Page("stages/10s_x.md", part=10), self.ladder()), NOT_RECORDED)

    def test_the_whole_ladder_says_what_a_part_reached_over_the_fastest_library(self):
        sources = timed(self.ladder())
        other = timed(self.ladder(regime="prefill")).recorded
        other.peers = [peer_of(other.rows[0], "FlashAttention-3", 0.2), peer_of(other.rows[0], "FlashAttention-2", 8.0)]
        other = derived(other.rows, other.peers, hardware=other.hardware)
        words = climbs.whole_picture(climbs.Runs(sources))[0].words
        self.assertIn("The algorithm from 172 (00) to 344 (01, 0.50x cuDNN); cuDNN 687.", words)
        sources.timings.append(other)  # a faster library of another run counts, a slower one does not
        words = climbs.whole_picture(climbs.Runs(sources))[0].words
        self.assertIn("The algorithm from 172 (00) to 344 (01, 0.25x FlashAttention-3); cuDNN 687, "
                      "FlashAttention-3 1374 (in a run where 01 reached 344).", words)

    def test_masks_stand_next_to_the_fastest_library_and_to_no_mask(self):
        windows, before = named(HERE, "hopper_windows"), named(HERE, "own_diagonal")
        row = row_of("window", windows.number, 1.0, folder=windows.folder, shows_here=True)
        row |= {"features": Fields(window=[1023, 0]), "flops": row.flops // 2}
        plain = row_of("long", before.number, 1.0, folder=before.folder)
        results = derived([row, plain], [peer_of(row, "flex", 2.0), peer_of(row, "FlashAttention-4", 4.0)])
        shown = shown_on(Page("stages/60s_x.md", part=windows.part), results)
        self.assertIn(f"Forward: TFLOP/s on NVIDIA H200: {windows.number} hopper windows 137 (2.00x flex), {before.number}, no mask 275\"", shown)

    def test_several_gpus_stand_next_to_one(self):
        ring, alone = named(HERE, "ring"), named(HERE, "own_diagonal")
        rows = [row_of("custom", stage.number, ms, folder=stage.folder, parent=stage.parent)
                for stage, ms in ((alone, 1.0), (ring, 0.625))]
        rows[1] |= {"features": Fields(ranks=2)}
        shown = shown_on(Page("stages/86s_x.md", part=ring.part), derived(rows))
        self.assertIn(f"Forward on 2 GPUs: TFLOP/s on NVIDIA H200: {alone.number} own diagonal 275, {ring.number} ring 440 (1.60x), "
                      f"2 x {alone.number} 550\"", shown)

    def test_every_part_has_a_picture(self):
        drawn = [picture.data["name"] for picture in climbs.climb_pictures(HERE)]
        self.assertEqual(len(drawn), len(set(drawn)))
        self.assertEqual({name.partition("-")[0] for name in drawn}, {"ladder", *(f"{part:02}s" for part in part_pages())})

    def test_a_plot_is_known_by_the_recording_that_it_shows(self):
        picture, _ = climbs.whole_picture(climbs.Runs(timed(self.ladder())))
        line = json.loads(picture.line)
        svg = f"<dc:description>{picture.line.replace('&', '&amp;')}</dc:description>"
        self.assertTrue(picture.is_shown(svg))
        line["ladder"][0]["groups"][0]["steps"][1]["rate"] += 0.01
        self.assertFalse(picture._replace(data=line).is_shown(svg))
        self.assertIn('src="docs/plots/ladder.svg"', picture.html(Page("README.md")))


class ChoicesTest(unittest.TestCase):
    def test_each_part_is_chosen_once_with_a_number_and_a_command(self):
        rows = cells(choices.choices(HERE, Page("README.md"), []))
        self.assertEqual(len(rows), len(part_pages()))
        for row in rows:
            self.assertRegex(row["what it reached"], r"^\*\*\d[\d.]*x( to \d[\d.]*x)?\*\* ")
            command, number = re.fullmatch(r"`./lab (start|diff) (\d+)`", row["begin with"]).groups()
            stage = HERE.stage(int(number))
            self.assertEqual((ROOT / "stages" / stage.folder / "exercise.md").exists(), command == "start")
            self.assertIn(f"stages/{part_pages()[stage.part].name}", row["you want"])
        with patch.object(choices, "CHOICES", choices.CHOICES[1:]), self.assertRaisesRegex(Failure, "not each part once: 00s"):
            choices.choices(HERE, Page("README.md"), [])


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
