#!/usr/bin/env python3
"""Tests which submissions of a class are said to share most of their change."""

import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "course"))
sys.dont_write_bytecode = True

from class_report import LEAST, quoted, similarities  # noqa: E402


def tokens_of(kernel):
    """As course/fence/tokens.h has them, of a kernel without anything odd."""
    return re.findall(r'[A-Za-z_]\w*|\d[\w.]*|\S', re.sub(r'//.*|/\*.*?\*/', "", re.sub(r'"[^"\n]*"', '"', kernel)))


class SimilarityTest(unittest.TestCase):
    def setUp(self):
        self.parent, self.solution = ((ROOT / "stages" / stage / "kernel.cu").read_text(encoding="utf-8")
                                      for stage in ("04_split_q", "05_causal_skip"))

    def similar(self, ladder=("05", "04"), **kernels):
        kernels_of = {"04": self.parent, "05": self.solution}
        return {frozenset(found[:2]): found for found in similarities(
            {name: tokens_of(kernel) for name, kernel in kernels.items()},
            {f"stages/{stage}": tokens_of(kernels_of[stage]) for stage in ladder}, tokens_of(self.parent))}

    def test_a_copy_is_similar_whatever_its_names_and_the_parents_code_is_nobodys(self):
        renamed = self.solution  # other names, comments and blanks
        for name, other in (("diagonal", "last"), ("masked", "cut"), ("first_row", "top")):
            renamed = re.sub(rf"\b{name}\b", other, renamed)
        renamed = renamed.replace("    const", "    /* mine */  const")
        found = self.similar(ada=self.solution, bob=renamed, parent=self.parent, unreadable="")
        self.assertEqual(set(found), {frozenset(pair) for pair in (("ada", "bob"), ("ada", "stages/05"), ("bob", "stages/05"))})
        self.assertEqual({one[3:] for one in found.values()}, {(1, 1)})

    def test_the_same_change_in_other_words_is_less_similar(self):
        own = self.solution
        for text, other in (("min(p.Nk, reach + Br)", "p.causal && p.Nk > reach + Br ? reach + Br : p.Nk"),
                            ("const bool masked = (j + 1) * Bc > min(p.Nk, reach + 1);",
                             "bool masked = j * Bc + Bc > p.Nk;\n if (p.causal && j * Bc + Bc - 1 > diagonal) masked = true;")):
            self.assertIn(text, own)
            own = own.replace(text, other)
        found = self.similar(ada=self.solution, eve=own)
        share = found.get(frozenset(("ada", "eve")), [LEAST] * 5)[3:]
        self.assertLess(share[0], 0.8)
        self.assertGreaterEqual(share[0], share[1])
        # Of the ladder's the nearest alone
        self.assertNotIn(frozenset(("ada", "stages/04")), found)

    def test_a_spreadsheet_takes_no_name_for_a_formula(self):
        for name, shown in (("ada", '"ada"'), ("=1", "\"'=1\""), (" +1", "\"' +1\""), ('a"b', '"a""b"')):
            self.assertEqual(quoted(name), shown)


if __name__ == "__main__":
    unittest.main()
