"""Draws the figures of the lessons as SVG, in colours that follow the reader's theme.

    draw.py [FOLDER]    writes FOLDER/*.svg; this folder if none is named

Plain text is written, so the same script gives the same bytes; a test compares them with the files. A figure is WIDTH
pixels wide, which fits a phone, and its words have 12 pixels at least. A page may show it larger.
"""

import re
import sys
import textwrap
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from themes import COLORS, adaptive  # noqa: E402

WIDTH = 420
SMALL, PLAIN, HEAD = 12, 13, 14
WARPS = ("shared", "own", "green", "pink")  # four that share something: warps, blocks, heads
FIGURES = {}


def figure(name, title):
    """Decorates a function that draws on a Figure; `name` is that of its files."""
    def register(draw):
        FIGURES[name] = (draw, title)
        return draw
    return register


def number(value):
    return f"{value:.2f}".rstrip("0").rstrip(".")


def words_of(words):
    """Text as SVG: what follows _ or ^, one letter or several in braces, is an index or an exponent."""
    parts = re.split(r"([_^])(\w|\{[^}]*\})", words)
    text = escape(parts[0], quote=False)
    for mark, small, after in zip(parts[1::3], parts[2::3], parts[3::3]):
        shift = 3 if mark == "_" else -4
        text += f'<tspan dy="{shift}" font-size="75%">{escape(small.strip("{}"), quote=False)}</tspan>'
        text += f'<tspan dy="{-shift}">{escape(after, quote=False)}</tspan>' if after else ""
    return text


class Figure:
    """Shapes and words; units are pixels from the upper left corner, and colours are names of a theme."""

    def __init__(self):
        self.elements = []
        self.bottom = 0  # of all that is drawn

    def add(self, tag, body="", **attributes):
        text = "".join(f' {name.replace("_", "-")}="{number(value) if isinstance(value, (int, float)) else value}"'
                       for name, value in attributes.items() if value is not None)
        self.elements.append(f"<{tag}{text}>{body}</{tag}>" if body else f"<{tag}{text}/>")

    def box(self, x, y, width, height, fill=None, opacity=0.25, line="faint", dashed=False, thick=1, round=0):
        self.bottom = max(self.bottom, y + height)
        self.add("rect", x=x, y=y, width=width, height=height, rx=round or None, fill=f"@{fill}" if fill else "none",
                 fill_opacity=opacity if fill else None, stroke=f"@{line}" if line else None,
                 stroke_width=thick if line and thick != 1 else None, stroke_dasharray="4 3" if dashed else None)

    def text(self, x, y, words, color="text", size=PLAIN, anchor="start", bold=False):
        """Words on the baseline y."""
        self.bottom = max(self.bottom, y + 4)
        self.add("text", words_of(words), x=x, y=y, fill=f"@{color}", font_size=size if size != PLAIN else None,
                 text_anchor=anchor if anchor != "start" else None, font_weight="bold" if bold else None)

    def lines(self, x, y, lines, step=16, **style):
        for i, words in enumerate(lines):
            self.text(x, y + step * i, words, **style)

    def note(self, y, words):
        """A paragraph below a picture, as wide as it; where ~ is no line ends."""
        self.lines(0, y, [line.replace("~", " ") for line in textwrap.wrap(words, 64)], size=SMALL)

    def legend(self, y, *entries):
        """What colours mean: (x, color, words), without a color of what is not computed."""
        for x, color, words in entries:
            self.box(x, y, 13, 13, color, 0.35, dashed=not color)
            self.text(x + 18, y + 11, words, size=SMALL)

    def label(self, x, y, width, height, words, **style):
        """Words in the middle of a box."""
        size = style.get("size", PLAIN)
        self.text(x + width / 2, y + height / 2 + 0.36 * size, words, anchor="middle", **style)

    def cell(self, x, y, width, height, words, fill=None, opacity=0.25, color="text", size=PLAIN, bold=False, **style):
        self.box(x, y, width, height, fill, opacity, **style)
        self.label(x, y, width, height, words, color=color, size=size, bold=bold)

    def line(self, *points, color="faint", thick=1.2, dashed=False):
        path = "M" + " L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.add("path", d=path, fill="none", stroke=f"@{color}", stroke_width=thick,
                 stroke_dasharray="4 3" if dashed else None)

    def arrow(self, *points, color="faint", thick=1.5, both=False):
        """A line along the points, with a head at the end, or at both."""
        self.line(*points, color=color, thick=thick)
        for (x0, y0), (x, y) in [(points[-2], points[-1])] + ([(points[1], points[0])] if both else []):
            length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
            ux, uy = (x - x0) / length * 7, (y - y0) / length * 7
            corners = ((x, y), (x - ux - uy / 2, y - uy + ux / 2), (x - ux + uy / 2, y - uy - ux / 2))
            self.add("path", d="M" + " L".join(f"{number(a)} {number(b)}" for a, b in corners) + " Z",
                     fill=f"@{color}")

    def svg(self, title):
        height = number(self.bottom + 2)
        body = "\n".join(self.elements)
        body = re.sub(r'"@(\w+)"', lambda match: f'"{COLORS[match[1]][0]}"', body)
        return adaptive(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
                        f'viewBox="0 0 {WIDTH} {height}" font-size="{PLAIN}" '
                        'font-family="system-ui, -apple-system, \'Segoe UI\', Helvetica, Arial, sans-serif">\n'
                        f"<title>{escape(title, quote=False)}</title>\n{body}\n</svg>\n")


def grid(f, x, y, rows, columns, size, cell):
    """A table of squares; cell(row, column) gives (words, fill), or more as keyword arguments."""
    for r in range(rows):
        for c in range(columns):
            words, fill, *style = cell(r, c)
            f.cell(x + size * c, y + size * r, size, size, words, fill, **(style[0] if style else {"size": SMALL}))


# --- One mma ---------------------------------------------------------------------------------------------------------


