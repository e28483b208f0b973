"""A problem small enough to follow by hand, through stages 01, 02 and 06, and the text that shows it.

N = 8, d = 4, tiles of 4 x 4, no mask. Its scale is ln 2, so that exp(S) is 2 to the power of Q K^T, a whole number:
every P is a power of two, every O a short decimal fraction. All that is printed counts in base 2, as the kernels do: m is
the maximum of Q K^T, P = 2^(Q K^T - m), and L = m + log2(l)."""

import math
from typing import NamedTuple

from blocks import Failure, block, numbers

# The keys of the first tile are the unit vectors, so that the scores there are Q itself. The second tile raises the
# maximum of rows 0, 2, 4 and 7, ties with it in 3 and 6 and stays below it in 1 and 5. No l has a factor but 2 and 5,
# so that all quotients end.
Q = [[-1, 1, -1, 0], [1, -1, 0, -1], [-2, 0, -1, -2], [0, 2, 1, 0],
     [-1, -2, -2, 2], [2, 2, 0, 0], [0, 0, 2, 2], [-2, -2, 0, 0]]
K = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1],
     [-1, 1, 0, 1], [-1, 0, 0, 1], [-1, 0, 0, 0], [-1, 1, -1, 1]]
V = [[2, -2, 2, 0], [0, 1, 2, 2], [-1, 0, -1, 0], [2, 0, 2, -2],
     [2, 2, -1, 0], [-1, -2, 0, 0], [-1, 0, -2, 1], [0, 1, 0, 1]]
ROWS, TILE = range(8), 4


class Step(NamedTuple):
    """One query row at one key tile: m, alpha, l and O after it; O as 01 keeps it, divided by l, and as 02 does."""
    j: int
    m: float
    alpha: float
    l: float  # noqa: E741
    S: list
    P: list
    PV: list
    divided: list
    summed: list


def scores(row, keys):
    return [sum(q * k for q, k in zip(Q[row], K[key])) for key in keys]


def combined(weights, vectors):
    return [sum(w * vector[c] for w, vector in zip(weights, vectors)) for c in range(4)]


def over(vector, value):
    return [x / value for x in vector]


def step(row, j, before=None):
    keys = range(j * TILE, (j + 1) * TILE)
    S = scores(row, keys)
    m = max(S) if before is None else max(before.m, *S)
    P = [2.0 ** (s - m) for s in S]
    PV = combined(P, [V[key] for key in keys])
    if before is None:
        return Step(j, m, 0, sum(P), S, P, PV, over(PV, sum(P)), PV)
    alpha = 2.0 ** (before.m - m)
    total = alpha * before.l + sum(P)
    # Line 12 of FlashAttention-1's algorithm: what was divided by the old l is multiplied by it again.
    divided = over(combined([alpha * before.l, 1], [before.divided, PV]), total)
    return Step(j, m, alpha, total, S, P, PV, divided, combined([alpha, 1], [before.summed, PV]))


def steps_of(row):
    first = step(row, 0)
    return [first, step(row, 1, first)]


def all_steps():
    """In the order of 03: query tile, key tile, row. As (i, j, row) and the step."""
    return [((i, j, row), steps_of(row)[j]) for i in (0, 1) for j in (0, 1) for row in range(i * TILE, (i + 1) * TILE)]


def L_of(of):
    return of.m + math.log2(of.l)


def rounded(value, digits):
    """Half away from 0, and without a minus before 0."""
    return math.copysign(math.floor(abs(value) * 10**digits + 0.5), value) / 10**digits + 0.0


def number(value):
    return f"{rounded(value, 5):g}"


def listed(values, between=" "):
    return between.join(map(number, values))


def cells(values, width):
    return "".join(f"{number(value):>{width}}" for value in values)


def vector(values):
    return f"({listed(values)})"


def inputs():
    lines = ["row   Q              K              V"]
    lines += [f"{row:3}" + " ".join(f"  {cells(matrix[row], 3)}" for matrix in (Q, K, V)) for row in ROWS]
    return lines


def score_lines():
    return ["row   keys 0 to 3     4 to 7",
            *(f"{row:3}  {cells(scores(row, range(4)), 3)}  |{cells(scores(row, range(4, 8)), 3)}" for row in ROWS)]


def every_step():
    lines = ["i j row        m  rescale        l"]
    lines += [f"{i} {j} {row:3} {s.m:8.4f} {s.alpha:8.4f} {s.l:8.4f}" for (i, j, row), s in all_steps()]
    lines.append("row        L  O")
    for row in ROWS:
        end = steps_of(row)[-1]
        lines.append(f"{row:3} {L_of(end):8.4f} " + "".join(f" {rounded(x, 4):8.4f}" for x in over(end.summed, end.l)))
    return lines


