#!/usr/bin/env python3
"""Tests the example that docs/worked_example.md works out by hand: every number in its listings is what softmax over all
keys at once gives, and both sides of every equation there are equal."""

import math
import re
import unittest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs/worked_example.md"
LISTINGS = [listing.splitlines() for listing in re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)]
INPUTS, SCORES, ROW_0, ROW_1, STEPS, WEIGHTS, OUTPUTS, MERGE = LISTINGS


def numbers(lines):
    return [[float(word) for word in re.findall(r"-?\d+\.?\d*", line.replace("|", " "))] for line in lines]


ROWS = numbers(INPUTS[1:])
Q, K, V = ([row[first:first + 4] for row in ROWS] for first in (1, 5, 9))


def scores(row, keys):
    return [sum(q * k for q, k in zip(Q[row], K[key])) for key in keys]


def softmax(row, keys):
    """O, L in base 2, m and l of attention over all these keys at once."""
    S = scores(row, keys)
    P = [2 ** (s - max(S)) for s in S]
    return [sum(p * V[k][c] for p, k in zip(P, keys)) / sum(P) for c in range(4)], max(S) + math.log2(sum(P)), max(S), sum(P)


class Vector(tuple):
    def __add__(self, other):
        return Vector(a + b for a, b in zip(self, other))

    def __rmul__(self, factor):
        return Vector(factor * a for a in self)

    def __truediv__(self, divisor):
        return Vector(a / divisor for a in self)


def value(words):
    """Of arithmetic as the page writes it: "0.25 x (2 -2 2 0) + 2^(1 - 3)"."""
    words = re.sub(r"\((-?[\d.]+(?: -?[\d.]+){3})\)", lambda found: f"Vector(({found[1].replace(' ', ',')}))", words)
    words = re.sub(r"([\d.]) (?=Vector)", r"\1 * ", words).replace(" x ", " * ").replace("^", "**")
    return eval(words, {"Vector": Vector, "log2": math.log2, "max": max})  # of this page, which is ours


class WorkedExampleTest(unittest.TestCase):
    def near(self, found, expected, places=9):
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertAlmostEqual(a, b, places)

    def test_inputs_and_scores(self):
        self.assertEqual([len(row) for row in ROWS], [13] * 8)
        self.assertEqual(numbers(SCORES[1:]), [[row, *scores(row, range(8))] for row in range(8)])

    def test_every_step_is_attention_over_the_keys_so_far(self):
        raised = 0
        for n, (step, weight, output) in enumerate(zip(*(numbers(lines[1:17]) for lines in (STEPS, WEIGHTS, OUTPUTS)))):
            i, j, row = n // 8, n // 4 % 2, 4 * (n // 8) + n % 4
            for line in (step, weight, output):
                self.assertEqual(line[:3], [i, j, row])
            O, _, m, l = softmax(row, range(4 * (j + 1)))  # noqa: E741
            before = softmax(row, range(4))[2]
            self.near(step[3:], [m, 2 ** (before - m) if j else 0, l], 4)
            raised += j == 1 and step[4] < 1
            P = [2 ** (s - m) for s in scores(row, range(4 * j, 4 * j + 4))]
            self.assertEqual(weight[3:], [m, *P, sum(P)])
            self.near(output[3:], [*O, *(l * x for x in O)])
        self.assertEqual((n, raised), (15, 4))  # of 8 rows: the example shows both

    def test_the_end_and_the_merge(self):
        ends, merged = numbers(STEPS[18:]), numbers(MERGE[1:])
        self.assertEqual([row[0] for row in ends + merged], [*range(8), *range(8)])
        for row, (end, of_parts) in enumerate(zip(ends, merged)):
            O, L, *_ = softmax(row, range(8))
            self.near(end[1:], [L, *O], 4)
            parts = [softmax(row, range(4 * j, 4 * j + 4)) for j in (0, 1)]
            self.near(of_parts[1:], [x for O_s, L_s, *_ in parts for x in (L_s, 2 ** (L_s - L), *O_s)] + [L], 5)

    def test_the_slide_shows_row_1_as_the_page_does(self):
        self.assertIn("\n".join(ROW_1), (PAGE.parent / "course/slides/00_algorithm_1.md").read_text(encoding="utf-8"))

    def test_two_rows_in_full(self):
        weights = {(line[2], line[1]): line[4:8] for line in numbers(WEIGHTS[1:])}
        for row, lines in enumerate((ROW_0, ROW_1)):
            O, L, *_ = softmax(row, range(8))
            ends, tile = [], -1
            for line in re.sub(r"\n +=", " =", "\n".join(lines)).splitlines():
                tile += line.startswith("key tile")
                name, words = line[2:10].strip(), line[10:]
                with self.subTest(row=row, line=line):
                    if name == "S":
                        self.assertEqual(numbers([words])[0], scores(row, range(4 * tile, 4 * tile + 4)))
                    elif name == "P":
                        self.assertEqual(numbers([words])[0], weights[row, tile])
                    elif name in ("O_0", "O_1"):
                        own_O, own_L, *_ = softmax(row, range(4 * int(name[2]), 4 * int(name[2]) + 4))
                        *shown, _, shown_L, _, _, weight = numbers([words])[0]
                        self.near([*shown, shown_L, weight], [*own_O, own_L, 2 ** (own_L - L)], 5)
                    elif " = " in words:
                        left, *others = (Vector(side) if isinstance(side, tuple) else Vector([side])
                                         for side in map(value, words.split(" = ")))
                        for other in others:
                            self.near(left, other, 5)
                        ends.append(left)
            for end, times in ((O, 3), ([L], 1)):  # 01, 02 and 06 end in this row's O
                same = [len(end) == len(other) and max(abs(a - b) for a, b in zip(end, other)) < 1e-9 for other in ends]
                self.assertEqual(sum(same), times)


if __name__ == "__main__":
    unittest.main()