@figure("00-mma", "What lane 5 holds of the operands of one mma m16n8k16, and the addresses that it passes to ldmatrix")
def one_mma(f):
    """The numbers are those of docs/one_mma.md, where its interactive figure has them from docs/site/one_mma.js."""
    lane, size, wide = 5, 15, 16.5
    g, t = lane // 4, lane % 4
    rows, pairs = (g, g + 8), (2 * t, 2 * t + 1, 2 * t + 8, 2 * t + 9)
    a = [[(r + k) % 7 % 3 for k in range(16)] for r in range(16)]
    b = [[(k + c) % 11 % 4 for c in range(8)] for k in range(16)]
    left, right, top, bottom = 22, 286, 34, 310

    def matrix(x, y, height, columns, width, value, mine, of_the_sum):
        for r in range(height):
            f.text(x - 4, y + size * r + 12, str(r), "own" if r in mine[0] else "faint", SMALL, "end")
            for c in range(columns):
                held = r in mine[0] and c in mine[1]
                f.cell(x + width * c, y + size * r, width, size, str(value(r, c)),
                       "own" if held else "shared" if of_the_sum(r, c) else None, 0.6 if held else 0.2, size=SMALL,
                       bold=held, line="grid")
        for c in range(0, columns, columns // 8):  # of 16 every other: the numbers need the room
            f.text(x + width * (c + 0.5), y - 4, str(c), "own" if c in mine[1] else "faint", SMALL, "middle")

    matrix(left, bottom, 16, 16, size, lambda r, k: a[r][k], (rows, pairs), lambda r, k: r == g)
    matrix(right, top, 16, 8, wide, lambda k, c: b[k][c], (pairs, (g,)), lambda k, c: c == 2 * t)
    matrix(right, bottom, 16, 8, wide, lambda r, c: sum(a[r][k] * b[k][c] for k in range(16)), (rows, pairs[:2]),
           lambda r, c: (r, c) == (g, 2 * t))
    f.box(left, bottom + size * (lane % 16), 8 * size, size, line="green", thick=2.5)
    f.box(right + wide * (lane % 8), top, wide, 8 * size, line="green", thick=2.5)
    for x, y, words in ((left, bottom - 20, "A, 16 × 16"), (right, 14, "B, 16 × 8"), (right, bottom - 20, "C = A B, 16 × 8")):
        f.text(x, y, words, bold=True)
    f.text(0, 14, "lane 5 = 4 g + t: g = 1, t = 1", bold=True, size=HEAD)
    for n, (color, words) in enumerate((
            ("own", ["held by lane 5, in 32-bit registers", "a[0] to a[3], b0 and b1: pairs;", "d[0] to d[3]: one each"]),
            ("shared", ["row 1 of A and column 2 of B, whose", "16 products are d[0]; lanes 4 to 7 hold",
                        "the row, lanes 8 to 11 the column"]),
            ("green", ["the 16 bytes whose address lane 5", "passes to ldmatrix: in A row 5 from",
                       "column 0 on; in B, which lies in", "memory by columns, column 5 from", "row 0 on"]))):
        y = 36 + 62 * n
        f.box(0, y, 13, 13, None if color == "green" else color, 0.6 if color == "own" else 0.2,
              line="green" if color == "green" else "grid", thick=2.5 if color == "green" else 1)
        f.lines(20, y + 11, words, size=SMALL)
    f.note(bottom + 16 * size + 22, "A pair of neighbours shares a register. Lane 5 receives nothing of the row of A that "
           "it names: its address serves the warp, and the elements of row 5 go to lanes 20 to 23.")


@figure("00-banks", "Eight rows of 64 elements in the banks of shared memory: plain, padded and XOR-swizzled")
def banks(f):
    layouts = (("plain", "64 elements", lambda r, c: 128 * r + 16 * c),
               ("padded", "72 elements", lambda r, c: 144 * r + 16 * c),
               ("swizzled", "64, c XOR r % 8", lambda r, c: 128 * r + 16 * (c ^ r % 8)))
    size, piece = 15, 2
    for n, (name, what, address) in enumerate(layouts):
        x = 20 + 138 * n
        f.text(x, 14, name, bold=True)
        f.text(x, 30, what, "faint", SMALL)
        for c in range(0, 8, 2):
            f.text(x + size * (c + 0.5), 48, str(4 * c), "faint", SMALL, "middle")
        for r in range(8):
            if n == 0:
                f.text(x - 6, 54 + size * r + 12, str(r), "faint", SMALL, "end")
            for c in range(8):
                group = address(r, c) // 16 % 8
                f.cell(x + size * group, 54 + size * r, size, size, str(c), "own" if c == piece else "shared",
                       0.7 if c == piece else 0.1, size=SMALL, bold=c == piece, line="grid")
        used = [address(r, piece) // 16 % 8 for r in range(8)]
        ways = max(used.count(group) for group in used)
        f.text(x, 54 + 8 * size + 18, f"{ways}-way conflict" if ways > 1 else "no conflict", "own", SMALL, bold=True)
        f.text(x, 54 + 8 * size + 34, f"{4 * len(set(used))} banks, {ways} pass{'es' if ways > 1 else ''}", size=SMALL)
    f.note(234, "Eight rows r run down. A square is 16 bytes, four of the 32 banks; the numbers above are banks. "
           "The number in it is the piece c of the row (columns 8 c to 8 c + 7) that lies there. Orange: "
           "piece 2 of each row, one 8~×~8 matrix of an ldmatrix.")


# --- The algorithm ---------------------------------------------------------------------------------------------------


@figure("00s-memory", "The memories of a GPU, and the path of a tile through them")
def memories(f):
    f.text(0, 14, "where it is, on an H200", bold=True, size=HEAD)
    f.text(WIDTH, 14, "a tile's path", bold=True, size=HEAD, anchor="end")
    levels = [("HBM", "for all SMs: Q, K, V, O", "faint", 0, 260),
              ("L2 cache", "60 MB for all 132 SMs", "faint", 18, 224),
              ("shared memory", "228 KB per SM: tiles of Q, K, V", "shared", 18, 224),
              ("registers", "256 KB per SM: S, P, O, m, l", "own", 18, 224),
              ("tensor cores", "4 per SM: mma", "green", 18, 224)]
    f.box(0, 145, 260, 190, dashed=True)
    f.text(18, 162, "one SM (multiprocessor)", "faint", SMALL)
    tops = [26, 84, 170, 226, 282]
    for (name, what, color, x, width), y in zip(levels, tops):
        f.box(x, y, width, 44, color, 0.18)
        f.text(x + 10, y + 18, name, bold=True)
        f.text(x + 10, y + 35, what, "faint", SMALL)
    ways = [(70, 84, 26, 170, "cp.async: K, V", 48, 192), (214, 226, 192, 248, "ldmatrix", 200, 240),
            (270, 282, 248, 304, "mma: S, then P V", 260, 300)]
    for *_, words, start, end in ways:
        f.arrow((268, start), (282, start), (282, end), (266, end), color="shared", thick=1.8)
        f.text(289, (start + end) / 2 + 4, words, "shared", SMALL)
    f.arrow((8, 248), (8, 240), (8, 74), color="own", thick=1.8)
    f.line((18, 248), (8, 248), color="own", thick=1.8)
    f.note(354, "The path up: from 03 on, O leaves once. 01 and 02 take O, m and l through HBM at every key tile, "
           "and 00 writes S and P there and reads them back.")


@figure("07-row", "What thread r of a block of 07 reads and keeps for one key tile")
def one_row(f):
    wide, right, strip = 120, 262, 156
    f.text(0, 14, "shared memory, for 64 threads", bold=True)
    f.text(right, 14, "registers of thread r", bold=True)
    for y, height, name, color in ((28, 96, "Q_i", None), (142, 56, "K_j", "shared"), (226, 56, "P", None), (310, 56, "V_j", "shared")):
        f.box(0, y, wide, height, color, 0.35)
        f.text(wide + 8, y + 14, name, bold=True)
    f.cell(0, 70, wide, 14, "row r", "own", 0.6, size=SMALL)
    f.label(0, 142, wide, 56, "all 32 keys", size=SMALL)
    f.box(82, 226, 14, 56, "own", 0.6)
    f.text(18, 258, "column r", size=SMALL)
    f.label(0, 310, wide, 56, "all 32 keys", size=SMALL)
    f.cell(right, 112, strip, 24, "row r of S", "green", 0.35)
    f.cell(right, 180, strip, 24, "m, l", "green", 0.35)
    f.cell(right, 284, strip, 24, "row r of O", "pink", 0.35)
    f.arrow((wide, 77), (right - 2, 120))
    f.arrow((wide, 170), (right - 2, 130))
    f.arrow((right + 78, 136), (right + 78, 178))
    f.arrow((right + 30, 136), (right + 30, 160), (200, 160), (200, 256), (wide + 2, 256))
    f.arrow((wide, 272), (right - 2, 292))
    f.arrow((wide, 338), (right - 2, 302))
    f.text(206, 250, "exp(S - m)", "faint", SMALL)
    f.text(right, 102, "line 8: 32 sums over d", "faint", SMALL)
    f.text(right, 222, "line 9: two loops over 32", "faint", SMALL)
    f.text(right, 326, "line 10: d sums over 32", "faint", SMALL)
    f.note(386, "All threads read the same number of K_j or V_j at the same time. Of Q_i and P each reads what no other thread does.")


@figure("00-naive", "Three kernels, with S and P in global memory between them")
def naive(f):
    for x, width, name, what in ((4, 122, "scores", "S = scale Q K^T"), (152, 112, "softmax", "P, L, row by row"),
                                 (290, 126, "output", "O = P V")):
        f.box(x, 22, width, 44, "shared", 0.18)
        f.label(x, 24, width, 22, name, bold=True)
        f.label(x, 42, width, 22, what, color="faint", size=SMALL)
    f.text(0, 14, "on the SMs", "faint", SMALL)
    f.box(0, 142, WIDTH, 122, "faint", 0.1)
    f.text(361, 200, "HBM", "faint", PLAIN, "middle", bold=True)
    places = {"Q": (10, 13), "K": (38, 13), "S": (82, 90), "P": (200, 90), "V": (322, 13), "O": (386, 13)}
    for name, (x, width) in places.items():
        wide = width > 13
        f.cell(x, 152, width, 90, name if wide else "", "own" if wide else "shared", 0.3 if wide else 0.45, size=20)
        if not wide:
            f.text(x + width / 2, 257, name, anchor="middle")
    f.text(127, 232, "4 N^2 bytes", anchor="middle", size=SMALL)
    f.text(245, 232, "2 N^2 bytes", anchor="middle", size=SMALL)
    for x in (16, 44):
        f.arrow((x, 150), (x, 68))
    f.arrow((98, 68), (98, 150), color="own")
    for x in (157, 162, 167):
        f.arrow((x, 150), (x, 68), color="own")
    f.arrow((228, 68), (228, 150), color="own")
    f.arrow((284, 150), (300, 68), color="own")
    f.arrow((328, 150), (346, 68))
    f.arrow((392, 68), (392, 150))
    f.text(104, 112, "once", size=SMALL)
    f.text(174, 106, "3 times", size=SMALL)
    f.text(234, 124, "once", size=SMALL)
    f.note(284, "One head: Q, K, V and O are N~×~d, drawn narrow; S and P are N~×~N. Arrows show what the kernels "
           "request.")


@figure("01-loops", "Key tiles in the outer loop, query tiles in the inner one")
def loops(f):
    x0, y0, size = 104, 92, 42
    f.text(x0 + 2 * size, 14, "outer loop: key tiles j", bold=True, anchor="middle")
    f.arrow((x0, 24), (x0 + 4 * size, 24), color="shared", thick=2)
    for j in range(4):
        now = j == 1
        f.cell(x0 + size * j, 34, size, 22, f"K_{j}", "shared" if now else None, 0.45)
        f.cell(x0 + size * j, 58, size, 22, f"V_{j}", "shared" if now else None, 0.45)
    for i in range(4):
        now = i == 2
        f.cell(x0 - 44, y0 + size * i, 32, size, f"Q_{i}", "shared" if now else None, 0.45)
        f.cell(x0 + 4 * size + 12, y0 + size * i, 54, size, f"O_{i}, m, l", "own" if now else None, 0.45, size=SMALL)

    def step(i, j):
        n = 4 * j + i
        return str(n + 1), "own" if n == 6 else ("shared" if n < 6 else None), \
            {"opacity": 0.5 if n == 6 else 0.15, "bold": n == 6, "size": SMALL, "dashed": n > 6}
    grid(f, x0, y0, 4, 4, size, step)
    f.lines(0, y0 + 58, ["inner", "loop:", "query", "tiles i"], bold=True)
    f.arrow((52, y0), (52, y0 + 4 * size), color="shared", thick=2)
    x = x0 + 4 * size + 70
    y = y0 + 2.5 * size
    f.arrow((x, y), (x + 32, y), color="own", thick=2, both=True)
    f.box(x + 36, y0, 38, 4 * size, "faint", 0.15)
    f.label(x + 36, y0, 38, 4 * size, "HBM")
    f.note(284, "At step 7, K_1 and V_1 stay in shared memory while the query tiles pass. Each step reads Q_i from "
           "HBM, reads O_i, m and l in fp32, and writes these three back. Only one tile of S and P exists at a time, "
           "in registers: the N~×~N matrix is never written.")


@figure("02-division", "Where O is divided by l: at every key tile, or once")
def division(f):
    def chain(y, steps, last, title):
        f.text(0, y, title, bold=True)
        height = 24 * len(steps)
        for n, name in enumerate(("tile 0", "tile 1", "last tile")):
            x = 8 + 124 * n
            f.text(x + 40, y + 20, name, "faint", SMALL, "middle")
            for r, (words, extra) in enumerate(steps):
                f.cell(x, y + 26 + 24 * r, 80, 24, words, "own" if extra else "shared", 0.4 if extra else 0.15)
            if n < 2:
                f.arrow((x + 84, y + 26 + height / 2), (x + 120, y + 26 + height / 2), thick=1.8)
                if n == 1:
                    f.text(x + 102, y + 19 + height / 2, "O, m, l", "faint", SMALL, "middle")
                    f.text(x + 102, y + 43 + height / 2, "...", "faint", anchor="middle")
        if last:
            f.arrow((340, y + 26 + height / 2), (358, y + 26 + height / 2), thick=1.8)
            f.cell(360, y + 14 + height / 2, 52, 24, "÷ l", "own", 0.4)
    chain(14, [("× l", True), ("× α", False), ("+ P V", False), ("÷ l'", True)], False,
          "01: O is normalized after every tile")
    f.line((88, 124), (110, 124), (110, 52), (132, 52), color="own", thick=1.8, dashed=True)
    f.text(116, 150, "the same l: ÷ l, and then × l", "own", SMALL)
    f.line((110, 124), (110, 146), color="own", dashed=True)
    chain(186, [("× α", False), ("+ P V", False)], True, "02: O is a plain sum until the end")
    f.note(292, "The factor α = exp (m − m') follows the maximum, and stays. Two operations disappear: the division "
           "at one tile, and the multiplication by the same l at the next.")


@figure("03-grid", "The loops swapped: one block per head, or a block for each query tile")
def swapped(f):
    size = 38
    for x, title in ((0, "02: one block per head"), (230, "03: a block per query tile")):
        f.text(x, 14, title, bold=True)
        for j in range(4):
            f.text(x + 30 + size * j + size / 2, 34, f"K_{j} V_{j}", "faint", SMALL, "middle")
        for i in range(4):
            f.text(x, 40 + size * i + size / 2 + 4, f"Q_{i}", "faint", SMALL)
    grid(f, 30, 40, 4, 4, size, lambda i, j: (str(4 * j + i + 1), "shared"))
    grid(f, 260, 40, 4, 4, size, lambda i, j: (str(j + 1), WARPS[i], {"opacity": 0.4, "size": SMALL}))
    f.text(0, 212, "16 steps, one after the other.", size=SMALL)
    f.text(0, 228, "O, m, l of all rows wait in HBM.", size=SMALL)
    f.text(230, 212, "4 steps, all rows at once.", size=SMALL)
    f.text(230, 228, "O, m, l stay in registers.", size=SMALL)
    for x, used, words in ((0, 4, "long: 4 blocks, 4 SMs of 132"), (230, 132, "long: 1024 blocks, all SMs")):
        for n in range(132):
            f.box(x + n % 22 * 8, 250 + n // 22 * 8, 6.5, 6.5, "own" if n < used else None, 0.8,
                  line=None if n < used else "grid")
        f.text(x, 315, words, size=SMALL)


@figure("04-split-q", "Which warp owns what of a tile of scores: sliced-K and split-Q")
def split_q(f):
    size = 168
    for x, title in ((0, "01 to 03: sliced-K"), (236, "04: split-Q")):
        f.text(x, 14, title, bold=True)
    for w in range(4):
        part = size / 4
        f.cell(part * w, 46, part, size, "", WARPS[w], 0.35)
        f.text(part * w + part / 2, 38, f"w {w}", anchor="middle", size=SMALL)
        f.cell(236, 46 + part * w, size, part, f"w {w}", WARPS[w], 0.35, size=SMALL)
        if w:
            f.line((0, 46 + part * w), (size, 46 + part * w), dashed=True)
    for slice_ in range(4):
        f.text(size + 6, 46 + 42 * slice_ + 25, f"slice {slice_}", "faint", SMALL)
    f.text(236 + size / 2, 38, "64 keys", "faint", SMALL, "middle")
    f.arrow((8, 236), (160, 236), color="own", thick=2, both=True)
    f.lines(0, 260, ["A row is in four warps w.", "For each slice they exchange", "maxima, sums and parts of P V",
                     "through shared memory:", "8 barriers per tile, and one", "after the copies."], size=SMALL)
    f.lines(236, 260, ["A row is in four lanes of", "one warp: two shuffles and", "no barrier. 2 barriers per",
                       "tile, both for the copies."], size=SMALL)
    f.text(84, 229, "exchange", "own", SMALL, "middle")
    f.text(236 + size / 2, 240, "nothing to exchange", "shared", SMALL, "middle")


@figure("04-fragments", "The layout of mma m16n8k16: which lane holds which element")
def fragments(f):
    g0, t0 = 2, 1
    f.text(0, 14, "S, and as P the next A", bold=True)
    f.text(0, 31, "16 rows × 16 keys", "faint", SMALL)
    x0, y0, width, height = 34, 56, 22, 17
    for c in range(8):
        f.text(x0 + width * c + width / 2, y0 - 5, f"{2 * c}", "faint", SMALL, "middle")
    for r in range(16):
        g = r % 8
        f.text(x0 - 6, y0 + height * r + 13, "g" if r == g0 else ("g+8" if r == g0 + 8 else ""), "own", SMALL, "end")
        for c in range(8):
            t = c % 4
            mine = (g, t) == (g0, t0)
            f.cell(x0 + width * c, y0 + height * r, width, height, str(4 * g + t), "own" if mine else "shared",
                   0.75 if mine else (0.12 if (r < 8) == (c < 4) else 0.24), size=SMALL, bold=mine, line="grid")
    f.text(x0 + width * 1.5, y0 + 16 * height + 15, "t", "own", SMALL, "middle")
    f.text(x0 + width * 5.5, y0 + 16 * height + 15, "t", "own", SMALL, "middle")
    f.text(250, 14, "V, the next B", bold=True)
    f.text(250, 31, "16 keys × 8 columns", "faint", SMALL)
    x1, width1, height1 = 258, 20, 34
    for c in range(8):
        f.text(x1 + width1 * c + width1 / 2, y0 - 5, "g" if c == g0 else "", "own", SMALL, "middle")
    for p in range(8):
        f.text(x1 - 5, y0 + height1 * p + 22, f"{2 * p}", "faint", SMALL, "end")
        for c in range(8):
            mine = (c, p % 4) == (g0, t0)
            f.cell(x1 + width1 * c, y0 + height1 * p, width1, height1, str(4 * c + p % 4), "own" if mine else "shared",
                   0.75 if mine else (0.12 if p < 4 else 0.24), size=SMALL, bold=mine, line="grid")
    f.note(366, "A cell is two neighbours, of a row of S or of a column of V. Its number is the lane that holds "
           "them, lane = 4 g + t. Orange marks lane 9, g = 2 and t = 1: rows g and g + 8, columns 2t and 2t + 1, and "
           "the same 8 further on. S leaves one mma in the layout of the P of the next. The four lanes of one g hold "
           "a row.")


@figure("05-causal", "The tiles under a causal mask in 04 and in 05")
def causal(f):
    size, count = 30, 6
    for x, title, skips in ((0, "04", False), (236, "05", True)):
        f.text(x, 14, title, bold=True)
        f.text(x + 90, 14, "key tiles j", "faint", SMALL, "middle")
        for i in range(count):
            for j in range(count):
                left, top = x + size * j, 22 + size * i
                if skips and j > i:
                    f.box(left, top, size, size, line="grid", dashed=True)
                else:
                    masked = not skips or i == j
                    f.box(left, top, size, size, "own" if masked else "shared", 0.35 if masked else 0.3)
        f.line((x, 22), (x + size * count, 22 + size * count), color="text", thick=1.8)
    f.lines(188, 100, ["query", "tiles i"], color="faint", size=SMALL)
    f.legend(214, (0, "shared", "full, no mask"), (126, "own", "masked"), (216, None, "skipped: never started"))
    f.note(250, "04 computes all 36 tiles and masks each of them; 05 computes 21 and masks 6. With whole tiles and Nq = Nk "
           "these are Tr~(Tr~+~1)~/~2 of Tr^2, and one masked tile per query tile.")


@figure("06-split-keys", "The keys split over blocks, and the merge by log-sum-exp")
def split_keys(f):
    f.text(0, 14, "keys: 12 tiles of K and V", bold=True)
    for n in range(12):
        f.cell(35 * n, 22, 35, 26, f"{n}", WARPS[n // 3], 0.35, size=SMALL)
    for s in range(4):
        x = 105 * s
        f.arrow((x + 52, 50), (x + 52, 74))
        f.box(x + 8, 76, 88, 46, WARPS[s], 0.2)
        f.label(x + 8, 78, 88, 22, f"block {s}", bold=True)
        f.label(x + 8, 98, 88, 20, "q, one row", color="faint", size=SMALL)
        f.arrow((x + 52, 124), (x + 52, 148))
        f.cell(x + 8, 150, 88, 26, f"O_{s} , L_{s}", WARPS[s], 0.35)
        f.arrow((x + 52, 178), (210 + (s - 1.5) * 50, 214))
    f.text(0, 200, "fp32, in HBM", "faint", SMALL)
    f.box(60, 216, 300, 62, "faint", 0.12)
    f.label(60, 216, 300, 24, "second kernel: the merge", bold=True)
    f.label(60, 236, 300, 20, "L = log Σ exp (L_s)")
    f.label(60, 256, 300, 20, "O = Σ exp (L_s − L) O_s")
    f.note(302, "Each block computes attention over its own keys, with its own m and l. L_s = m + log l is the "
           "weight of its keys; a part that sees no key has L_s = −∞, which is weight 0.")


# --- Decoding --------------------------------------------------------------------------------------------------------


@figure("10s-packed", "Four query heads on one key/value head: a tile each, or the rows of one tile")
def packed(f):
    for x, title in ((0, "06: a tile for each head"), (236, "10: the rows of one tile")):
        f.text(x, 14, title, bold=True)
        f.cell(x, 26, 184, 26, "K and V of the group", "shared", 0.3)
    for h in range(4):
        x = 47 * h
        f.arrow((x + 20, 54), (x + 20, 84), thick=2)
        f.box(x, 86, 41, 112)
        f.box(x, 86, 41, 7, WARPS[h], 0.8, line=None)
        f.text(x + 20, 214, f"head {h}", anchor="middle", size=SMALL)
    f.arrow((328, 54), (328, 84), thick=2)
    f.box(284, 86, 88, 112)
    for h in range(4):
        f.box(284, 86 + 7 * h, 88, 7, WARPS[h], 0.8, line=None)
    f.text(328, 214, "heads 0 to 3", anchor="middle", size=SMALL)
    f.text(328, 160, "64 rows", "faint", SMALL, "middle")
    f.lines(0, 240, ["K and V are requested 4 times;", "1 of 64 rows is used"], size=SMALL)
    f.lines(236, 240, ["K and V are requested once;", "4 of 64 rows are used"], size=SMALL)


@figure("11-keys", "A tile with four rows and 64 keys: warps by rows in 10, by keys in 11")
def keys_by_warps(f):
    for x, title in ((0, "10: warps divide rows"), (236, "11: warps divide keys")):
        f.text(x, 14, title, bold=True)
        f.text(x + 84, 36, "64 keys", "faint", SMALL, "middle")
    for w in range(4):
        f.cell(0, 44 + 28 * w, 168, 28, "w 0: 4 of 16 rows" if w == 0 else f"w {w}: no rows", None if w else WARPS[0], 0.35,
               color="faint" if w else "text", size=SMALL, dashed=w > 0)
        x = 236 + 42 * w
        f.cell(x, 44, 42, 28, f"w {w}", WARPS[w], 0.35, size=SMALL)
        f.arrow((x + 21, 74), (x + 21, 92))
        f.cell(x, 94, 42, 26, "m l O", WARPS[w], 0.2, size=SMALL)
        f.arrow((x + 21, 122), (x + 21, 140))
    f.cell(236, 142, 168, 26, "one merge, after the loop", "faint", 0.12, size=SMALL)
    f.lines(0, 180, ["Warp 0 computes; the others", "only copy, and wait for it."], size=SMALL)
    f.lines(236, 192, ["All warps compute the same", "rows, with their own m, l, O."], size=SMALL)


@figure("14-last-block", "Four blocks that share a query tile, and their counter: a schematic time line")
def last_block(f):
    left, unit = 60, 31
    for block, (keys, *more) in enumerate(((4,), (5.2,), (3,), (6, ("merge", 2.4, "green")))):
        time_line(f, left, unit, 6 + 30 * block, f"block {block}", "shared",
                  (("keys", keys, "shared"), ("part", 1.3, "own"), ("count", 1.5, "pink"), *more))
    time_line(f, left, unit, 130, "counter", "text", [(words, length, "grid") for words, length in (
        ("0", 5.8), ("1", 1), ("2", 1.2), ("3", 0.8), ("0", 2.4))])
    f.note(178, "Schematic, not measured. A block counts when its part is written. The one that finds 3, of 4 blocks, is the last: it "
           "sees all four parts and merges them. The counter has wrapped to 0, as the next launch needs it.")


@figure("10s-stream-k", "Six query tiles on four SMs: whole tiles in waves, or even shares")
def stream_k(f):
    tiles, length, places = 6, 8, 4
    tints = ["faint", "text", *WARPS]
    unit, left = 20, 62

    def bar(y, place, start, tile, first, last):
        f.cell(left + unit * start, y + 24 * place, unit * (last - first), 20, f"tile {tile}", tints[tile], 0.35,
               size=SMALL)

    for y, title in ((26, "a block for each query tile: two waves"), (172, "even shares: as many blocks as SMs")):
        f.text(0, y - 10, title, bold=True)
        for place in range(places):
            f.text(0, y + 24 * place + 15, f"SM {place}", "faint", SMALL)
    for tile in range(tiles):
        bar(26, tile % places, length * (tile // places), tile, 0, length)
    for place in (2, 3):
        f.box(left + unit * length, 26 + 24 * place, unit * length, 20, dashed=True)
        f.label(left + unit * length, 26 + 24 * place, unit * length, 20, "idle", color="faint", size=SMALL)
    share = (tiles - places) * length // places  # of what whole tiles leave over
    for place in range(places):
        bar(172, place, 0, place * share // length, 0, share)
        bar(172, place, share, tiles - places + place, 0, length)
    f.line((left + unit * 12, 166), (left + unit * 12, 272), color="text", dashed=True)
    f.line((left + unit * 16, 20), (left + unit * 16, 126), color="text", dashed=True)
    f.text(left + unit * 16, 142, "16 key tiles", anchor="end", size=SMALL)
    f.text(left + unit * 12, 288, "12 key tiles", anchor="end", size=SMALL)
    f.note(310, "An SM holds one block here. Each query tile visits 8 key tiles. Query tiles 2 to 5 stay whole. The key tiles of 0 and 1 are cut "
           "into four equal shares, which start first; each of these two is merged from two parts.")


# --- Long queries ----------------------------------------------------------------------------------------------------


@figure("20s-wide-warps", "One fragment of K serves one slice of 16 query rows, or two")
def wide_warps(f):
    for x, title, slices in ((0, "05: 16 rows per warp", 1), (236, "20: 32 rows per warp", 2)):
        f.text(x, 14, title, bold=True)
        f.cell(x + 62, 26, 110, 40, "K, V", "shared", 0.15)
        f.box(x + 62, 26, 26, 40, "own", 0.7)
        f.text(x, 44, "shared", "faint", SMALL)
        f.text(x, 59, "memory", "faint", SMALL)
        f.arrow((x + 75, 68), (x + 75, 100), color="own", thick=2)
        f.text(x + 84, 89, "ldmatrix, once", "own", SMALL)
        f.cell(x + 62, 102, 26, 24, "", "own", 0.7)
        f.text(x, 118, "registers", "faint", SMALL)
        for s in range(slices):
            y = 150 + 48 * s
            f.cell(x, y, 46, 34, f"Q {s}" if slices > 1 else "Q", "shared", 0.3, size=SMALL)
            f.cell(x + 62, y, 80, 34, f"S {s}" if slices > 1 else "S", None, size=SMALL)
            f.box(x + 62, y, 26, 34, "green", 0.6)
            f.arrow((x + 62, 114), (x + 54, 114), (x + 54, y + 17), (x + 61, y + 17), color="green", thick=1.8)
            f.text(x + 147, y + 21, "mma", "green", SMALL)
    f.text(0, 262, "per tile, d = 128:", size=SMALL)
    f.text(0, 279, "72 ldmatrix for 128 mma", size=SMALL)
    f.text(236, 262, "per tile, d = 128:", size=SMALL)
    f.text(236, 279, "80 ldmatrix for 256 mma", size=SMALL)


@figure("20s-swizzle", "The XOR swizzle: where the pieces of eight rows lie")
def swizzle(f):
    size = 21
    for x, title, place in ((18, "in order: position c", lambda r, c: c),
                            (250, "swizzled: c XOR r", lambda r, c: c ^ r)):
        f.text(x - 18, 14, title, bold=True)
        for c in range(8):
            f.text(x + size * c + size / 2, 36, str(c), "faint", SMALL, "middle")
        for r in range(8):
            f.text(x - 12, 42 + size * r + 15, str(r), "faint", SMALL, "middle")
            for c in range(8):
                mine = c == 2
                f.cell(x + size * place(r, c), 42 + size * r, size, size, str(c), "own" if mine else "shared",
                       0.7 if mine else 0.1, size=SMALL, bold=mine, line="grid")
    f.text(0, 232, "piece 2 of 8 rows: 1 position,", size=SMALL)
    f.text(0, 248, "4 banks, 8 turns", size=SMALL)
    f.text(232, 232, "piece 2 of 8 rows: 8 positions,", size=SMALL)
    f.text(232, 248, "32 banks, 1 turn", size=SMALL)
    f.note(274, "Rows r run down, positions of 16 bytes run across. A position is 4 of the 32 banks of shared memory. "
           "A cell shows the piece c that is stored at it. ldmatrix reads one piece of each of 8 rows; a copy writes a "
           "row, which is still one whole line, with its pieces in another order.")


@figure("20s-pipeline", "When the copies run: before the arithmetic, or during it")
def pipeline(f):
    left, right = 66, WIDTH

    def lanes(y, title):
        f.text(0, y, title, bold=True)
        f.text(0, y + 25, "copies", "faint", SMALL)
        f.text(0, y + 53, "compute", "faint", SMALL)
        f.line((left, y + 66), (right, y + 66), color="grid")

    def bar(y, start, end, words, color):
        f.cell(left + start, y, end - start, 22, words, color, 0.35, size=SMALL)

    lanes(14, "21: copy, wait, compute")
    for start, j in ((0, "j"), (178, "{j+1}")):
        bar(24, start, start + 74, f"K_{j} , V_{j}", "shared")
        bar(52, start + 76, start + 112, "S", "own")
        bar(52, start + 112, start + 142, "P", "own")
        bar(52, start + 142, start + 176, "P V", "own")
    f.text(left + 37, 68, "idle", "faint", SMALL, "middle")
    f.text(left + 215, 68, "idle", "faint", SMALL, "middle")
    lanes(118, "22: each copy runs while its buffer is free")
    for n, (j, after) in enumerate((("j", "{j+1}"), ("{j+1}", "{j+2}"), ("{j+2}", "{j+3}"))):
        start = 112 * n
        bar(128, start, start + 38, f"V_{j}", "shared")
        bar(128, start + 46, start + 84, f"K_{after}", "shared")
        bar(156, start, start + 44, f"S_{j}", "own")
        bar(156, start + 46, start + 72, "P", "own")
        bar(156, start + 72, start + 108, "P V", "own")
        for x in (start - 1, start + 45):
            f.line((left + x, 124), (left + x, 182), color="text", thick=1.8)
    f.note(214, "Time runs to the right, not to scale. K has one buffer, and so has V. S = Q K^T reads K while V "
           "arrives. The softmax (P) and P V no longer need K, so the next K arrives during them. A thick line is a "
           "barrier: the tile in flight has arrived, and all warps have read the tile that the next copy overwrites.")


@figure("23-lag", "When m follows the maximum of a row: at each new one, or once it is 2^8 too low")
def lag(f):
    maxima, base, unit, width = (3, 2, 4, 5, 4, 13, 11, 12), 160, 8, 23
    for x, title, lag_of in ((0, "22: m is the maximum", 0), (236, "23: m may lag by 8", 8)):
        f.text(x, 14, title, bold=True)
        m, risen = None, []
        for j, maximum in enumerate(maxima):
            left, before = x + width * j, m
            f.box(left + 3, base - unit * maximum, width - 6, unit * maximum, "shared", 0.3)
            if m is None or maximum > m + lag_of:
                m = maximum
                risen.append(j)
            if before not in (None, m):
                f.line((left, base - unit * before), (left, base - unit * m), color="own", thick=2.5)
            f.line((left, base - unit * m), (left + width, base - unit * m), color="own", thick=2.5)
            if lag_of and m + lag_of < 16:
                f.line((left, base - unit * (m + lag_of)), (left + width, base - unit * (m + lag_of)), dashed=True)
            f.text(left + width / 2, base + 15, str(j), "own" if j in risen else "faint", SMALL, "middle", j in risen)
        f.line((x, base), (x + width * len(maxima), base))
        f.text(x, base + 34, f"m rises in tiles {', '.join(map(str, risen))}", "own", SMALL)
    f.text(236, base - unit * 11 - 5, "m + 8", "faint", SMALL)
    f.note(base + 58, "The bars are the largest exponents of one row in each key tile j, in base 2. Where m (the "
           "thick line) rises, l and O are rescaled. With the lag no exponent exceeds m + 8, so P stays below 2^8.")


@figure("24-sectors", "The sectors of global memory that one store instruction of a warp writes")
def sectors(f):
    width, height = 22, 16
    for x, title, filled, below in ((0, "23: from fragments", lambda r, s: 0.5 if s == 1 else 0,
                                     ["8 rows, 16 bytes of each:", "8 sectors, half of each"]),
                                    (236, "24: whole rows", lambda r, s: 1 if r < 2 else 0,
                                     ["2 rows, all 256 bytes of each:", "16 sectors, whole"])):
        f.text(x, 14, title, bold=True)
        for r in range(8):
            for s in range(8):
                left, top = x + width * s, 26 + height * r
                f.box(left, top, width, height, line="grid")
                if share := filled(r, s):
                    f.box(left, top, width * share, height, "own", 0.6, None)
        f.lines(x, 174, below, size=SMALL)
    f.note(216, "Eight rows of O at d = 128, in 16 bits. A cell is a sector of 32 bytes, the unit in which global "
           "memory moves. One store instruction of a warp writes the coloured part.")


def in_order(f, y, title, order, places, left, unit, noun, takes_turns=False):
    """Query tiles (head, units of time) in an order, on so many places: each where one is free first, or by turns."""
    f.text(0, y, title, bold=True)
    free = [0] * places
    for n, (h, i) in enumerate(order):
        place = n % places if takes_turns else free.index(min(free))
        f.cell(left + unit * free[place], y + 10 + 17 * place, unit * i, 17, str(i), WARPS[h], 0.35, size=SMALL)
        free[place] += i
    end = max(free)
    f.line((left + unit * end, y + 6), (left + unit * end, y + 15 + 17 * places), color="text", thick=1.8)
    f.lines(0, y + (5 + 17 * places) // 2, [f"{places} {noun}", f"end: {end}"], size=SMALL, color="faint")


@figure("25-order", "The same blocks in two orders: head by head, and the longest first")
def order(f):
    heads, tiles = 3, 5
    head_by_head = [(h, i) for h in range(heads) for i in range(1, tiles + 1)]
    longest_first = [(h, i) for i in range(tiles, 0, -1) for h in range(heads)]
    for y, title, blocks in ((14, "24: head by head", head_by_head), (142, "25: the longest first", longest_first)):
        in_order(f, y, title, blocks, 5, 62, 28, "SMs")
    f.note(266, "Three heads (colours) with five query tiles each; under a mask query tile i takes i units of time. "
           "Each block starts on the first free SM. Both orders do 45 units of work on 5 SMs: 9 is the least.")


@figure("26-ring", "The two slots of K: when they are full, and when they are empty")
def two_slots(f):
    left, unit = 58, 90

    def bar(slot, start, words, color, width=1):
        f.cell(left + unit * start, 32 + 62 * slot, unit * width, 24, words, color, 0.35, size=SMALL)

    for slot in range(2):
        f.text(0, 48 + 62 * slot, f"slot {slot}", bold=True)
    bar(0, 0, "copy K_0", "shared")
    bar(0, 1, "S_0 reads K_0", "own")
    bar(0, 2, "copy K_2", "shared")
    bar(0, 3, "S_2 reads K_2", "own")
    bar(1, 1, "copy K_1", "shared")
    bar(1, 2, "S_1 reads K_1", "own")
    bar(1, 3, "copy K_3", "shared")
    marks = ((0, 1, "full", 0), (0, 2, "empty", 0), (0, 3, "full", 1), (1, 2, "full", 0), (1, 3, "empty", 0))
    for slot, at, kind, phase in marks:
        x, y = left + unit * at, 32 + 62 * slot
        f.line((x, y - 5), (x, y + 29), color="text", thick=1.8)
        f.text(x, y - 9, f"{kind}, phase {phase}", "faint", SMALL, "middle")
    f.arrow((left, 140), (left + 4 * unit, 140))
    f.text(left, 155, "time, not to scale; V has two slots of its own", "faint", SMALL)
    f.note(180, "Tile j is in slot j % 2, in phase j / 2 of its mbarriers. A phase of full ends when the copies of all "
           "threads have landed; a phase of empty ends when all threads have read the tile. A warp waits only for the "
           "phase that its own next step needs.")


# --- Hopper ----------------------------------------------------------------------------------------------------------


@figure("30s-swizzle", "A row of a tensor in panels of 128 bytes, and the 128-byte swizzle of eight rows of a panel")
def panels(f):
    f.text(0, 14, "one row of d = 128 in global memory: two panels", bold=True)
    for c in range(16):
        mine = c in (2, 3)
        f.cell(26 * c, 22, 26, 22, str(c % 8), "own" if mine else ("shared" if c < 8 else "green"),
               0.7 if mine and c == 2 else 0.35 if mine else 0.1, size=SMALL, bold=mine, line="grid")
    f.line((208, 20), (208, 46), color="text", thick=1.8)
    f.text(104, 60, "panel 0: columns 0 to 63", "faint", SMALL, "middle")
    f.text(312, 60, "panel 1: columns 64 to 127", "faint", SMALL, "middle")
    f.arrow((104, 66), (104, 96), color="shared", thick=2)
    f.text(96, 86, "one bulk load", "shared", SMALL, "end")
    f.arrow((312, 66), (312, 96), color="green", thick=2)
    f.text(304, 86, "128 × rows further", "green", SMALL, "end")
    size, left, top = 21, 42, 104
    for r in range(8):
        f.text(left - 5, top + size * r + 15, f"+{128 * r}", "faint", SMALL, "end")
        for c in range(8):
            f.cell(left + size * (c ^ r), top + size * r, size, size, str(c), "own" if c in (2, 3) else "shared",
                   0.7 if c == 2 else 0.35 if c == 3 else 0.1, size=SMALL, bold=c in (2, 3), line="grid")
    f.text(0, top + 8 * size + 18, "8 rows of panel 0 in shared memory", bold=True)
    f.lines(222, top + 12, ["Piece c of row r lies at", "c XOR r % 8: address bits", "4 to 6 XOR bits 7 to 9.", "",
                            "Orange: columns 16 to 31,", "a k-step: pieces 2 and 3.", "Piece 2 of eight rows is in",
                            "eight places: all 32 banks.", "Unswizzled, it would be in", "one place, 4 banks."],
            size=SMALL)


@figure("30s-descriptor", "The 64 bits of a matrix descriptor, and what its offsets mean for K and for V")
def descriptor(f):
    f.text(0, 14, "matrix descriptor, 64 bits", bold=True)
    bit = WIDTH / 64
    f.box(0, 38, WIDTH, 24, line="faint")
    for high, low, words, fill in ((63, 62, "1", "green"), (51, 49, "0", None), (45, 32, "stride / 16", "own"),
                                   (29, 16, "leading / 16", "pink"), (13, 0, "address / 16", "shared")):
        x, width = bit * (63 - high), bit * (high - low + 1)
        f.cell(x, 38, width, 24, words, fill, 0.35, size=SMALL)
        f.text(max(x + width / 2, 18), 33, f"{high}-{low}", "faint", SMALL, "middle")
    f.text(0, 77, "128-byte swizzle", "green", SMALL)
    f.text(118, 77, "base offset", "faint", SMALL)
    group, width, top = 17, 70, 142
    for x, title, what, rows in ((0, "Q, K: rows together", "K-major", "8 rows"),
                                 (228, "V: columns together", "MN-major (transposed)", "8 keys")):
        f.text(x, 102, title, bold=True)
        f.text(x, 118, what, "faint", SMALL)
        for panel in range(2):
            left = x + 46 + panel * (width + 4)
            f.text(left + width / 2, top - 4, f"panel {panel}", "faint", SMALL, "middle")
            for r in range(6):
                f.box(left, top + group * r, width, group, "shared", 0.08, line="grid")
        for r in range(6):
            f.text(x + 42, top + group * r + 13, rows, "faint", SMALL, "end")
    bottom = top + 6 * group
    step = width / 4
    f.box(46, top, step, 6 * group, "own", 0.5)
    f.box(46 + step, top, step, 6 * group, line="own", dashed=True, thick=1.6)
    f.arrow((46 + step / 2, bottom + 8), (46 + 1.5 * step, bottom + 8), color="own", thick=1.8)
    f.text(46 + 2 * step, bottom + 13, "+32", "own", SMALL)
    left = 228 + 46
    for panel in range(2):
        f.box(left + panel * (width + 4), top, width, 2 * group, "own", 0.5)
        f.box(left + panel * (width + 4), top + 2 * group, width, 2 * group, line="own", dashed=True, thick=1.6)
    f.arrow((left + 14, top + group), (left + 14, top + 3 * group), color="own", thick=1.8)
    f.text(left + 21, top + 3 * group + 4, "+2048", "own", SMALL)
    f.arrow((left + width / 2 + 8, bottom + 8), (left + width * 1.5 + 4, bottom + 8), color="pink", thick=1.8)
    f.text(left + width / 2, bottom + 13, "leading", "pink", SMALL, "end")
    for x, words in ((0, ["A wgmma reads 16 columns of", "all rows (orange).", "stride 1024: the next 8 rows",
                          "leading: not used", "next k-step: start + 32,", "next panel: + 128 × rows"]),
                     (228, ["A wgmma reads 16 keys of all", "columns (orange).", "stride 1024: the next 8 keys",
                            "leading 128 Bc: the next panel", "next k-step: start + 2048"])):
        f.lines(x, bottom + 36, words, size=SMALL)
    f.note(bottom + 140, "Offsets are in bytes, before the XOR. The XOR acts on the final address, so a start may "
           "move within a row of 128 bytes. Each group of 8 rows is 1024 bytes.")


@figure("30s-fragment", "S leaves a wgmma in the registers in which P enters the next one")
def accumulators(f):
    g0, t0 = 2, 1
    f.text(0, 14, "S of a warpgroup: 64 rows × Bc keys", bold=True)
    for w in range(4):
        f.cell(0, 22 + 20 * w, 200, 20, "", WARPS[w], 0.25)
        f.text(208, 36 + 20 * w, f"warp {w}: rows {16 * w} to {16 * w + 15}", "faint", SMALL)
    f.box(75, 42, 25, 20, "own", 0.7)
    f.text(208, 118, "orange: 16 keys, a k-step of P V", size=SMALL)
    f.line((75, 62), (32, 150), dashed=True)
    f.line((100, 62), (192, 150), dashed=True)
    width, height, top = 20, 13, 168
    for x, title, names, fill in ((32, "fp32 accumulators of S", ("0, 1", "2, 3", "4, 5", "6, 7"), "shared"),
                                  (258, "16-bit A of P V", ("A[0]", "A[1]", "A[2]", "A[3]"), "green")):
        f.text(x, 163, title, bold=True)
        f.box(x, top, 8 * width, 16 * height, fill, 0.08, line="faint")
        f.line((x + 4 * width, top), (x + 4 * width, top + 16 * height), color="grid")
        f.line((x, top + 8 * height), (x + 8 * width, top + 8 * height), color="grid")
        for n, words in enumerate(names):
            column, row = t0 + n // 2 * 4, g0 + n % 2 * 8
            f.box(x + width * column, top + height * row, width, height, "own", 0.75, line="text")
            f.text(x + width * column + width / 2, top + height * (row + 2) + 2, words, size=SMALL, anchor="middle")
    for row, name in ((g0, "g"), (g0 + 8, "g+8")):
        f.text(28, top + height * row + 11, name, "own", SMALL, "end")
    f.arrow((196, top + 104), (254, top + 104), color="text", thick=2)
    f.text(225, top + 96, "pack", size=SMALL, anchor="middle")
    f.text(225, top + 122, "exp2,", "faint", SMALL, "middle")
    f.text(225, top + 137, "round", "faint", SMALL, "middle")
    f.note(top + 16 * height + 20, "Lane 9, g = 2 and t = 1, of its warp's 16 rows. A cell is two neighbours of a row. "
           "Register A[i] is accumulators 2i and 2i + 1 of these 16 keys, in the same lane and at the same place: no "
           "shuffle, and no shared memory. The next 16 keys are accumulators 8 to 15.")


@figure("30s-ring", "A ring of slots with two mbarriers each, between a producer and consumers")
def ring(f):
    f.cell(0, 4, WIDTH, 24, "producer: one thread. Tile n goes to slot p = n % 4", "green", 0.25)
    f.text(6, 46, "1. wait for empty[p], phase n / 4 − 1: the slot is free", size=SMALL)
    f.text(6, 62, "2. expect 16 KB at full[p], and start the bulk load", size=SMALL)
    for p, (tile, state, full, empty, fill, opacity) in enumerate((
            ("tile 4", "has arrived", "16 KB", "0 of 3", "shared", 0.25),
            ("tile 5", "arrives", "8 KB", "0 of 3", "green", 0.35),
            ("tile 2", "being read", "16 KB", "2 of 3", "own", 0.3),
            ("tile 3", "being read", "16 KB", "0 of 3", "own", 0.3))):
        x = 108 * p
        f.box(x, 100, 96, 62, fill, opacity)
        f.text(x + 48, 117, f"slot {p}", "faint", SMALL, "middle")
        f.text(x + 48, 134, tile, bold=True, anchor="middle")
        f.text(x + 48, 152, state, anchor="middle", size=SMALL)
        for y, name, count in ((162, "full", full), (182, "empty", empty)):
            f.box(x, y, 96, 20)
            f.text(x + 4, y + 14, name, "faint", SMALL)
            f.text(x + 92, y + 14, count, size=SMALL, anchor="end")
        if p < 3:
            f.arrow((x + 97, 131), (x + 107, 131))
    f.arrow((156, 68), (156, 97), color="green", thick=2)
    f.arrow((372, 94), (372, 84), (48, 84), (48, 97))
    for g, (tile, place) in enumerate((("tile 3", 3), ("tile 3", 3), ("tile 2", 2))):
        x = 282 - 141 * g
        f.cell(x, 244, 138, 24, f"group {g} reads {tile}", WARPS[1], 0.25, size=SMALL)
        target = 108 * place + (72 if g == 0 else 36 if g == 1 else 48)
        f.line((target, 203), (x + 69, 243), color="own", thick=1.8)
    f.text(6, 286, "1. wait for full[p], phase n / 4: all bytes have arrived", size=SMALL)
    f.text(6, 302, "2. wgmma, and wait for it", size=SMALL)
    f.text(6, 318, "3. one thread of each group arrives at empty[p]", size=SMALL)
    f.note(342, "K at d = 64: four slots, three consumer groups. V uses a ring of its own, so that Q~K^T does not "
           "wait for V. The producer needs slot 2 next, for tile 6, and waits for the missing arrival at empty[2].")


@figure("30s-turns", "In step, in turns, and in turns with the next Q K^T before P V: a schematic time line")
def turns(f):
    left, unit, units = 62, 25.5, 14

    def bar(y, start, end, words, color, opacity, height=20, line="faint"):
        end = min(end, units)
        if start < end:
            f.box(left + unit * start, y, unit * (end - start), height, color, opacity, line)
            if words and unit * (end - start) >= 8 * len(words):
                f.label(left + unit * start, y, unit * (end - start), height, words, size=SMALL)

    def lanes(y, title, softmax, period, busy):
        f.text(0, y, title, bold=True)
        for n, name in enumerate(("group 0", "tensor", "group 1")):
            f.text(0, y + 23 + 24 * n, name, WARPS[n // 2] if n != 1 else "faint", SMALL)
        for g, first in enumerate(softmax):
            for start in range(first - period, units, period):
                bar(y + 9 + 48 * g, max(start, 0), start + 3, "softmax", WARPS[g], 0.2)
        f.text(left, y + 94, f"tensor cores at work: {busy}", "faint", SMALL)

    lanes(14, "in step", (2, 2), 7, "4 of 7 units")
    for start, words in ((0, "S"), (5, "PV"), (7, "S"), (12, "PV")):
        for g in range(2):
            bar(47 + 10 * g, start, start + 2, "", WARPS[g], 0.55, 10, None)
        f.box(left + unit * start, 47, 2 * unit, 20)
        f.label(left + unit * start, 47, 2 * unit, 20, words, size=SMALL)
    lanes(130, "in turns (ping-pong)", (2, 4), 5, "4 of 5 units")
    for start in range(0, units, 5):
        for n, words in enumerate(("PV", "S", "PV", "S")):
            bar(163, start + n, start + n + 1, words, WARPS[n // 2], 0.55)
    lanes(246, "in turns, the next S before P V", (1, 3), 4, "4 of 4 units")
    for start in range(0, units, 4):
        for n, words in enumerate(("S", "PV", "S", "PV")):
            bar(279, start + n, start + n + 1, words, WARPS[n // 2], 0.55)
    f.note(364, "A schematic, not a measurement: a product of one group takes one unit, a softmax three, and time "
           "runs to the right. In step, both groups multiply at once, each at half the speed, and then neither does. "
           "In turns, a group's softmax runs while the other multiplies. With the next S first, it also runs during "
           "the group's own P~V.")


@figure("33-pipeline", "The products and the softmax of one warpgroup: one after the other, and software-pipelined")
def software_pipeline(f):
    left, unit, tiles = 62, 22, 4

    def bar(y, start, length, words, color, opacity):
        f.cell(left + unit * start, y, unit * length, 20, words, color, opacity, size=SMALL)

    def lanes(y, title, end):
        f.text(0, y, title, bold=True)
        for n, name in enumerate(("products", "softmax")):
            f.text(0, y + 24 + 24 * n, name, "faint", SMALL)
        f.line((left + unit * end, y + 6), (left + unit * end, y + 58), color="text", thick=1.8)

    lanes(14, "32: one after the other", 4 * tiles)
    for j in range(tiles):
        bar(24, 4 * j, 1, f"S_{j}", "shared", 0.4)
        bar(48, 4 * j + 1, 2, f"P_{j}", "own", 0.3)
        bar(24, 4 * j + 3, 1, f"V_{j}", "green", 0.4)
    lanes(104, "33: the next scores before P V", 3 * tiles + 1)
    for j in range(tiles):
        bar(114, 3 * j, 1, f"S_{j}", "shared", 0.4)
        bar(138, 3 * j + 1, 2, f"P_{j}", "own", 0.3)
        bar(114, 3 * j + 4 if j + 1 < tiles else 3 * tiles, 1, f"V_{j}", "green", 0.4)
    for start, end, words in ((0, 3, "prologue"), (3, 6, "pass 1"), (6, 9, "pass 2"), (9, 12, "pass 3")):
        f.line((left + unit * start + 1, 164), (left + unit * end - 1, 164), color="text")
        f.text(left + unit * (start + end) / 2, 179, words, "faint", SMALL, "middle")
    f.line((left + unit * 12 + 1, 164), (left + unit * 13 - 1, 164), color="text")
    f.text(left + unit * 12 + 4, 179, "epilogue", "faint", SMALL)
    f.note(204, "One warpgroup and four key tiles: scores S_j, softmax P_j, product P V (V_j). This is a schematic, "
           "not a measurement: a product takes one unit, a softmax two. Each pass of 33 starts two products and "
           "finishes the softmax of tile j while P~V of tile j - 1 runs.")


@figure("34-stay", "Two query tiles on one multiprocessor: two blocks, and one block that stays")
def stay(f):
    left, unit = 62, 14.5

    def lanes(y, title, end):
        f.text(0, y, title, bold=True)
        for n, name in enumerate(("copies", "compute", "store O")):
            f.text(0, y + 24 + 24 * n, name, "faint", SMALL)
        f.line((left + unit * end, y + 6), (left + unit * end, y + 82), color="text", thick=1.8)

    def bar(y, lane, start, length, words, color, opacity=0.35):
        f.cell(left + unit * start, y + 10 + 24 * lane, unit * length, 20, words, color, opacity, size=SMALL)

    lanes(14, "33: a block per query tile", 24)
    for start, tile, color in ((0, "A", "shared"), (12, "B", "own")):
        bar(14, 0, start, 3, "first", color, 0.5)
        bar(14, 0, start + 3, 4, f"K, V of {tile}", color, 0.2)
        bar(14, 1, start + 3, 7, f"query tile {tile}", color)
        bar(14, 2, start + 10, 2, "O", color)
    lanes(124, "34: one block for both", 19)
    bar(124, 0, 0, 3, "first", "shared", 0.5)
    bar(124, 0, 3, 4, "K, V of A", "shared", 0.2)
    bar(124, 0, 7, 3, "first", "own", 0.5)
    bar(124, 0, 10, 4, "K, V of B", "own", 0.2)
    bar(124, 1, 3, 7, "query tile A", "shared")
    bar(124, 1, 10, 7, "query tile B", "own")
    bar(124, 2, 10, 2, "O", "shared")
    bar(124, 2, 17, 2, "O", "own")
    f.note(230, "A schematic, not a measurement; time runs to the right. 'first': Q and the first K and V. In 33 "
           "nothing computes while they arrive and while O is stored. In 34 the producer copies for B during the "
           "products of A, and O of A leaves during those of B.")


@figure("35-shares", "The same query tiles on three blocks: fixed shares in two orders, and from a counter")
def shares(f):
    heads, tiles = 2, 6
    by_head = [(h, i) for h in range(heads) for i in range(1, tiles + 1)]
    longest_first = [(h, i) for i in range(tiles, 0, -1) for h in range(heads)]
    for y, title, order, takes_turns in ((14, "fixed shares, head by head", by_head, True),
                                         (102, "fixed shares, the longest first", longest_first, True),
                                         (190, "from a counter, the longest first", longest_first, False)):
        in_order(f, y, title, order, 3, 70, 19, "blocks", takes_turns)
    f.note(276, "Two heads (colours) with six query tiles each; under a mask tile i takes i units of time. Fixed shares: "
           "block x takes tiles x, x~+~3, x~+~6 ... of the order. From a counter: a block takes the next tile when it is "
           "done with one. All do 42 units of work on 3 blocks: 14 is the least.")


@figure("36-diagonal", "Key tiles that each warpgroup computes at d = 64, causal, N = 512, before and after")
def own_diagonal(f):
    left, top, width, height, keys, rows = 150, 40, 52, 18, 128, 64
    f.text(left + 2 * width, 14, "key tiles of 128 keys", "faint", SMALL, "middle")
    for j in range(4):
        f.text(left + width * (j + 0.5), 31, str(j), "faint", SMALL, "middle")
    for group in range(9):
        tile, y = group // 3, top + height * group + 8 * (group // 3)
        if group % 3 == 0:
            f.text(0, y + 1.5 * height + 5, f"query tile {tile}", bold=True)
        f.text(left - 8, y + 13, f"group {group % 3}", "faint", SMALL, "end")
        of_block = -(-min(512, 192 * (tile + 1)) // keys)
        own = -(-rows * (group + 1) // keys) if group < 8 else 0
        for j in range(4):
            if j < own:
                f.box(left + width * j, y, width, height, "own", 0.45)
            elif j < of_block:
                f.cell(left + width * j, y, width, height, "no row" if own == 0 else "masked", "pink", 0.25, size=SMALL)
            else:
                f.box(left + width * j, y, width, height, line="grid")
    f.note(242, "A cell is 64 rows by 128 keys. 35 computes every coloured cell, 27 in all, since each warpgroup visits all "
           "key tiles of its block. 7 of them, with words, contribute nothing: all scores are masked, or the rows lie past "
           "the last query. 36 computes the other 20.")


@figure("37-rows", "A tile for each head of a group, or one for all of them")
def packed_rows(f):
    heads, width, height, rows = 8, 42, 64, 8

    def tint(head):
        return {"fill": WARPS[head % 4], "opacity": 0.55 if head < 4 else 0.25}

    f.text(0, 14, "36: a tile of 128 rows for each head", bold=True)
    for head in range(heads):
        x = 4 + 52 * head
        f.box(x, 36, width, height, dashed=True)
        f.box(x, 36, width, rows, **tint(head))
        f.text(x + width / 2, 30, f"head {head}", "faint", SMALL, "middle")
        f.label(x, 36 + rows, width, height - rows, "empty", color="faint", size=SMALL)
        f.arrow((x + width / 2, 128), (x + width / 2, 104))
        f.text(x + width / 2, 142, "K, V", size=SMALL, anchor="middle")
    top = 172
    f.text(0, top, "37: one tile for the group", bold=True)
    for query in range(16):
        for head in range(heads):
            f.box(0, top + 14 + 8 * query + head, 88, 1, line=None, **tint(head))
    f.box(0, top + 14, 88, 128)
    for query in (0, 1):  # which lines lead to the enlarged rows
        f.line((88, top + 14 + 10 * query), (150, top + 14 + 140 * query), color="grid")
    for row in range(10):
        f.cell(150, top + 14 + 14 * row, 148, 14, f"row {row}: query {row // heads}, head {row % heads}", size=SMALL,
               line="grid", **tint(row % heads))
    f.arrow((44, top + 176), (44, top + 148))
    f.text(44, top + 190, "K, V", size=SMALL, anchor="middle")
    f.note(top + 214, "16 query rows of 8 heads that share K and V. In 36 each head has a tile, of which 112 rows are empty, and "
           "K and V are read for each of these tiles. In 37 the 128 rows fill one tile, with the heads of a query next to each "
           "other, and K and V are read once.")


@figure("38-shares", "Two query tiles on eight SMs: undivided, and in even shares")
def even_shares(f):
    places, length, unit, left, step = 8, 12, 24, 62, 17
    for top, title in ((26, "37: a block for each query tile"), (204, "38: even shares, and a second kernel")):
        f.text(0, top - 10, title, bold=True)
        for place in range(places):
            f.text(0, top + step * place + 12, f"SM {place}", "faint", SMALL)
    for place in range(places):
        y = 26 + step * place
        if place < 2:
            f.cell(left, y, unit * length, step - 3, f"query tile {place}: key tiles 0 to {length - 1}", WARPS[place], 0.35, size=SMALL)
        else:
            f.cell(left, y, unit * length, step - 3, "idle", color="faint", size=SMALL, dashed=True)
        share, tile = 2 * length // places, place * 2 // places
        first = place * share % length
        f.cell(left, 204 + step * place, unit * share, step - 3, f"{first} to {first + share - 1}", WARPS[tile], 0.35,
               size=SMALL)
    f.cell(left + unit * 3 + 6, 204, 132, step * places - 3, "merge of the parts", size=SMALL)
    f.note(204 + step * places + 18, "Each query tile has 12 key tiles. In 38 four blocks compute three of them each and write a part: "
           "O, m and l. The second kernel merges the parts on all SMs, with a warp for each row.")


@figure("39-launch", "The ends of four blocks and the merge after them: launched in order, and early")
def early_launch(f):
    ends, left, step, width, copied = (202, 216, 190, 208), 46, 18, 88, 66  # where each block ends; its last copy is before
    for top, title, merge, early in ((26, "38: in order", 330, False), (150, "39: early", 276, True)):
        f.text(0, top - 10, title, bold=True)
        for place, end in enumerate(ends):
            y = top + step * place
            f.text(0, y + 12, f"SM {place}", "faint", SMALL)
            f.box(left, y, end - left, step - 4, WARPS[0], 0.35)
            f.text(left + 6, y + 11, "key tiles", size=SMALL)
            if early:
                f.line((end - copied, y), (end - copied, y + step - 4), color="pink", thick=3)
                f.cell(end + 4, y, merge - end - 8, step - 4, "waits", color="faint", size=SMALL, dashed=True)
            f.cell(merge, y, width, step - 4, "merge", WARPS[1], 0.35, size=SMALL)
        y = top + step * len(ends) + 8
        if early:
            f.text(max(ends) - copied - 8, y + 4, "launch", anchor="end", size=SMALL)
            f.arrow((max(ends) - copied, y), (min(ends) + 4, y))
        f.arrow((max(ends), y), (merge, y), both=True)
        f.text(merge + 6, y + 4, "end" if early else "end, launch", size=SMALL)
    f.note(266, "Time runs to the right. In 38 the merge is launched when the first kernel has ended: its last block, and all of its "
           "writes. In 39 the producer of each block says after its last copy (thick line) that the merge may start. Blocks of the "
           "merge take the SMs that become free, and wait there for the end.")


def window_tile(row, column, before):
    """Of a tile in a window of so many whole tiles before its own key: "full", "edge", or None if no row sees it."""
    if not row - before <= column <= row:
        return None
    return "edge" if column in (row - before, row) else "full"


@figure("60-window", "The tiles of a sliding window in 05 and in 60")
def sliding_window(f):
    size, count, before = 24, 8, 3
    for x, title, skips in ((0, "05 would compute", False), (236, "60 computes", True)):
        f.text(x, 14, title, bold=True)
        for i in range(count):
            for j in range(count):
                left, top, kind = x + size * j, 22 + size * i, window_tile(i, j, before)
                if j > i or (skips and kind is None):
                    f.box(left, top, size, size, line="grid", dashed=True)
                else:
                    masked = kind == "edge" or kind is None
                    f.box(left, top, size, size, "own" if masked else "shared", 0.35 if masked else 0.3)
        f.line((x, 22), (x + size * count, 22 + size * count), color="text", thick=1.8)
        f.line((x, 22 + size * before), (x + size * (count - before), 22 + size * count), color="text", thick=1.8)
    f.legend(226, (0, "shared", "full, no mask"), (126, "own", "masked"), (216, None, "skipped: never started"))
    f.note(262, "Rows are query tiles, columns key tiles; a row sees its own key and as many keys before it as three "
           "tiles hold. 60 computes 26 of the 36 tiles up to the diagonal, and masks those that one of the two edges "
           "crosses.")


def column_patterns(rows):
    """Of four masks over so many rows and keys the bounds (LTS, LTE, UTS, UTE) of each key: rows that do not see it."""
    def part(starts, key):
        begin = max(start for start in starts if start <= key)
        return begin, min([start for start in starts if start > key] + [rows])
    documents, answers, prefix, question, first, window = (0, 20, 44), (24, 37, 50), 20, 24, 5, 10
    return {
        "documents": [(part(documents, key)[1], rows, 0, part(documents, key)[0]) for key in range(rows)],
        "prefix": [(rows, rows, 0, 0 if key < prefix else key) for key in range(rows)],
        "question and three answers": [(rows if key < question else part(answers, key)[1], rows, 0, key)
                                       for key in range(rows)],
        "global tokens and a window": [(rows, rows, 0, 0) if key < first else
                                       (max(first, key + window), rows, first, max(first, key - window + 1))
                                       for key in range(rows)],
    }


def tile_by_bounds(bounds, first, end):
    """What minima and maxima of the bounds of a key tile say of it for these rows: "skipped", "full" or "masked"."""
    bounds = [tuple(edge for start, stop in (key[:2], key[2:])
                    for edge in ((start, stop) if start < stop else (float("inf"), -float("inf")))) for key in bounds]
    least, largest = ([pick(key[k] for key in bounds) for k in range(4)] for pick in (min, max))
    if any(first >= largest[k] and end <= least[k + 1] for k in (0, 2)):
        return "skipped"
    return "masked" if any(first < largest[k + 1] and end > least[k] for k in (0, 2)) else "full"


@figure("62-patterns", "The tiles of four masks by column bounds")
def patterns_of_bounds(f):
    size, count, keys = 22, 8, 8
    for panel, (title, bounds) in enumerate(column_patterns(count * keys).items()):
        x, y = panel % 2 * 236, panel // 2 * 218
        f.text(x, y + 14, title, bold=True)
        for i in range(count):
            for j in range(count):
                kind = tile_by_bounds(bounds[keys * j:keys * (j + 1)], keys * i, keys * (i + 1))
                color = {"full": "shared", "masked": "own"}.get(kind)
                f.box(x + size * j, y + 22 + size * i, size, size, color, 0.35, line="faint" if color else "grid",
                      dashed=not color)
    f.legend(430, (0, "shared", "full, no mask"), (126, "own", "masked"), (216, None, "skipped: never started"))
    f.note(466, "Rows are query tiles, columns key tiles. Each key has two intervals of rows that do not see it; a "
           "tile is skipped if one of them contains all of its rows for every key, and full if none contains any.")


TILES = ("p.....", "fp....", "......", ".f.pf.", "f.f.pp")  # of a mask: full, partial, hidden


@figure("63-lists", "The lists of tiles of a mask")
def lists_of_tiles(f):
    size, left, right = 26, 24, 196
    f.text(left, 14, "key tiles", bold=True)
    f.text(right, 14, "full", bold=True)
    f.text(right + 90, 14, "partial", bold=True)
    first = {"f": [0], "p": [0]}
    for i, row in enumerate(TILES):
        y = 22 + size * i
        f.text(0, y + 18, str(i), "faint")
        for j, kind in enumerate(row):
            color = {"f": "shared", "p": "own"}.get(kind)
            f.cell(left + size * j, y, size, size, str(j), color, 0.35, "text" if color else "faint", SMALL,
                   line="faint" if color else "grid", dashed=not color)
        for x, kind in ((right, "f"), (right + 90, "p")):
            f.text(x, y + 18, ", ".join(str(j) for j, other in enumerate(row) if other == kind) or "-")
            first[kind].append(first[kind][-1] + row.count(kind))
    y = 22 + size * len(TILES) + 24
    for k, (name, kind) in enumerate((("full", "f"), ("partial", "p"))):
        tiles = [j for row in TILES for j, other in enumerate(row) if other == kind]
        f.text(0, y + 44 * k, f"{name}: first = " + ", ".join(map(str, first[kind])), size=SMALL)
        f.text(0, y + 44 * k + 18, f"{name}: tiles = " + ", ".join(map(str, tiles)), size=SMALL)
    f.legend(y + 86, (0, "shared", "full, no test"), (126, "own", "partial, 64 words of bits"),
             (302, None, "hidden"))
    f.note(y + 122, "Query tile r has the key tiles from tiles[first[r]] to tiles[first[r + 1] - 1] of each list. "
           "Query tile 2 has none: its rows have O = 0 and L = -inf. The bits of partial tiles have the order of "
           "their list.")


@figure("64-counters", "The 16 elements of P that share a counter")
def counters_of_elements(f):
    size, left, top, g, t = 12.3, 26, 20, 2, 1
    f.text(left, 14, "keys 0 to 31", bold=True)
    for row in range(17):
        f.line((left, top + size * row), (left + size * 32, top + size * row), color="grid")
    for key in range(33):
        f.line((left + size * key, top), (left + size * key, top + size * 16), color="grid")
    for row in (g, g + 8):
        f.text(left - 4, top + size * row + 10, str(row), size=SMALL, anchor="end")
        for key in range(32):
            if key % 8 // 2 == t:
                f.cell(left + size * key, top + size * row, size, size, str(row // 8 * 2 + key % 2), WARPS[key // 8], 0.45,
                       size=SMALL)
    y = top + size * 16 + 20
    for word in range(4):
        f.box(left + 92 * word, y - 11, 13, 13, WARPS[word], 0.45, line="faint")
        f.text(left + 92 * word + 18, y, f"word {word}", size=SMALL)
    f.note(y + 26, "The elements of lane 9 (g = 2, t = 1) in 16 rows and 32 keys of P. Its counter is (key 2, row 2, "
           "head, batch entry). Each element uses one byte of the four words that Philox computes.")


@figure("97-lanes", "The lanes of S transposed that need the bytes of a counter")
def lanes_of_a_counter(f):
    size, left, top, g, t = 12.3, 26, 34, 2, 1
    f.text(left, 14, "keys 0 to 15: warp 0", bold=True)
    f.text(left + size * 16, 14, "keys 16 to 31: warp 1", bold=True)
    for row in range(17):
        f.line((left, top + size * row), (left + size * 32, top + size * row), color="grid")
    for key in range(33):
        f.line((left + size * key, top), (left + size * key, top + size * 16), color="grid" if key % 16 else "faint")
    for row in (g, g + 1, g + 8, g + 9):
        f.text(left - 4, top + size * row + 10, str(row), size=SMALL, anchor="end")
        for key in range(32):
            if key % 8 // 2 == t:
                f.cell(left + size * key, top + size * row, size, size, str(4 * (key % 8) + row % 8 // 2),
                       WARPS[key // 16 * 2 + key % 2], 0.45 if row % 8 == g else 0.15, size=SMALL)
    for key in (2, 10, 18, 26):
        f.text(left + size * key + size / 2, top - 4, str(key), "faint", SMALL, "middle")
    f.note(top + size * 16 + 22, "Queries are rows here. The 16 strong cells share the counter (key 2, row 2), the 16 "
           "pale ones the counter (key 2, row 3). A number is the lane that holds the cell in S transposed. The four "
           "lanes need only these two counters of every 16 rows.")


@figure("95-draws", "Which warps compute the mask, apply it and multiply, over three key tiles")
def draws_ahead(f):
    left, unit, period, tiles = 86, 24.5, 4, 3
    lanes = ("tensor cores", "warpgroup 0", "warpgroup 1", "4 warps")
    for n, name in enumerate(lanes):
        f.text(0, 32 + 26 * n, name, "faint", SMALL)

    def bar(lane, start, length, words, color, opacity=0.35):
        f.cell(left + unit * start, 18 + 26 * lane, unit * length, 20, words, color, opacity, size=SMALL)

    for j in range(tiles):
        for g, color in enumerate(("shared", "own")):
            start = period * j + 2 * g
            bar(0, start, 1, f"S_{j + 1}", color, 0.4)
            bar(0, start + 1, 1, f"V_{j}", color, 0.2)
            bar(1 + g, start, 0.9, f"Z_{j}", "pink", 0.45)
            bar(1 + g, start + 1, 2.6, f"softmax {j + 1}", color)
        bar(3, period * j, 2.2, f"mask {j + 1}", "pink", 0.25)
    for j in range(tiles):
        f.line((left + unit * period * j, 12), (left + unit * period * j, 122), color="text", dashed=True)
    f.note(146, "A schematic, not a measurement; time runs to the right. A warpgroup starts its scores S_{j+1}, then applies "
           "the mask to P_j (Z_j) while they are computed, and then starts P_j~V_j. Four other warps compute the mask of the "
           "next tile, for both warpgroups.")


@figure("61-packed", "The tiles and blocks of three documents in one sequence")
def packed_documents(f):
    tile, left, top, scale, begin = 64, 96, 22, 0.9, 0
    f.text(0, 14, "block", bold=True)
    f.text(left, 14, "100, 30 and 200 keys", bold=True)
    f.box(left, top, 330 * scale, 330 * scale, line="grid")
    for document, length in enumerate((100, 30, 200)):
        first_block = begin // tile + document
        for i in range(-(-length // tile)):
            y, height = top + scale * (begin + tile * i), scale * min(tile, length - tile * i)
            f.text(0, y + min(height, 40) // 2 + 5, f"{first_block + i}: tile {i} of {document}", size=SMALL)
            for j in range(i + 1):
                f.box(left + scale * (begin + tile * j), y, scale * min(tile, length - tile * j), height,
                      "own" if i == j else "shared", 0.35)
        begin += length
    f.legend(336, (0, "shared", "full, no mask"), (126, "own", "masked"))
    f.note(372, "Causal. Documents 0, 1 and 2 have the blocks from 0, 2 and 4 on: floor(row / 64) + the document's number. "
           "Block 3 has no tile, since document 1 needs one block and has room for two. 14 tiles are computed.")


@figure("86-ring", "Four ranks, four steps: whose keys each rank holds, and which it sees under a causal mask")
def ring_of_ranks(f):
    ranks, left, width, height = 4, 64, 86, 44
    for t in range(ranks):
        f.text(left + width * t + width / 2 - 2, 14, f"step {t}", anchor="middle", bold=True)
    for rank in range(ranks):
        f.text(0, 50 + 56 * rank, f"rank {rank}", bold=True)
        for t in range(ranks):
            source = (rank - t) % ranks
            words = "its own" if source == rank else "all" if source < rank else "none"
            color = {"its own": "own", "all": "shared"}.get(words)
            x, y = left + width * t, 22 + 56 * rank
            f.box(x, y, width - 6, height, color, 0.35, dashed=not color)
            f.text(x + width / 2 - 3, y + 19, f"K, V of {source}", size=SMALL, anchor="middle")
            f.text(x + width / 2 - 3, y + 35, words, size=SMALL, anchor="middle")
    f.legend(252, (0, "shared", "computed"), (96, "own", "up to the diagonal"), (236, None, "all of it comes later"))
    f.note(288, "In each step a rank attends to the keys that it holds, and then passes them on to the next rank. "
           "Under a causal mask it skips the keys of later ranks: rank 0 computes in only one step, but after the "
           "first step some rank always computes a whole square.")


@figure("87-zigzag", "Chunks of a sequence on four ranks: contiguous parts, and zigzag")
def zigzag_chunks(f):
    ranks, size = 4, 23
    chunks = 2 * ranks
    owners = (("contiguous: 86", [c // 2 for c in range(chunks)]),
              ("zigzag: 87", [min(c, chunks - 1 - c) for c in range(chunks)]))
    for panel, (title, owner) in enumerate(owners):
        x0, y0 = 222 * panel + 12, 42
        f.text(x0, 14, title, bold=True)
        for c in range(chunks):
            f.text(x0 + size * c + size / 2, 36, str(owner[c]), size=SMALL, anchor="middle", bold=True)
        for i in range(chunks):
            for j in range(chunks):
                seen = j <= i
                f.cell(x0 + size * j, y0 + size * i, size, size, str((owner[i] - owner[j]) % ranks) if seen else "",
                       WARPS[owner[i]] if seen else None, 0.4, size=SMALL, line="grid" if not seen else "faint")
    for k, color in enumerate(WARPS):
        f.box(12 + 96 * k, 240, 13, 13, color, 0.4, line="faint")
        f.text(30 + 96 * k, 251, f"rank {k}", size=SMALL)
    f.note(276, "Rows are chunks of queries, columns chunks of keys. The colour is the rank of the queries, the "
           "number over a column that of the keys, and the number in a square the step. On the left, in step 1 rank 0 "
           "has nothing and rank 3 four squares. On the right every rank has two squares in each step from 1 on.")


@figure("87-overlap", "Two steps of a rank, without and with overlap")
def overlapped_messages(f):
    left, unit = 78, 28.5

    def lane(y, words):
        f.text(0, y + 17, words, size=SMALL)

    for y, title, kernels, messages in (
            (14, "messages after kernels", (0, 4.5, 9), (3, 7.5)),
            (120, "87: messages during kernels", (0, 3, 6), (0, 3))):
        f.text(0, y, title, bold=True)
        lane(y + 12, "kernels")
        lane(y + 44, "messages")
        for t, start in enumerate(kernels):
            f.cell(left + unit * start, y + 12, unit * 3 - 2, 24, f"step {t}", "shared", 0.35, size=SMALL)
        for t, start in enumerate(messages):
            f.cell(left + unit * start, y + 44, unit * 1.5 - 2, 24, f"K, V {t + 1}", "own", 0.35, size=SMALL)
    f.note(220, "A message brings the keys of the next step. It needs the slot that the previous step has read, and "
           "nothing of this step, so both can start together. A message that is shorter than a kernel then costs no "
           "time.")


@figure("88-home", "Three ranks: keys travel, and their gradients follow one step later and return")
def gradients_return(f):
    ranks, left, width, height = 3, 50, 92, 50
    for t in range(ranks + 1):
        f.text(left + width * t + width / 2 - 3, 14, f"step {t}" if t < ranks else "return", anchor="middle", bold=True)
    for rank in range(ranks):
        f.text(0, 52 + 62 * rank, f"rank {rank}", bold=True)
        for t in range(ranks + 1):
            source = (rank - t) % ranks
            x, y = left + width * t, 22 + 62 * rank
            given = ", ".join(str((source + step) % ranks) for step in range(1, min(t, ranks - 1) + 1))
            words = "own: kept" if t == 0 else f"sums of {given}" if t < ranks else f"{given} and own"
            f.box(x, y, width - 6, height, WARPS[source], 0.4)
            f.text(x + width / 2 - 3, y + 21, f"K, V of {source}" if t < ranks else f"dK, dV of {source}", size=SMALL,
                   anchor="middle")
            f.text(x + width / 2 - 3, y + 39, words, size=SMALL, anchor="middle")
    f.note(238, "The colour is the rank whose keys they are, and the second line names the ranks that have "
           "contributed to their gradients. Rank 0 keeps its own part. Rank 1 begins the sums in step 1; they reach "
           "rank 2 while it computes step 2, and rank 0 after that. dQ never travels.")


@figure("89-cache", "A cache divided over four ranks: each attends to its own keys, and one all-gather gives every rank all results")
def divided_cache(f):
    ranks, width, left = 4, 86, 76
    x_of = [left + width * rank for rank in range(ranks)]
    for rank, x in enumerate(x_of):
        f.text(x + (width - 6) / 2, 14, f"rank {rank}", anchor="middle", bold=True)
        f.cell(x, 22, width - 6, 18, "Q", "text", 0.12, size=SMALL)
        f.cell(x, 46, width - 6, 40, "", WARPS[rank], 0.4)
        f.text(x + (width - 6) / 2, 63, "K, V", size=SMALL, anchor="middle")
        f.text(x + (width - 6) / 2, 79, ("first", "second", "third", "last")[rank], size=SMALL, anchor="middle")
        f.arrow((x + (width - 6) / 2, 88), (x + (width - 6) / 2, 108), color="text")
        f.cell(x, 110, width - 6, 20, f"O_{rank}, L_{rank}", WARPS[rank], 0.4, size=SMALL)
        f.arrow((x + (width - 6) / 2, 132), (x + (width - 6) / 2, 148), color="text")
        f.arrow((x + (width - 6) / 2, 172), (x + (width - 6) / 2, 188), color="text")
        for other in range(ranks):
            f.cell(x + (width - 6) / ranks * other, 190, (width - 6) / ranks, 20, str(other), WARPS[other], 0.4, size=SMALL)
        f.arrow((x + (width - 6) / 2, 212), (x + (width - 6) / 2, 228), color="text")
        f.cell(x, 230, width - 6, 20, "O, L", "text", 0.12, size=SMALL)
    f.cell(left, 150, width * ranks - 6, 20, "all-gather", "text", 0.12, size=SMALL)
    for y, words in ((35, "all rows"), (63, "a fourth"), (79, "of all keys"), (124, "fp32"), (204, "of all ranks"),
                     (244, "merged")):
        f.text(0, y, words, size=SMALL)
    f.note(276, "Every rank has the same rows of Q, and ends with the same O and L. The keys never travel. A rank "
           "sends a row of O and its L for each query head, however many keys there are.")


@figure("66-rows", "The query tiles of a key tile in a sliding window")
def rows_of_keys(f):
    size, count, before, key = 24, 8, 3, 2
    f.text(0, 14, "the block of key tile 2", bold=True)
    for i in range(count):
        for j in range(count):
            left, top, kind = size * j, 22 + size * i, window_tile(i, j, before)
            if j != key:
                f.box(left, top, size, size, "shared" if kind else None, 0.1, line="grid", dashed=not kind)
            elif kind:
                f.box(left, top, size, size, "own" if kind == "edge" else "shared", 0.45)
            else:
                f.box(left, top, size, size, line="pink" if i > j else "grid", dashed=True)
    f.line((0, 22), (size * count, 22 + size * count), color="text", thick=1.8)
    f.line((0, 22 + size * before), (size * (count - before), 22 + size * count), color="text", thick=1.8)
    for y, words, color in ((22 + size * 2.5, "begins: row of the last key of the tile sees itself", "own"),
                            (22 + size * 5.5, "ends: the last row that sees a key of the tile", "own"),
                            (22 + size * 7, "55 would go on to here", "pink")):
        f.line((size * (key + 1), y), (size * count + 14, y), color=color, dashed=True)
        f.text(size * count + 20, y + 4, words, color, SMALL)
    f.note(236, "Rows are query tiles, columns key tiles. The block goes down its column, from the diagonal to the last row "
           "that sees one of its keys; it masks the first and the last of these tiles.")


@figure("65-window", "Key tiles that each warpgroup computes at d = 64 in a window of 129 keys, N = 576")
def hopper_window(f):
    left, top, width, height, keys, rows, before = 150, 40, 42, 18, 128, 64, 128
    f.text(left + 2.5 * width, 14, "key tiles of 128 keys", "faint", SMALL, "middle")
    for j in range(5):
        f.text(left + width * (j + 0.5), 31, str(j), "faint", SMALL, "middle")

    def key_tiles(first, last):
        return max(0, first - before) // keys, last // keys + 1

    for group in range(9):
        tile, y, first = group // 3, top + height * group + 8 * (group // 3), rows * group
        if group % 3 == 0:
            f.text(0, y + 1.5 * height + 5, f"query tile {tile}", bold=True)
        f.text(left - 8, y + 13, f"group {group % 3}", "faint", SMALL, "end")
        begin, end = key_tiles(first, first + rows - 1)
        block_begin, block_end = key_tiles(192 * tile, 192 * tile + 191)
        for j in range(5):
            x = left + width * j
            if begin <= j < end:
                full = keys * j >= first + rows - 1 - before and keys * (j + 1) <= first + 1
                f.cell(x, y, width, height, "full" if full else "edge", "own", 0.45 if full else 0.25, size=SMALL)
            elif block_begin <= j < block_end:
                f.cell(x, y, width, height, "left out", "pink", 0.2, size=SMALL)
            else:
                f.box(x, y, width, height, line="grid")
    f.note(242, "A cell is 64 rows by 128 keys; a row sees its own key and the 128 before it. Coloured cells are copied for "
           "the query tile. A warpgroup computes those with 'full' and 'edge', masks those with 'edge' alone, and only "
           "waits for those 'left out'.")


@figure("67-stores", "How warps store the rows of two documents of 60 and 140 rows")
def stores_at_an_end(f):
    left, top, scale, height = 96, 34, 1.45, 26
    f.text(left, 14, "row of the packed sequence", "faint", SMALL)
    for row in (0, 60, 200):
        f.text(left + scale * row, 29, str(row), "faint", SMALL, "middle")
    for document, (begin, length) in enumerate(((0, 60), (60, 140))):
        y = top + (height + 14) * document
        f.text(0, y + 18, f"document {document}", bold=True)
        for first in range(0, length, 16):
            rows = min(16, length - first)
            is_cut = rows < 16 and begin + length < 200
            f.cell(left + scale * (begin + first), y, scale * 16, height, str(rows), "pink" if is_cut else "own",
                   0.3 if is_cut or rows < 16 else 0.45, size=SMALL)
    f.note(132, "A cell is a box of 16 rows, with the rows of the document in it. The pink box would reach into rows "
           "60 to 63 of document 1, so its warp stores 12 rows with ordinary instructions. The last box reaches past "
           "the tensor, where a bulk store writes nothing.")


@figure("97-grid", "The tiles of two documents of 100 and 220 tokens under a causal mask, in the backward pass")
def document_columns(f):
    left, top, scale, rows, keys, starts = 80, 40, 0.7, 64, 128, (0, 100, 320)

    def at(token):
        return scale * token

    f.text(left, 14, "keys", "faint", SMALL)
    f.text(0, top - 6, "query rows", "faint", SMALL)
    for row in range(0, 321, rows):
        f.text(left - 8, top + at(row) + 4, str(row), "faint", SMALL, "end")
        f.line((left, top + at(row)), (left + at(320), top + at(row)), color="grid")
    for document, (begin, end) in enumerate(zip(starts, starts[1:])):
        for key in range(begin, end, keys):
            last = min(end, key + keys) - 1
            f.text(left + at(key), 30, str(key), "faint", SMALL)
            for row in range(key // rows * rows, end, rows):
                is_full = row >= last and row + rows <= end and key + keys <= end
                f.box(left + at(key), top + at(row), at(last + 1 - key), at(rows), "shared" if is_full else "own", 0.3)
        f.line((left + at(begin), top + at(begin)), (left + at(end), top + at(end)), color="text", thick=1.8)
        f.line((left + at(begin), top + at(begin)), (left + at(begin), top + at(end)), color="text", thick=1.8)
        f.line((left + at(begin), top + at(end)), (left + at(end), top + at(end)), color="text", thick=1.8)
        f.text(left + at(320) + 12, top + at((begin + end) / 2) + 4, f"document {document}", bold=True)
    f.note(282, "Rows are query tiles of 64, at multiples of 64 in the sequence; columns are key tiles of 128, which "
           "begin with their documents. Triangles show visible scores. Query tile 1, rows 64 to 127, is multiplied by "
           "keys of both documents, each time with the rows of the other one masked. Only the blue tile is not masked.")


@figure("97-gaps", "The query tiles of a key tile under three masks: gaps, and the numbers of those that are visited")
def gaps_of_columns(f):
    left, top, height, count = 72, 42, 15, 16
    masks = (("documents", range(count), ("upper", 0, 5), ("lower", 11, 16), {5, 10}),
             ("the same, causal", range(6, count), None, ("lower", 11, 16), {6, 7, 10}),
             ("global tokens", range(count), ("upper", 1, 5), ("lower", 11, 16), {0, 5, 6, 9, 10}))
    f.text(0, top - 6, "query tile", "faint", SMALL)
    for i in range(count):
        f.text(left - 12, top + height * i + 12, str(i), "faint", SMALL, "end")
    for panel, (title, tiles, upper, lower, masked) in enumerate(masks):
        x = left + 118 * panel
        f.text(x, 16, title, size=SMALL, bold=True)
        gaps = [gap for gap in (upper, lower) if gap]
        hidden = {i for _, begin, end in gaps for i in range(begin, end)}
        visited = [i for i in tiles if i not in hidden]
        for i in range(count):
            y = top + height * i
            if i in visited:
                f.cell(x, y, 44, height, str(visited.index(i)), "own" if i in masked else "shared", 0.4, size=SMALL)
            else:
                f.box(x, y, 44, height, line="pink" if i in hidden else "grid", dashed=True)
        for name, begin, end in gaps:
            f.text(x + 48, top + height * (begin + end) / 2 + 4, f"{name} gap", "pink", SMALL)
    f.note(304, "Each column is a key tile, from the first query tile to the last. The block counts by these numbers; "
           "to find a tile, it adds the sizes of the gaps before it. Orange tiles are masked. Tiles before the "
           "diagonal are not a gap: the range of the loop begins after them.")


@figure("69-union", "The lists of two rows of tiles, and the pairs of key tiles that their block copies")
def union_of_lists(f):
    size, left, top = 26, 96, 22
    rows = ("f....f..p.", "..f..f...p")
    colors = {"f": "shared", "p": "own"}
    f.text(left, 14, "key tiles", bold=True)
    for i, row in enumerate(rows):
        f.text(0, top + size * i + 18, f"warpgroup {i}")
        for j, kind in enumerate(row):
            f.cell(left + size * j, top + size * i, size, size, str(j), colors.get(kind), 0.35, "text" if kind != "." else "faint",
                   SMALL, line="faint" if kind != "." else "grid", dashed=kind == ".")
    union = [j for j in range(len(rows[0])) if any(row[j] != "." for row in rows)]
    y = top + size * 2 + 34
    f.text(left, y - 8, "slots", bold=True)
    for n in range(0, len(union) + 1, 2):
        x = left + 78 * n / 2
        for t, j in enumerate((union + [None])[n:n + 2]):
            for i, row in enumerate(rows):
                kind = "." if j is None else row[j]
                f.cell(x + size * t, y + size * i, size, size, "0" if j is None else str(j), colors.get(kind),
                       0.35 if kind != "." else 0.25, "text" if kind != "." else "faint", SMALL, line="faint", dashed=kind == ".")
    for i in range(2):
        f.text(0, y + size * i + 18, f"warpgroup {i}")
    f.legend(y + 66, (0, "shared", "full, no test"), (122, "own", "partial, bits"),
             (240, None, "hidden, no bit set"))
    f.note(y + 102, "The producer copies the union of both lists, in the order of the tiles, two to a slot. Both "
           "warpgroups compute both tiles of each slot; a tile that a warpgroup does not list is hidden from its "
           "rows. If their number is odd, a copy past the last key fills half a slot with zeros.")


@figure("97-visits", "The lists of query tiles, and the transposed list of a block with two key tiles")
def visits_of_a_block(f):
    size, left, top, block = 22, 66, 36, 1
    rows = ("fp..f.f.", "..f..f..", ".p..f...", "..ppf..f", "f..f.p..", ".f....fp", "..f.....")
    colors = {"f": "shared", "p": "own"}

    def cell(x, y, kind, words):
        f.cell(x, y, size, size, words, colors.get(kind), 0.35, "text" if kind in colors else "faint", SMALL,
               line="faint" if kind in colors else "grid", dashed=kind not in colors)

    f.text(left, 14, "key tiles", bold=True)
    for j in range(len(rows[0])):
        f.text(left + size * j + size / 2, top - 6, str(j), "faint", SMALL, "middle")
    f.text(0, top - 6, "query tile", "faint", SMALL)
    for i, row in enumerate(rows):
        f.text(left - 12, top + size * i + 15, str(i), size=SMALL, anchor="end")
        for j, kind in enumerate(row):
            cell(left + size * j, top + size * i, kind, kind if kind in colors else "")
    f.box(left + size * 2 * block, top, size * 2, size * len(rows), line="pink", thick=2.5)
    x = left + size * len(rows[0]) + 30
    f.text(x, 14, "list of block 1", bold=True)
    f.text(x + 20, top - 6, "warpgroup 0, 1", "faint", SMALL)
    visits = [i for i, row in enumerate(rows) if row[2 * block:2 * block + 2] != ".."]
    for n, i in enumerate(visits):
        y = top + size * n
        f.text(x + 8, y + 15, str(i), size=SMALL)
        for g in range(2):
            kind = rows[i][2 * block + g]
            cell(x + 42 + size * g, y, kind, kind if kind in colors else "")
    y = top + size * len(rows) + 14
    f.legend(y, (0, "shared", "full, no test"), (122, "own", "partial, bits"), (240, None, "hidden"))
    f.note(y + 34, "Block 1 owns key tiles 2 and 3, one for each warpgroup. Its transposed list has the query tiles that list either "
           "of them, from top to bottom, with their kind for each warpgroup. Query tiles 0, 2 and 5 are not in it.")


@figure("68-intervals", "The intervals of rows of a key tile, their hull and common part, and the class of four query "
           "tiles")
def intervals_of_keys(f):
    left, top, width, height, count = 40, 42, 26, 15, 16
    keys = [((2 if key < 3 else 3, 12), (9, 11) if key > 3 else None) for key in range(6)]
    f.text(0, 16, "row", "faint", SMALL)
    f.text(left, 16, "six keys of a tile", size=SMALL, bold=True)
    for row in range(count):
        f.text(left - 10, top + height * row + 12, str(row), "faint", SMALL, "end")
    for key, ((begin, end), gap) in enumerate(keys):
        for row in range(count):
            x, y = left + width * key, top + height * row
            in_gap = gap is not None and gap[0] <= row < gap[1]
            seen = begin <= row < end and not in_gap
            f.box(x, y, width, height, "pink" if in_gap else "shared" if seen else None, 0.4, line="grid")
    x = left + width * 6 + 18
    for n, (name, (begin, end), color) in enumerate((("hull", (2, 12), "shared"), ("common", (3, 12), "own"),
                                                     ("gaps", (9, 11), "pink"))):
        f.text(x + 44 * n + 13, top - 8, name, color, SMALL, "middle")
        f.box(x + 44 * n + 6, top + height * begin, 14, height * (end - begin), color, 0.5)
    x += 138
    f.text(x, 16, "query tile", size=SMALL, bold=True)
    for tile, words in enumerate(("0: cut", "1: full", "2: gaps", "3: skipped")):
        y = top + height * 4 * tile
        f.line((left, y), (x + 66, y), color="text", thick=1.6)
        f.text(x, y + 34, words, "faint" if tile == 3 else "text", SMALL, bold=tile < 3)
    f.line((left, top + height * count), (x + 66, top + height * count), color="text", thick=1.6)
    f.note(top + height * count + 22, "Blue rows see the key, pink ones are its gap. Query tile 0 is not within the "
           "common part of the six intervals, so its scores are tested; tile 1 is. Tile 2 is as well, but overlaps "
           "the hull of the gaps. Tile 3 does not overlap the hull of the intervals: its block never copies these "
           "keys.")


# --- The backward pass -----------------------------------------------------------------------------------------------


@figure("40-kernels", "Four kernels, with P, dP and dS in global memory between them")
def standard_gradient(f):
    for x, width, name, what in ((0, 84, "scores", "P and dP"), (92, 112, "softmax", "gradient: dS"),
                                 (212, 92, "query", "gradient: dQ"), (312, 106, "key gradients", "dK, then dV")):
        f.box(x, 22, width, 44, "shared", 0.18)
        f.label(x, 24, width, 22, name, bold=True)
        f.label(x, 42, width, 22, what, color="faint", size=SMALL)
    f.text(0, 14, "on the SMs", "faint", SMALL)
    f.box(0, 142, WIDTH, 122, "faint", 0.1)
    f.text(8, 258, "HBM", "faint", PLAIN, bold=True)
    for x, name, size in ((10, "P", "2 N^2 bytes"), (94, "dP", "4 N^2 bytes"), (178, "dS", "2 N^2 bytes")):
        f.cell(x, 152, 76, 90, name, "own", 0.3, size=20)
        f.text(x + 38, 232, size, anchor="middle", size=SMALL)
    for x, name in ((284, "dQ"), (342, "dK"), (384, "dV")):
        f.cell(x, 152, 13, 90, "", "shared", 0.45)
        f.text(x + 6, 257, name, anchor="middle")
    f.arrow((24, 68), (24, 150), color="own")
    f.arrow((66, 68), (108, 150), color="own")
    for x in (68, 74):
        f.arrow((x, 150), (x + 40, 68), color="own")
    for x in (146, 152):
        f.arrow((x, 150), (x, 68), color="own")
    f.arrow((186, 68), (196, 150), color="own")
    f.arrow((222, 150), (240, 68), color="own")
    f.arrow((246, 150), (320, 68), color="own")
    f.arrow((84, 150), (340, 68), color="own")
    f.arrow((290, 68), (290, 150))
    f.arrow((374, 68), (350, 150))
    f.arrow((390, 68), (390, 150))
    f.note(284, "One head; the kernels also read Q, K, V, dO and L. P, dP and dS are N~×~N, the gradients N~×~d, drawn "
           "narrow. The second kernel reads P and dP twice.")


@figure("40s-products", "Which block goes through which tiles of dS, and what it keeps")
def products(f):
    size, tiles, top = 22, 4, 46
    panels = [("41: dQ", "shared", ["block: query tile i", "dQ in registers", "3 products per tile"]),
              ("41: dK, dV", "own", ["block: key tile j", "dK, dV in registers", "4 products per tile"]),
              ("43: all three", "own", ["block: key tile j", "dQ added in memory", "5 products per tile"])]
    for n, (title, color, lines) in enumerate(panels):
        x = 20 + 134 * n
        f.text(x, 16, title, bold=True, size=HEAD)
        f.text(x + size * tiles / 2, 38, "keys", "faint", SMALL, "middle")

        def cell(row, column, along_row=n == 0, color=color):
            mine = row == 1 if along_row else column == 1
            return ("dS" if mine else "", color if mine else None)

        grid(f, x, top, tiles, tiles, size, cell)
        bottom, right = top + size * tiles, x + size * tiles
        if n == 0:
            f.arrow((x + 2, top + 1.5 * size + 8), (right + 12, top + 1.5 * size + 8), color="shared", thick=1.8)
        else:
            f.arrow((x + 2 * size, top + 2), (x + 2 * size, bottom + 10), color="own", thick=1.8)
        if n == 2:
            for row in range(tiles):
                f.arrow((x + 2 * size, top + (row + 0.5) * size), (right + 10, top + (row + 0.5) * size), color="shared")
                f.text(right + 13, top + (row + 0.5) * size + 4, "dQ", "shared", SMALL)
        f.lines(x, bottom + 28, lines, size=SMALL)
    f.text(0, top + size * tiles / 2 + 4, "Q", "faint", SMALL)
    f.note(top + size * tiles + 88, "The tiles of dS of one head, queries down, keys across. A block that walks "
           "along a row keeps dQ. A block that walks down a column keeps dK and dV; dQ is then the sum of what all "
           "blocks add.")


# --- Leave one out ---------------------------------------------------------------------------------------------------


@figure("43-fragment", "Where the sums of lane 5 lie: row by row, and by fragments")
def dq_fragment(f):
    lane, width, height, top = 5, 26, 15, 44
    g, t = lane // 4, lane % 4
    f.text(0, 14, "a fragment of dQ", bold=True)
    f.text(0, 31, "16 rows, 8 columns: lanes", "faint", SMALL)
    for r in range(16):
        f.text(18, top + height * r + 12, str(r), "own" if r % 8 == g else "faint", SMALL, "end")
        for c in range(4):
            mine = (r % 8, c) == (g, t)
            f.cell(24 + width * c, top + height * r, width, height, str(r % 8 * 4 + c), "own" if mine else "shared",
                   0.75 if mine else (0.12 if r < 8 else 0.24), size=SMALL, bold=mine, line="grid")
    x = 170
    f.text(x, 14, "row by row", bold=True)
    for y, r in ((58, g), (104, g + 8)):
        f.text(x, y - 6, f"row {r}, from byte 4 d x {r} on", "faint", SMALL)
        for c in range(4):
            mine = c == t
            f.cell(x + 60 * c, y, 60, 20, f"lane {4 * g + c}", "own" if mine else "shared", 0.6 if mine else 0.15,
                   size=SMALL, bold=mine)
    f.text(x, 142, "8 bytes each: 4 instructions", size=SMALL)
    f.text(x, 186, "by fragments", bold=True)
    for n in range(-1, 2):
        f.cell(x + 80 * (n + 1), 208, 80, 20, f"lane {lane + n}", "own" if n == 0 else "shared", 0.6 if n == 0 else 0.15,
               size=SMALL, bold=n == 0)
    f.text(x, 202, f"byte {16 * lane} of 512", "faint", SMALL)
    f.text(x, 246, "16 bytes each: 1 instruction", size=SMALL)
    f.note(top + 16 * height + 26, "A cell is two neighbours of a row, and its number is the lane that holds them: 4 g + t for "
           "rows g and g + 8. In orange lane 5. An instruction of a warp touches half of a sector in each of eight rows "
           "row by row, and 512 bytes in a row by fragments.")


@figure("44-pair", "Two warps with the same keys: one sums up dV, the other dK")
def pair_of_warps(f):
    for x, title, color, steps in (
            (0, "warp of dV", "shared", ("S^T = K Q^T", "P^T = exp(S^T − L)", "leave P^T", "dV += P^T dO")),
            (236, "warp of dK", "own", ("dP^T − D", "", "take P^T", "dS^T = P^T o (dP^T − D)", "dK += dS^T Q"))):
        f.text(x + 92, 14, title, color, bold=True, anchor="middle")
        for n, words in enumerate(steps):
            if words:
                f.cell(x, 24 + 40 * n, 184, 26, words, color, 0.2, size=SMALL)
    f.arrow((186, 117), (234, 117), color="text", thick=2)
    f.line((0, 141), (420, 141), color="text", dashed=True)
    f.text(210, 136, "barrier", "faint", SMALL, "middle")
    f.cell(118, 232, 184, 26, "dS^T, in shared memory", "green", 0.25, size=SMALL)
    f.arrow((328, 170), (328, 182), color="own")
    f.arrow((234, 157), (210, 157), (210, 230), color="green", thick=2)
    f.arrow((210, 260), (210, 278), color="green", thick=2)
    f.text(210, 294, "after another barrier: dQ += dS K, by all warps", size=SMALL, anchor="middle")
    f.note(318, "P^T leaves one warp as the first operand of its product, 16 bytes of each lane, and enters the other as one. "
           "It lies in the place of dS^T.".replace("^T", ""))


@figure("45-ring", "The two slots of query tiles, and the two kinds of mbarriers")
def query_ring(f):
    left, unit = 58, 72

    def bar(slot, start, words, color, width=1.0):
        f.cell(left + unit * start, 32 + 62 * slot, unit * width, 24, words, color, 0.35, size=SMALL)

    for slot in range(2):
        f.text(0, 48 + 62 * slot, f"slot {slot}", bold=True)
    bar(0, 0, "copy 0", "shared")
    bar(0, 1, "tile 0", "own", 1.5)
    bar(1, 1.4, "copy 1", "shared")
    bar(1, 2.5, "tile 1", "own", 1.5)
    bar(0, 2.9, "copy 2", "shared")
    bar(0, 4, "tile 2", "own")
    for slot, at, words in ((0, 1, "full, 0"), (0, 2.5, "empty, 0"), (0, 4, "full, 1"), (1, 2.5, "full, 0"),
                            (1, 4, "empty, 1")):
        x, y = left + unit * at, 32 + 62 * slot
        f.line((x, y - 5), (x, y + 29), color="text", thick=1.8)
        f.text(x, y - 9, words, "faint", SMALL, "middle")
    f.arrow((left, 140), (left + 5 * unit, 140))
    f.text(left, 155, "time, not to scale; numbers are phases", "faint", SMALL)
    f.note(180, "Tile k is in slot k % 2, in phase k / 2 of the slot's full barrier; phase k of empty ends when all threads "
           "have read it, and its dS. The copies of tile k + 1 start after the first product of tile k.")


def time_line(f, left, unit, y, name, color, parts):
    """What one of those that work at the same time does: (words, length, color), without a color where it does nothing."""
    f.text(0, y + 14, name, color, SMALL)
    at = 0
    for words, length, fill in parts:
        if fill:
            f.cell(left + unit * at, y, unit * length, 20, words, fill, 0.35 if fill != "grid" else 0.2, size=SMALL)
        else:
            f.text(left + unit * (at + length / 2), y + 14, words, "faint", SMALL, "middle")
        at += length


@figure("46-late", "A pair of warps in 45 and in 46: a schematic time line")
def late_dq(f):
    left, unit = 62, 25

    def bars(*row):
        time_line(f, left, unit, *row)

    f.text(0, 14, "45: barriers after P and after dS", bold=True)
    bars(24, "dV", "shared", (("S", 2, "shared"), ("exp", 2, "pink"), ("dV", 2, "shared"), ("wait", 2, None),
                              ("dQ", 1, "green"), ("S", 2, "shared"), ("exp", 2, "pink")))
    bars(48, "dK", "own", (("dP", 2, "own"), ("wait", 2, None), ("dS", 2, "pink"), ("dK", 2, "own"), ("dQ", 1, "green"),
                           ("dP", 2, "own"), ("wait", 2, None)))
    for at in (4, 8):
        f.line((left + unit * at, 18), (left + unit * at, 74), color="text", thick=1.8)
    f.text(0, 106, "46: dQ a tile later, no barrier", bold=True)
    bars(116, "dV", "shared", (("S", 2, "shared"), ("exp", 2, "pink"), ("dQ", 1, "green"), ("dV", 2, "shared"),
                               ("S", 2, "shared"), ("exp", 2, "pink"), ("dQ", 1, "green"), ("dV", 2, "shared")))
    bars(140, "dK", "own", (("dQ", 1, "green"), ("dP", 2, "own"), ("", 1, None), ("dS", 2, "pink"), ("dK", 2, "own"),
                            ("dQ", 1, "green"), ("dP", 2, "own"), ("dS", 2, "pink")))
    f.note(186, "Schematic, not measured: dQ is half a product for each of the two, another product takes two units, and "
           "so do the exponentials of P and what makes dS of it. At each bar of 45 all warps of the block meet. In 46 a "
           "warp of dK waits for P of its own pair alone.")


@figure("50-operands", "Where the operands of the five products are in 50: shared memory or registers")
def operands_of_gradients(f):
    left, width, step, height = 40, 78, 30, 22
    columns = [left + n * 112 for n in range(3)]
    for x, words in zip(columns, ("first operand", "second operand", "result")):
        f.text(x + width / 2, 12, words, "faint", SMALL, "middle")
    rows = (("1", "K", "shared", "Q", "S^T"), ("2", "V", "shared", "dO", "dP^T"), ("3", "P^T", "own", "dO", "dV, a sum"),
            ("4", "dS^T", "own", "Q", "dK, a sum"), ("5", "dS", "shared", "K", "dQ, a half"))
    for n, (product, first, where, second, result) in enumerate(rows):
        y = 22 + step * n
        f.text(0, y + 15, product, bold=True)
        for x, words, color in zip(columns, (first, second, result), (where, "shared", "own")):
            f.cell(x, y, width, height, words, color, 0.35)
        f.text(columns[0] + width + 17, y + 15, "x", "faint", PLAIN, "middle")
        f.arrow((columns[1] + width + 6, y + height / 2), (columns[2] - 5, y + height / 2))
    for n, words in enumerate(("exp, then 3", "x P^T, then 4", "", "", "to memory")):
        f.text(columns[2] + width + 8, 37 + step * n, words, "faint", SMALL)
    y = 22 + step * 5 + 4
    f.legend(y, (0, "shared", "shared memory"), (150, "own", "registers of the warpgroup"))
    f.note(y + 34, "The lanes that hold S^T turn it into P^T, and dP^T into dS^T: first operands of products 3 and 4, where they "
           "are. Only dS is also written to shared memory, since product 5 needs that of both warpgroups. The copy engine adds "
           "dQ to memory.")


@figure("51-order", "The end of a tile in 50 and in 51: a schematic time line of one warpgroup")
def dq_during_dk(f):
    left, unit = 62, 35
    product = {name: (name, 2, color) for name, color in (("dV", "shared"), ("dK", "shared"), ("dQ", "green"), ("S", "shared"))}
    leave = (("store", 1, "pink"), ("add", 1, "pink"))
    f.text(0, 14, "50: dK, then dQ", bold=True)
    time_line(f, left, unit, 24, "products", "shared",
              (product["dV"], product["dK"], product["dQ"], ("none", 2, None), product["S"]))
    time_line(f, left, unit, 48, "threads", "pink", (("wait for dQ", 6, None), *leave, ("wait for S", 2, None)))
    f.text(0, 100, "51: dQ, then dK", bold=True)
    time_line(f, left, unit, 110, "products", "shared", (product["dV"], product["dQ"], product["dK"], product["S"]))
    time_line(f, left, unit, 134, "threads", "pink",
              (("wait for dQ", 4, None), *leave, ("wait for S", 2, None)))
    f.note(180, "Schematic, not measured. A warpgroup's share of each product is as large as of any other. In 50 nothing is "
           "multiplied for this warpgroup while its dQ goes to shared memory and is handed to the copy engine. In 51 dK is.")


@figure("51-sender", "The sender and one warpgroup: the two named barriers of its buffer of dQ")
def sender(f):
    left, unit = 72, 29
    time_line(f, left, unit, 6, "warpgroup", "shared",
              (("tile k", 2.6, "shared"), ("store", 1.4, "pink"), ("tile k + 1", 3.6, "shared"), ("store", 1.4, "pink"),
               ("...", 2, None)))
    time_line(f, left, unit, 60, "sender", "own",
              (("wait", 4, None), ("add, read", 2, "own"), ("wait", 3, None), ("add, read", 2, "own")))
    time_line(f, left, unit, 98, "buffer", "green",
              (("", 2.6, None), ("dQ of tile k", 3.4, "green"), ("empty", 1.6, None), ("dQ of k + 1", 3.4, "green")))
    for at in (4, 9):
        f.arrow((left + unit * at, 27), (left + unit * at, 58), color="text")
    f.arrow((left + unit * 6, 59), (left + unit * 7.6 - 3, 28), color="text")
    f.text(left + unit * 4 - 4, 48, "full", size=SMALL, anchor="end")
    f.text(left + unit * 7 - 2, 48, "empty", size=SMALL)
    f.text(left + unit * 9 + 4, 48, "full", size=SMALL)
    f.note(144, "The sender arrives at the empty barrier as soon as the copy engine has read the buffer. The warpgroup comes to it "
           "when its next dQ is complete, most of a tile later, and so seldom waits.")


@figure("51-early", "A tile at d = 64 up to dQ, with dV after dP and before: a schematic time line of one warpgroup")
def early_dV(f):
    left, unit = 62, 33
    a, b = ("exp a", 2, "pink"), ("exp b", 2, "pink")
    f.text(0, 14, "dV after the wait for dP, as the machine code has it", bold=True)
    time_line(f, left, unit, 24, "products", "shared",
              (("S", 2, "shared"), ("dP", 2, "shared"), ("none", 3, None), ("dV", 2, "shared"), ("dQ", 1.5, "shared")))
    time_line(f, left, unit, 48, "threads", "pink",
              (("wait for S", 2, None), a, b, ("dS", 1, "green")))
    f.text(0, 100, "51: dV before it", bold=True)
    time_line(f, left, unit, 110, "products", "shared",
              (("S", 2, "shared"), ("dP", 2, "shared"), ("dV a", 1, "shared"), ("", 1.6, None), ("dV b", 1, "shared"),
               ("dQ", 2, "shared")))
    time_line(f, left, unit, 134, "threads", "pink",
              (("wait for S", 2, None), a, ("dS", 0.6, "green"), b, ("dS", 0.6, "green")))
    f.note(180, "Schematic, not measured. a and b are the two halves of the queries. Above, dV waits until all of dS has been "
           "computed. In 51 dV of a starts before the wait for dP, and the exponentials of b run during it.")


@figure("55-order", "The same blocks in two orders: head by head, and the first key tiles of all heads first")
def longest_heads_first(f):
    heads, tiles = 3, 4
    head_by_head = [(h, i) for h in range(heads) for i in range(tiles, 0, -1)]
    longest_first = [(h, i) for i in range(tiles, 0, -1) for h in range(heads)]
    for y, title, blocks in ((14, "51: head by head", head_by_head), (118, "55: one section of three heads", longest_first)):
        in_order(f, y, title, blocks, 4, 62, 36, "SMs")
    f.note(224, "Three heads (colours) with four key tiles each; under a mask four query tiles see the first one, and one sees "
           "the last. Each block starts on the first free SM. Both orders do 30 units of work on 4 SMs: 8 is the least.")


@figure("55-parts", "Three key tiles on six SMs, as three blocks and as six")
def split_queries(f):
    for y, title, parts in ((14, "51: a block for each key tile", 1), (152, "55: two parts for each key tile", 2)):
        in_order(f, y, title, [(j, 8 // parts + 1) for j in range(3) for _ in range(parts)], 6, 70, 36, "SMs")
    f.note(296, "Three key tiles (colours), each seen by eight query tiles; every block takes one unit more for its start and "
           "its end. Two parts leave two sums of dK and dV, which the last kernel adds.")


@figure("56-stay", "Two key tiles on one multiprocessor: two blocks, and one block that stays")
def key_tiles_stay(f):
    left, unit = 62, 13.5
    lengths = {"K, V, Q": 3, "K, V": 2, "Q": 2, "key tile A": 7, "key tile B": 7, "dK, dV": 3}
    for y, title, end, bars in (
            (14, "55: a block per key tile", 26,
             ((0, 0, "K, V, Q", "A"), (1, 3, "key tile A", "A"), (2, 10, "dK, dV", "A"),
              (0, 13, "K, V, Q", "B"), (1, 16, "key tile B", "B"), (2, 23, "dK, dV", "B"))),
            (124, "56, d = 64: two buffers of K and V", 20,
             ((0, 0, "K, V, Q", "A"), (1, 3, "key tile A", "A"), (2, 10, "dK, dV", "A"),
              (0, 3.5, "K, V", "B"), (0, 8, "Q", "B"), (1, 10, "key tile B", "B"), (2, 17, "dK, dV", "B"))),
            (234, "56, d = 128: one buffer", 25,
             ((0, 0, "K, V, Q", "A"), (1, 3, "key tile A", "A"), (2, 10, "dK, dV", "A"),
              (0, 8, "Q", "B"), (0, 13, "K, V", "B"), (1, 15, "key tile B", "B"), (2, 22, "dK, dV", "B")))):
        f.text(0, y, title, bold=True)
        for lane, name in enumerate(("copies", "compute", "store")):
            f.text(0, y + 24 + 24 * lane, name, "faint", SMALL)
        for lane, start, words, tile in bars:
            f.cell(left + unit * start, y + 10 + 24 * lane, unit * lengths[words], 20, words,
                   "shared" if tile == "A" else "own", 0.35, size=SMALL)
        f.line((left + unit * end, y + 6), (left + unit * end, y + 82), color="text", thick=1.8)
    f.note(340, "A schematic, not a measurement; time runs to the right. 'Q': the first query tile. In 55 nothing computes "
           "while copies arrive and gradients leave. In 56 the first query tile of B has arrived when A ends. At d = 64 "
           "so have its K and V; at d = 128 they have to wait until dK and dV of A have left their buffer.")


@figure("57-buffers", "Which warpgroup writes and reads which buffer when in 57, and which barrier guards it")
def two_roles(f):
    left, unit = 84, 28
    rows = (("warpgroup 0", "shared", (("S", 2, "shared"), ("exp", 1.5, "pink"), ("dV", 2, "shared"), ("dQ", 1, "green"),
                                       ("S", 2, "shared"), ("exp", 1.5, "pink"), ("dV", 2, "shared"))),
            ("warpgroup 1", "own", (("dP", 2, "own"), ("wait", 1.5, None), ("dS", 1.5, "pink"), ("dK", 2, "own"),
                                    ("dQ", 1, "green"), ("dP", 2, "own"), ("dS", 1.5, "pink"))),
            ("P", "text", (("", 3, None), ("P of k", 2, "shared"), ("may be written", 4.5, None), ("k + 1", 2, "shared"))),
            ("dS", "text", (("", 4.5, None), ("dS of k", 3.5, "own"), ("", 2, None), ("k + 1", 1.5, "own"))),
            ("slot k % 2", "text", (("Q, dO, L, D of tile k", 8, "grid"), ("copy of k + 2", 4, "green"))))
    for n, (name, color, parts) in enumerate(rows):
        time_line(f, left, unit, 34 + 34 * n, name, color, parts)
    for at, words in ((3.5, "P full"), (5, "dS full"), (10, "P full")):
        f.line((left + unit * at, 20), (left + unit * at, 158), color="text", thick=1.8)
        f.text(left + unit * at, 14, words, "faint", SMALL, "middle")
    for at in (6.5, 8):
        f.arrow((left + unit * at, 157), (left + unit * at, 169), color="text")
    f.text(left + unit * 8 + 8, 166, "empty", "faint", SMALL)
    f.note(214, "Schematic, not measured. P is read until dS is full, and written again after that. dS is read until both warpgroups "
           "have their half of dQ, and written again after P is full the next time, when all warps of both have arrived. A slot "
           "is copied to again when 256 threads have arrived at empty: warpgroup 0 after its dQ, warpgroup 1 after its own.")


@figure("58-order", "When each key tile adds to each query tile under a causal mask, in both directions")
def orders_of_dQ(f):
    left, unit, height, keys = 74, 30, 20, 4
    def panel(y, title, starts, step, per_key, marked):
        """A row for each key tile j, which adds to query tiles from per_key j on, up or down, from a start on."""
        f.text(0, y, title, bold=True)
        width = 2 * unit / per_key
        for n, (j, start) in enumerate(starts):
            top = y + 10 + height * n
            f.text(0, top + 14, f"key tile {j}", size=SMALL)
            if start:
                f.cell(left, top, unit * start, height, "hop" if start == 1 else f"{start} hops", None, color="faint", size=SMALL, dashed=True)
            for at, i in enumerate(range(per_key * j, per_key * keys)[::step]):
                f.cell(left + unit * start + width * at, top, width, height, str(i), "pink" if i == marked else "shared",
                       0.6 if i == marked else 0.25, size=SMALL, bold=i == marked)
    panel(14, "upward, tiles of 128 rows: last key tile first", [(j, 0) for j in range(keys - 1, -1, -1)], 1, 1, 3)
    panel(124, "downward, tiles of 64 rows: first key tile first", [(j, j) for j in range(keys)], -1, 2, 6)
    f.note(234, "512 queries and keys. Time goes to the right; the numbers are query tiles. "
           "One query tile is marked in each: the key tiles reach it in the order of the sum. Above, no block waits, and the "
           "longest begins last; below, the longest begins first, and each other block waits for hops.")


@figure("59-turns", "How a block of 59 takes its turn at a query tile")
def turns_from_registers(f):
    left, unit = 96, 29
    rows = (("block j + 1", "own", (("dQ", 2, "green"), ("add", 2, "own"), ("...", 3, None))),
            ("counter", "text", (("n", 5, "grid"), ("n + 1", 3.5, "grid"), ("n + 2", 2, "grid"))),
            ("thread of j", "pink", (("reads n", 5.5, None), ("turn", 0.9, "pink"), ("", 2.0, None), ("count", 1.2, "pink"))),
            ("warps of j", "shared", (("...", 2, None), ("dQ", 2, "green"), ("wait", 2.4, None), ("add", 2, "shared"), ("S", 2, "shared"))))
    for n, (name, color, parts) in enumerate(rows):
        time_line(f, left, unit, 6 + 34 * n, name, color, parts)
    f.arrow((left + unit * 4.2, 27), (left + unit * 5, 38), color="text")
    f.arrow((left + unit * 5.2, 61), (left + unit * 5.6, 72), color="text")
    f.arrow((left + unit * 6.4, 95), (left + unit * 6.4, 106), color="text")
    f.arrow((left + unit * 8.4, 107), (left + unit * 8.4, 96), color="text")
    f.arrow((left + unit * 9.0, 73), (left + unit * 8.6, 62), color="text")
    f.note(156, "One half of the columns of one query tile. Block j adds to it after block j + 1. Its warps wait for their turn "
           "with the sums in registers, so they cannot begin the next tile meanwhile.")


# --- FP8 -------------------------------------------------------------------------------------------------------------


def key_at(position):
    """key_at() of stages/hopper.cuh."""
    return position // 4 * 2 + position % 2 + position // 2 % 2 * 8


@figure("70-permutation", "16 columns of S in the lanes that hold them, and the keys that become columns of A and of V transposed")
def permuted_keys(f):
    size, left, own = 21, 84, 1
    rows = ((26, "S: keys", range(16), lambda n: n % 8 // 2), (130, "A: keys", map(key_at, range(16)), lambda n: n // 4),
            (168, "V^T: keys", map(key_at, range(16)), lambda n: n // 4))
    for y, name, keys, lane_of in rows:
        f.text(0, y + 15, name, bold=True)
        for n, key in enumerate(keys):
            f.cell(left + size * n, y, size, size, str(key), WARPS[lane_of(n)], 0.65 if lane_of(n) == own else 0.25, size=SMALL,
                   line="grid")
    for position in range(16):
        mine = position // 4 == own
        f.line((left + size * (key_at(position) + 0.5), 48), (left + size * (position + 0.5), 129),
               color="own" if mine else "grid", thick=2 if mine else 1)
    f.text(0, 14, "columns 0 to 15, in the four lanes of a row:", size=SMALL)
    for t in range(4):
        f.box(262 + 40 * t, 4, 12, 12, WARPS[t], 0.65 if t == own else 0.25)
        f.text(278 + 40 * t, 14, f"t={t}", size=SMALL)
    f.text(0, 92, "rounded, packed:", "faint", SMALL)
    f.text(0, 108, "one register", "faint", SMALL)
    f.note(212, "A lane holds two neighbours of each 8 columns of S, and gives four neighbours of each 16 columns of A. It puts "
           "its four keys there as they are; lane 1 (orange) has keys 2, 3, 10 and 11. A sum over the keys is the same in any "
           "order, if V has its keys in that order, too.")


@figure("71-sums", "How much of a term the sum of an 8-bit product keeps, without and with promotion")
def kept_bits(f):
    size, left = 13, 86

    def bits(y, name, first, kept, lost, fill):
        f.text(0, y + 11, name, size=SMALL)
        for n in range(kept + lost):
            f.box(left + size * (first + n), y, size, size, fill if n < kept else "pink", 0.4 if n < kept else 0.25,
                  line="grid" if n < kept else "pink", dashed=n >= kept)

    f.text(0, 14, "one wgmma of e4m3, 32 keys", bold=True)
    bits(24, "sum so far", 0, 14, 0, "shared")
    bits(42, "P V of key 1", 7, 7, 1, "own")
    bits(60, "P V of key 2", 10, 4, 4, "own")
    bits(78, "P V of key 3", 13, 1, 7, "own")
    f.line((left + size * 14, 20), (left + size * 14, 96), color="pink", thick=2)
    f.text(left + size * 14 + 6, 33, "cut off past 13 bits", "pink", SMALL)
    f.text(0, 120, "71: the sum of 128 keys, added to O in fp32", bold=True)
    bits(130, "O", 0, 24, 0, "shared")
    bits(148, "sum of a tile", 6, 14, 0, "own")
    f.line((left + size * 24, 126), (left + size * 24, 166), color="pink", thick=2)
    f.note(186, "Above: terms are aligned with the largest; bits past the 13th are cut off, never rounded up. The "
           "larger the sum, the more of each term is lost. Below: the sum starts from 0 in every key tile and is "
           "small there. The fp32 addition keeps all of its bits until O is 2^10 times as large.")


@figure("72-scales", "Blocks of S, and the scales of their rows and keys")
def scales_of_blocks(f):
    width, height, left, top = 78, 30, 104, 48
    f.text(left + 2 * width, 14, "scales of K, one for each 128 keys", anchor="middle", size=SMALL)
    for j in range(4):
        f.text(left + width * (j + 0.5), 38, f"k{j}", anchor="middle", bold=j == 2)
    for i in range(3):
        f.text(left - 14, top + height * (i + 0.65), f"q{i}", anchor="end", bold=i == 1)
        for j in range(4):
            own = (i, j) == (1, 2)
            f.cell(left + width * j, top + height * i, width, height, f"q{i} k{j}" if own else "", "own" if own else "shared",
                   0.65 if own else 0.15, line="grid")
    f.lines(0, top + 38, ("scales", "of Q"), size=SMALL)
    f.cell(left, top + 3 * height + 16, 4 * width, 24, "V: one scale, v", "shared", 0.3)
    f.note(top + 3 * height + 64, "Scores of the second 128 rows and the third 128 keys (orange) are products of numbers "
           "in units of q1 and of k2: they are multiplied by the softmax scale, q1 and k2 where m is subtracted. "
           "P V is a sum over all keys, so V has one scale for all of them, and O is multiplied by it at the end.")


@figure("73-hadamard", "Three steps of sums and differences spread one large element over a row of eight")
def hadamard_steps(f):
    rows = [[1, -1, 1, 10, -1, 1, 1, -1]]
    for apart in (1, 2, 4):
        x = rows[-1]
        rows.append([x[c] + x[c + apart] if c & apart == 0 else x[c - apart] - x[c] for c in range(8)])
    width, left, step = 43, 70, 66
    for k, row in enumerate(rows):
        y = 8 + step * k
        f.text(0, y + 20, "D x" if k == 0 else f"{1 << (k - 1)} apart", bold=k == 0)
        for c, x in enumerate(row):
            f.cell(left + width * c, y, width, 30, str(x), "own", min(0.75, abs(x) / 14), line="grid")
            if k == len(rows) - 1:
                continue
            other = c ^ (1 << k)
            for at in (c, other):
                f.line((left + width * (c + 0.5), y + 31), (left + width * (at + 0.5), y + step - 1), color="grid")
    f.note(8 + step * 3 + 56, "Each pair becomes its sum, on the left, and its difference. At the end the element of "
           "10 is in each of the eight sums once, and their squares add up to 8 times those of the row: 8 x 107. The "
           "largest is 15, with a root mean square of 10.3; before it was 10, with 3.7.")


@figure("82-columns", "Which columns of K and of Q a lane takes")
def columns_of_lanes(f):
    size, left = 25, 20
    f.text(0, 14, "16 columns of K in bytes, as ldmatrix distributes them", bold=True)
    f.text(0, 110, "A row of Q in shared memory", bold=True)
    for c in range(16):
        lane, place = c // 4, c // 4 * 2 + c % 2 + c % 4 // 2 * 8
        f.cell(left + size * c, 24, size, 26, str(c), WARPS[lane], 0.35)
        f.cell(left + size * place, 120, size, 26, str(c), WARPS[lane], 0.35)
    for lane in range(4):
        f.text(left + size * (4 * lane + 2), 66, f"lane {lane}", "faint", SMALL, "middle")
        for half in range(2):
            f.text(left + size * (2 * lane + 8 * half + 1), 162, f"lane {lane}", "faint", SMALL, "middle")
    f.note(186, "A lane takes its pairs of Q from positions 2t and 2t + 8 on. The columns that it holds of K are "
           "stored there, so each element of Q meets its own column of K, and only the order of the sum changes.")


@figure("79-halves", "One mma of 32 elements of e4m3 on Hopper: two fp16 products and an fp32 addition")
def halves_of_mma(f):
    size, left = 13, 2
    f.text(0, 14, "32 elements of a row of A and of a column of B, in e4m3", bold=True)
    for k in range(32):
        half = k // 2 % 2
        f.cell(left + size * k, 24, size, 22, "", WARPS[half], 0.5 if half else 0.3)
    for k in range(0, 32, 4):
        f.text(left + size * k + 1, 60, str(k), "faint", SMALL)
    f.text(0, 86, "16 of each in fp16, and the others", bold=True)
    for half, x in ((0, left), (1, left + size * 16 + 4)):
        for n in range(16):
            f.cell(x + 12.6 * n, 96, 12.6, 22, "", WARPS[half], 0.5 if half else 0.3)
    f.cell(2, 146, 40, 26, "0", line="grid")
    f.cell(82, 146, 100, 26, "16 products", "shared", 0.3)
    f.cell(222, 146, 100, 26, "16 products", "own", 0.5)
    f.arrow((42, 159), (80, 159))
    f.arrow((182, 159), (220, 159))
    f.arrow((130, 120), (130, 144), color="shared")
    f.arrow((290, 120), (278, 144), color="own")
    f.cell(222, 198, 100, 26, "D + the sum", "green", 0.3)
    f.arrow((272, 172), (272, 196))
    f.cell(82, 198, 100, 26, "D, in fp32", line="grid")
    f.arrow((182, 211), (220, 211))
    f.text(330, 163, "25 bits", "faint", SMALL)
    f.text(330, 215, "24, rounded", "faint", SMALL)
    f.note(246, "The sum of 32 products starts from 0 and is added to the accumulator by an ordinary addition, which "
           "rounds to nearest. A long sum loses no more than any other fp32 sum.")
@figure("74-exponent", "How an addition rounds x to an integer, and how its bits become a power of two")
def exponent_by_a_shift(f):
    size, left = 12, 18
    total, power = f"{0x4B400000 + 125:032b}", f"{125 << 23:032b}"

    def number_of(y, bits, low):
        for n, bit in enumerate(bits):
            moved = n >= 23 if low else n < 9
            f.cell(left + size * n, y, size, 20, bit, "own" if moved else "shared", 0.55 if moved else 0.15, line="grid", size=SMALL)

    f.text(left, 14, "x + 1.5 2^{23} + 127 for x = -2.3", bold=True)
    number_of(24, total, True)
    f.text(left + size * 27.5, 60, "n + 127 = 125", anchor="middle", size=SMALL)
    f.arrow((left + size * 23, 70), (left + size * 9, 104), color="own")
    f.text(left, 92, "shifted left by 23", bold=True)
    number_of(110, power, False)
    f.text(left, 146, "sign and exponent", size=SMALL)
    f.text(left + size * 32, 146, "no fraction: 2^{n} = 2^{-2}", anchor="end", size=SMALL)
    f.note(172, "fp32 numbers between 2^{23} and 2^{24} are integers, so the addition rounds x to n = -2 and leaves n + 127 in "
           "the last bits. These are the exponent's bits of 2^{n}. A cubic of f = x - n = -0.3 gives 2^{f}.")


@figure("75-transpose", "How two registers of pairs of columns become two registers of one column each")
def separated_columns(f):
    size, left, lane = 21, 84, 1
    keys = [2 * lane, 2 * lane + 1, 2 * lane + 8, 2 * lane + 9]
    f.text(0, 14, "lane 4g + 1 after ldmatrix.trans: two registers, 8 bytes", bold=True)
    for n in range(8):
        x = 20 + 44 * n + (28 if n > 3 else 0)
        f.cell(x, 24, 44, 24, f"key {keys[n // 2]}", WARPS[n % 2], 0.35, size=SMALL)
        to = 20 + 44 * (n // 2) + (204 if n % 2 else 0)
        f.line((x + 22, 50), (to + 22, 104), color=WARPS[n % 2])
    f.text(0, 96, "prmt", "faint", SMALL)
    for column in range(2):
        for n, key in enumerate(keys):
            f.cell(20 + 204 * column + 44 * n, 106, 44, 24, f"key {key}", WARPS[column], 0.35, size=SMALL)
        f.text(20 + 204 * column + 88, 148, "column 2g + 1" if column else "column 2g", anchor="middle", size=SMALL)
    f.text(0, 178, "rows of V^T, with the keys of 16 positions", bold=True)
    for column in range(2):
        f.text(0, 203 + 28 * column, "2g + 1" if column else "2g", size=SMALL)
        for n, key in enumerate(map(key_at, range(16))):
            f.cell(left - 24 + size * n, 188 + 28 * column, size, size, str(key), WARPS[column], 0.65 if n // 4 == lane else 0.2,
                   size=SMALL, line="grid")
    f.note(262, "To ldmatrix, two adjacent columns of V are one 16-bit element. A byte permutation of two registers extracts "
           "four keys of one column. They are the keys of the lane's elements of P, at their positions in A.")


@figure("76-call", "What a call launches from 16-bit inputs, and from e4m3")
def kernels_of_a_call(f):
    rows = (("from 16 bits: 75", (("find_largest", 84, "shared"), ("quantize", 84, "shared"), ("attention", 150, "own"))),
            ("from e4m3: 76", (("attention", 150, "own"),)))
    for row, (name, kernels) in enumerate(rows):
        x, y = 0, 24 + 70 * row
        f.text(0, y - 10, name, bold=True)
        for kernel, width, color in kernels:
            f.cell(x, y, width, 28, kernel, color, 0.35)
            x += width + 6
    f.note(148, "The kernels that quantize read 16 bits of each element twice and write 8. The attention kernel reads "
           "these 8, or the caller's. Its scales are three numbers for each query tile.")


@figure("76-panels", "Copies of V and their transposes at d = 256, with one slot of a tile and with two slots of a panel")
def panels_overlap(f):
    unit, left = 29, 58
    rows = (("one slot of a tile: 75", ((0, 2, "tile 0"), (6, 2, "tile 1")), ((2, 4, "tile 0"), (8, 4, "tile 1"))),
            ("two slots of a panel: 76", ((0, 1, "0a"), (1, 1, "0b"), (3, 1, "1a"), (5, 1, "1b")),
             ((1, 2, "0a"), (3, 2, "0b"), (5, 2, "1a"), (7, 2, "1b"))))
    for row, (name, *lanes) in enumerate(rows):
        top = 24 + 108 * row
        f.text(0, top - 10, name, bold=True)
        for lane, (words, color, parts) in enumerate(zip(("copies", "warps"), ("shared", "own"), lanes)):
            y = top + 34 * lane
            f.text(0, y + 19, words, size=SMALL)
            f.box(left, y, unit * 12, 28, None, line="grid")
            for begin, length, words in parts:
                f.cell(left + unit * begin, y, unit * length, 28, words, color, 0.35, size=SMALL)
    f.note(226, "Time runs to the right. Above, the rows of tile 1 are not copied until those of tile 0 have been transposed. "
           "Below, a tile is two panels of 128 columns, a and b. A slot is free as soon as its own panel has been transposed, and "
           "the next panel arrives meanwhile. The lengths are not to scale.")


@figure("77-parts", "Four blocks copy parts of heads, wait until all parts of a head are known, and round what they hold")
def parts_of_heads(f):
    unit, left = 38, 60
    # Of each block: begin, end, what it does with which part
    rows = ((("copy", 0, 3, "head 0"), ("wait", 3, 4, ""), ("round", 4, 5.2, "0"), ("copy", 5.2, 7.4, "head 1"),
             ("wait", 7.4, 8.1, ""), ("round", 8.1, 9.3, "1")),
            (("copy", 0, 3.4, "head 0"), ("wait", 3.4, 4, ""), ("round", 4, 5.2, "0"), ("copy", 5.2, 8.1, "head 1"),
             ("round", 8.1, 9.3, "1")),
            (("copy", 0, 4, "head 0"), ("round", 4, 5.2, "0"), ("copy", 5.2, 7.8, "head 2"), ("wait", 7.8, 9.3, "")),
            (("copy", 0, 3.1, "head 1"), ("wait", 3.1, 8.1, "waits"), ("round", 8.1, 9.3, "1")))
    for row, parts in enumerate(rows):
        y = 12 + 38 * row
        f.text(0, y + 18, f"block {row}", size=SMALL)
        for what, begin, end, words in parts:
            color = {"copy": "shared", "wait": None, "round": "own"}[what]
            x, width = left + unit * begin, unit * (end - begin)
            if color is None:
                f.box(x, y, width, 26, None, dashed=True)
                f.text(x + 6, y + 18, words, size=SMALL)
            else:
                f.cell(x, y, width, 26, words, color, 0.35, size=SMALL)
    f.note(172, "Time runs to the right. Each head has three parts here. Wide cells are copies to shared memory, narrow ones are "
           "roundings; dashed, a block waits. Block 3 holds the first part of head 1 until blocks 0 and 1 have copied the "
           "other two. All four blocks run from the beginning on, so no part waits for a block that has not started.")


@figure("78-registers", "Registers of a thread at d = 256 while P V is computed, and while S is")
def registers_in_turn(f):
    scale = 1.75
    rows = (("P V of 64 columns", (("O 128", 128, "own"), ("P", 16, "green"), ("PV 32", 32, "pink"))),
            ("S of the next tile", (("O 128", 128, "own"), ("S 64", 64, "shared"))))
    for row, (name, parts) in enumerate(rows):
        x, y = 0, 24 + 64 * row
        f.text(0, y - 10, name, bold=True)
        for words, registers, color in parts:
            f.cell(x, y, scale * registers, 26, words, color, 0.35)
            x += scale * registers
        f.box(0, y, scale * 240, 26, None, dashed=True)
    f.text(scale * 240, 14, "240", anchor="end", size=SMALL)
    f.note(136, "P takes 16 registers. O, S, P and PV together would take all 240. The registers of S are free until all "
           "parts of P V have been added to O.")


@figure("80-line", "The key tiles of four requests in one line, and the shares of three blocks")
def line_of_tiles(f):
    cell, top, place = 42, 60, 0
    for b, (keys, count) in enumerate(((600, 5), (0, 1), (200, 2), (90, 1))):
        left, color = 20 + cell * place, WARPS[b]
        f.text(left + cell * count / 2, 14, f"request {b}" if count > 1 else f"{b}", anchor="middle", bold=True)
        f.text(left + cell * count / 2, 31, f"{keys} keys" if count > 1 else f"{keys}", anchor="middle", size=SMALL)
        for j in range(count):
            f.cell(left + cell * j, 40, cell, 30, str(j) if keys else "-", color, 0.35)
        place += count
    for block in range(3):
        left, right = 20 + cell * 3 * block, 20 + cell * 3 * (block + 1)
        f.line((left + 2, 78), (left + 2, 86), (right - 2, 86), (right - 2, 78), color="text")
        f.text((left + right) / 2, 102, f"block {block}", anchor="middle")
    f.note(126, "Request 0 has two parts, in blocks 0 and 1, and the block that ends last merges them. The others are "
           "whole. Request 1 has no keys: its tile is not copied, and block 1 writes O = 0 and L = -inf.")


@figure("81-pages", "A row of the block table, and the pages of the pool that it names")
def pages_of_a_pool(f):
    f.text(0, 14, "block table", bold=True)
    for k, page in enumerate((5, 2, 7)):
        f.cell(100 + 46 * k, 0, 46, 22, str(page), WARPS[k], 0.35)
    f.text(250, 14, "40 keys, pages of 16", size=SMALL)
    f.text(0, 58, "pool", bold=True)
    width, owners = 46, {5: (0, 16), 2: (1, 16), 7: (2, 8)}
    for page in range(8):
        x = 50 + width * page
        f.text(x + width / 2, 58, str(page), anchor="middle", size=SMALL)
        f.box(x, 64, width, 88, None)
        if page in owners:
            k, keys = owners[page]
            f.box(x, 64, width, 88 * keys / 16, WARPS[k], 0.35)
            f.lines(x + width / 2, 82, (f"{16 * k} to", str(16 * k + keys - 1)), anchor="middle", size=SMALL)
        if owners.get(page, (0, 8))[1] == 8:
            f.text(x + width / 2, 138, "NaN", anchor="middle", size=SMALL, color="faint")
    f.text(0, 182, "a warp's keys of a tile, d = 128", bold=True)
    for lane in range(6):
        f.cell(64 * lane, 192, 64, 36, "", WARPS[lane // 2 % 4], 0.2)
        f.lines(64 * lane + 32, 207, (f"lane {lane}", f"key {lane // 2 * 8 + lane % 2}"), step=15, anchor="middle", size=SMALL)
    f.text(392, 214, "...")
    f.note(250, "An instruction of warp 0 copies two keys, and the next one two keys 8 further on. Lane l looks up "
           "the page of key 8 floor(l / 2) + l mod 2, and a shuffle passes it to the 16 lanes that copy this key.")


@figure("83-prefix", "How often the keys of a shared prefix are read: for each of four requests, or once for all "
           "their rows")
def shared_prefix(f):
    cell, left, own = 26, 76, (2, 1, 3, 2)  # a key tile; key tiles of the requests' own
    f.text(0, 14, "81: each request reads the prefix", bold=True)
    for b, count in enumerate(own):
        y = 24 + 22 * b
        f.text(0, y + 13, f"request {b}", size=SMALL)
        f.box(left, y, cell * 6, 18, "text", 0.12, line="grid")
        f.box(left + cell * 6, y, cell * count, 18, WARPS[b], 0.4, line="grid")
    f.text(left + cell * 3, 24 + 3.5 * 22, "6 key tiles, 4 times", "faint", SMALL, "middle")
    f.text(0, 142, "83: one tile of 16 rows reads the prefix", bold=True)
    for b, count in enumerate(own):
        y = 152 + 22 * b
        f.text(0, y + 15, f"4 rows of {b}", size=SMALL)
        f.box(left, y, cell * 6, 22, WARPS[b], 0.18, line=None)
        f.arrow((left + cell * 6 + 5, y + 11), (left + cell * 6 + 29, y + 11), color="text")
        f.box(left + cell * 6 + 34, y + 2, cell * count, 18, WARPS[b], 0.4, line="grid")
    f.box(left, 152, cell * 6, 88, None, line="text")
    f.text(left + cell * 3, 200, "6 key tiles, once", anchor="middle", size=SMALL)
    f.text(left + cell * 6 + 17, 256, "O, m, l", anchor="middle", size=SMALL)
    f.note(280, "Four query heads share a key/value head, so a request has 4 rows, and 4 requests fill a tile of 16. "
           "The first pass stores O, m and l of each row in fp32. The second pass starts from them, with each "
           "request's own keys.")


@figure("84-line", "The line of key tiles: those of the prefix for the rows of all requests, then own keys; and equal "
           "shares of four blocks")
def line_of_key_tiles(f):
    cell, prefix, own = 20, 6, (2, 1, 3, 2)  # a key tile; key tiles of the prefix, and of the requests' own keys
    f.text(prefix * cell, 14, "prefix: two query tiles, 128 rows each", "faint", SMALL, "middle")
    f.text((2 * prefix + 4) * cell, 14, "own keys of 4 requests", "faint", SMALL, "middle")
    x = 0
    for n, count in enumerate((prefix, prefix, *own)):
        color = "text" if n < 2 else WARPS[n - 2]
        for _ in range(count):
            f.box(x, 22, cell, 30, color, 0.12 if n < 2 else 0.4, line="grid")
            x += cell
        f.box(x - count * cell, 22, count * cell, 30, None, line="text")
    share = x / 4
    for block in range(4):
        f.cell(share * block, 64, share, 24, f"block {block}: 5 tiles", "shared", 0.12 + 0.08 * (block % 2), size=SMALL,
               line="grid")
    f.note(112, "Block 1 computes the last key tile of the first query tile and four of the second: each of both is a part. "
           "Block 2 ends the second query tile and goes on with the own keys of two requests. The second kernel merges, for each "
           "row, the parts of the prefix and of its own keys.")


@figure("85-window", "A request of 1,000 keys in pages of 64: a window of 128 keys lies in two tiles of a grid, or is one "
           "tile that begins with it")
def window_of_a_cache(f):
    left, scale, keys, page, tile, window = 62, 0.34, 1000, 64, 128, 128
    first = keys - window

    def box(y, begin, end, *style, **line):
        f.box(left + scale * begin, y, scale * (end - begin), 24, *style, **line)

    f.text(0, 40, "pages", bold=True)
    for begin in range(0, keys, page):
        needed = begin + page > first
        box(24, begin, min(keys, begin + page), "text" if needed else None, 0.14, line="grid")
    f.text(left + scale * 430, 41, "given up", "faint", SMALL, "middle")
    box(24, first, keys, "own", 0.45, line="text")
    f.text(left + scale * first, 15, f"key {first}", "own", SMALL, "middle")
    f.text(0, 80, "grid", bold=True)
    for j in first // tile, first // tile + 1:
        box(64, tile * j, tile * (j + 1), "pink", 0.2, line="text")
        f.text(left + scale * tile * (j + 0.5), 81, f"tile {j}", size=SMALL, anchor="middle")
    f.text(0, 120, "85", bold=True)
    box(104, first, keys, "own", 0.3, line="text")
    f.text(left + scale * (first + window / 2), 121, "tile 0", size=SMALL, anchor="middle")
    f.note(156, "The row sees the last 128 keys. Tiles on a grid copy 256 keys for it, and read keys before the window. Tiles "
           "that begin with the window copy 128, and read no page that was given up.")


@figure("94-band", "Scores of eight key tiles and the band around phi: m is phi until a score leaves the band")
def band_of_scores(f):
    left, size, middle, reach = 60, 42, 96, 42  # of a key tile; y of phi, and half of the band
    far = 5  # the first tile with a score outside
    f.box(left, middle - reach, size * 8, 2 * reach, "shared", 0.14, line=None)
    f.line((left, middle), (left + size * 8, middle), color="shared", thick=1.6)
    f.text(left - 8, middle + 5, "phi", "shared", anchor="end", bold=True)
    f.text(left - 8, middle - reach + 9, "+ band", "shared", SMALL, "end")
    f.text(left - 8, middle + reach, "- band", "shared", SMALL, "end")
    heights = (8, -20, 26, -6, -28, 14, 30, -15, 3, -34, 21, -11, 18, -25, 6, 64, -9, 33, -18, 50, 12, -30, 24, 1)
    for n, height in enumerate(heights):
        out = abs(height) > reach
        f.box(left + 7 + 14 * n - 3, middle - height - 3, 6, 6, "pink" if out else "own", 0.9, line=None)
    for j in range(9):
        f.line((left + size * j, 22), (left + size * j, 164), color="grid")
    for j in range(8):
        f.text(left + size * (j + 0.5), 16, str(j), "faint", SMALL, "middle")
    f.text(left - 8, 16, "key tile", "faint", SMALL, "end")
    f.cell(left, 172, size * far, 24, "m = phi: a vote for each tile", "shared", 0.25, size=SMALL)
    f.cell(left + size * far, 172, size * (8 - far), 24, "m = running maximum", "pink", 0.3, size=SMALL)
    f.note(220, "Scores of a warp. One score of tile 5 lies outside the band: m rises from phi to it, and O and l are "
           "rescaled, as in every online softmax. Nothing is recomputed.")


@figure("93-tiles", "The scores of a head in tiles of 64 and of 256 keys, and how often O leaves the block")
def paper_tiles(f):
    size, count, top = 22, 8, 40
    for x, title, keys, trips in ((0, "01: 64 keys", 1, "O leaves 7 times"), (236, "93: 256 keys", 4, "O leaves once")):
        f.text(x, 14, title, bold=True)
        f.text(x + size * count / 2, 34, "512 keys", "faint", SMALL, "middle")
        y = top + size * 3
        for i in range(count):
            for j in range(0, count, keys):
                f.box(x + size * j, top + size * i, size * keys, size, "own" if i == 3 else "shared",
                      0.35 if i == 3 else 0.14, line="grid")
        for j in range(keys, count, keys):
            f.line((x + size * j, y - 3), (x + size * j, y + size + 3), color="text", thick=2.4)
        f.text(x, top + size * count + 18, trips, "own", SMALL, bold=True)
        f.text(x, top + size * count + 34, f"{count * count // keys} tiles, {9 * count * count // keys} barriers", size=SMALL)
    f.lines(182, top + size * 3 + 10, ["query", "tile 3"], color="own", size=SMALL)
    f.note(top + size * count + 58, "512 queries, 512 keys. At each bar O, m and l of query tile 3 go to global "
           "memory, and are read again for the next key tile. Every tile costs nine barriers, and an exchange of P~V "
           "whose size does not depend on the number of keys.")


def files():
    """The pictures: (name of the file, its text)."""
    for name, (draw, title) in FIGURES.items():
        drawn = Figure()
        draw(drawn)
        yield f"{name}.svg", drawn.svg(title)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    for name, text in files():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
