#!/usr/bin/env python3
"""Tests the example that docs/ works out by hand."""

import math
import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs/publish"))
sys.dont_write_bytecode = True

import worked_example  # noqa: E402


def softmax(row, keys):
    """O, L in base 2, and l of attention over all these keys at once."""
    S = worked_example.scores(row, keys)
    weights = [math.exp(math.log(2) * (s - max(S))) for s in S]
    O = [sum(w * worked_example.V[k][c] for w, k in zip(weights, keys)) / sum(weights) for c in range(4)]
    return O, max(S) + math.log2(sum(weights)), max(S), sum(weights)


class WorkedExampleTest(unittest.TestCase):
    """What is printed is what softmax over all keys at once gives."""

    def numbers(self, lines):
        return [[float(word) for word in re.findall(r"-?\d+\.?\d*(?:e-\d+)?", line.replace("|", " "))] for line in lines]

    def near(self, found, expected, places=9):
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertAlmostEqual(a, b, places)

    def test_inputs_and_scores(self):
        for row, (shown, scores) in enumerate(zip(self.numbers(worked_example.inputs()[1:]),
                                                  self.numbers(worked_example.score_lines()[1:]))):
            self.assertEqual(shown, [row, *worked_example.Q[row], *worked_example.K[row], *worked_example.V[row]])
            products = [sum(a * b for a, b in zip(worked_example.Q[row], k)) for k in worked_example.K]
            self.assertEqual(scores, [row, *products])

    def test_every_step_is_attention_over_the_keys_so_far(self):
        steps, weights, outputs = (self.numbers(lines()[1:17]) for lines in
                                   (worked_example.every_step, worked_example.weights, worked_example.outputs))
        moved = 0
        for n, (step, weight, output) in enumerate(zip(steps, weights, outputs)):
            i, j, row = n // 8, n // 4 % 2, 4 * (n // 8) + n % 4
            for line in (step, weight, output):
                self.assertEqual(line[:3], [i, j, row])
            O, _, m, l = softmax(row, range(4 * (j + 1)))  # noqa: E741
            before = softmax(row, range(4))[2]
            self.near(step[3:], [m, 2 ** (before - m) if j else 0, l], 4)
            moved += j == 1 and step[4] < 1
            S = worked_example.scores(row, range(4 * j, 4 * j + 4))
            self.assertEqual(weight[3:], [m, *(2 ** (s - m) for s in S), sum(2 ** (s - m) for s in S)])
            self.near(output[3:], [*O, *(l * x for x in O)])
        self.assertEqual(moved, 4)  # of 8: the example shows both

    def test_the_end_and_the_merge(self):
        ends, merged = self.numbers(worked_example.every_step()[18:]), self.numbers(worked_example.merge()[1:])
        for row, (end, parts_of) in enumerate(zip(ends, merged)):
            O, L, *_ = softmax(row, range(8))
            self.near(end, [row, L, *O], 4)
            _, L_0, w_0, *rest = parts_of
            O_0, (L_1, w_1), O_1, shown = rest[:4], rest[4:6], rest[6:10], rest[10]
            self.near([shown, w_0, w_1], [L, 2 ** (L_0 - L), 2 ** (L_1 - L)], 4)
            self.near([w_0 * a + w_1 * b for a, b in zip(O_0, O_1)], O)
            # All three ways to this row's O end in it.
            last = [self.numbers([line.split("=")[-1]])[0] for line in worked_example.row_lines(row)]
            ways = [values for values in last if len(values) == 4 and max(abs(a - b) for a, b in zip(values, O)) < 1e-9]
            self.assertEqual(len(ways), 3)


if __name__ == "__main__":
    unittest.main()