def weights():
    return ["i j row   m   P                            rowsum",
            *(f"{i} {j} {row:3} {number(s.m):>3} {cells(s.P, 7)}  {number(sum(s.P)):>8}"
              for (i, j, row), s in all_steps())]


def outputs():
    return ["i j row   01: O, divided by l                    02: O, a plain sum",
            *(f"{i} {j} {row:3} {cells(s.divided, 9)}  |{cells(s.summed, 9)}" for (i, j, row), s in all_steps())]


def parts_of(row):
    """Each key tile by itself, as two blocks of 06 leave it: O and L, and the weight 2^(L_s - L) of each; and L."""
    L = L_of(steps_of(row)[-1])
    parts = [step(row, j) for j in (0, 1)]
    return [(part.divided, L_of(part), 2 ** (L_of(part) - L)) for part in parts], L


def merge():
    lines = ["row     L_0 weight  O_0                             L_1 weight  O_1                               L"]
    for row in ROWS:
        parts, L = parts_of(row)
        shown = "".join(f" {number(own):>7}  {number(weight):>5} {cells(O, 7)} " for O, own, weight in parts)
        lines.append(f"{row:3}{shown}{number(L):>8}")
    return lines


def line(name, value):
    return f"  {name:<7} {value}"


def step_lines(s, before):
    """The arithmetic of one row at one key tile."""
    tile = V[s.j * TILE:(s.j + 1) * TILE]
    lines = [f"key tile {s.j}", line("S", listed(s.S))]
    if before is None:
        lines.append(line("m", number(s.m)))
    else:
        lines += [line("m", f"max({number(before.m)}, {number(max(s.S))}) = {number(s.m)}"),
                  line("alpha", f"2^({number(before.m)} - {number(s.m)}) = {number(s.alpha)}")]
    products = " + ".join(f"{number(p)} {vector(v)}" for p, v in zip(s.P, tile))
    lines += [line("P", listed(s.P)), line("P V", products), line("", f"= {vector(s.PV)}")]
    total = listed(s.P, " + ")
    if before is None:
        return [*lines, line("l", f"{total} = {number(s.l)}"),
                line("01: O", f"{vector(s.PV)} / {number(s.l)} = {vector(s.divided)}"), line("02: O", vector(s.summed))]
    alpha = number(s.alpha)
    return [*lines, line("l", f"{alpha} x {number(before.l)} + ({total}) = {number(s.l)}"),
            line("01: O",
                 f"({alpha} x {number(before.l)} x {vector(before.divided)} + {vector(s.PV)}) / {number(s.l)}"),
            line("", f"= {vector(s.divided)}"),
            line("02: O", f"{alpha} x {vector(before.summed)} + {vector(s.PV)}"), line("", f"= {vector(s.summed)}")]


def row_lines(row):
    """The arithmetic of one query row, from its scores to its O and L: by 01, by 02, and by 06."""
    first, last = steps_of(row)
    ((O_0, L_0, w), (O_1, L_1, _)), L = parts_of(row)
    first_weight, rest = number(w), number(1 - w)
    end = f"{number(last.m)} + log2({number(last.l)})"
    return [*step_lines(first, None), *step_lines(last, first), "at the end",
            f"  02: O   {vector(last.summed)} / {number(last.l)} = {vector(over(last.summed, last.l))}",
            f"  L       {end} = {number(L)}", "06, the tiles as two parts",
            f"  O_0     {vector(O_0)}   L_0 = {number(L_0)}   2^(L_0 - L) = {first_weight}",
            f"  O_1     {vector(O_1)}   L_1 = {number(L_1)}   2^(L_1 - L) = {rest}",
            f"  O       {first_weight} x {vector(O_0)} + {rest} x {vector(O_1)} = "
            f"{vector(combined([w, 1 - w], [O_0, O_1]))}"]


PARTS = {"": every_step, "inputs": inputs, "scores": score_lines, "weights": weights, "outputs": outputs,
         "merge": merge}


@block("worked_example")
def worked_example(_, __, words):
    """ "worked_example", "worked_example scores", "worked_example row 0" """
    part, *rest = words or [""]
    if part == "row":
        lines = row_lines(numbers(rest)[0])
    elif part in PARTS and not rest:
        lines = PARTS[part]()
    else:
        raise Failure(f"the worked example has no part '{' '.join(words)}'")
    return "```text\n" + "\n".join(lines) + "\n```\n"
