"""Draws pictures.json, a line for each picture, in colours that follow the reader's theme: progress, which is how fast
the stages of a part are, one after the other; the whole ladder; charts, which are panels of lines against N; and the roofline.

    draw.py [FOLDER]    reads FOLDER/pictures.json and writes FOLDER/*.svg; this folder if none is named

`lab tables` makes pictures.json of the recordings and runs this. The same input gives the same bytes. Each picture
holds the line of pictures.json that it shows, as its description, by which a stale one is known.
"""

import io
import json
import math
import sys
from itertools import cycle
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "figures"))
sys.dont_write_bytecode = True

from themes import COLORS, OTHERS, STAGES, adaptive  # noqa: E402

WIDTH = 370  # in the pixels of a narrow phone, nearly; a page may show it larger
ROOF_HEIGHT = 300
TITLE_END, LINE, ROW, BAR = 40, 15, 21, 13
PROGRESS_HEAD = 50
SPEEDUP_WIDTH = 44
LADDER_LEFT, LADDER_HEAD, PLOT_HEIGHT, LADDER_FOOT = 34, 32, 100, 38
SMALL = {"fontsize": 9.5}

# Charts, in pixels: two panels beside each other.
CHART_WIDTH, PANEL_HEIGHT, PANEL_GAP, LEGEND_COLUMNS = 620, 172, 46, 3
MARGINS = {"left": 44, "right": 8, "bottom": 40}

MARKERS = "osD^v<>P*"
COLOR = {name: light for name, (light, _) in COLORS.items()}
plt.rcParams.update({"svg.fonttype": "path", "svg.hashsalt": "flash-ladder", "font.family": "DejaVu Sans",
                     "font.size": 10.5, "figure.dpi": 72})


def words_of(folder):
    return folder.replace("_", " ")


def weight_of(step):
    return "bold" if step["shows_here"] else "normal"


def rate_text(rate):
    return f"{rate:.1f}" if rate < 10 else f"{rate:.0f}"


def speedup_text(speedup):
    return f"{speedup:.2f}x" if speedup < 10 else f"{speedup:.0f}x"


def tick(top):
    """1, 2 or 5 times a power of ten: at most five of them fit."""
    power = 10 ** math.floor(math.log10(top / 5))
    return next(factor * power for factor in (1, 2, 5, 10) if top / (factor * power) <= 5)


class Picture:
    """A figure whose units are pixels from the upper left corner."""

    def __init__(self, height):
        self.figure = plt.figure(figsize=(WIDTH / 72, height / 72))
        self.axes = self.figure.add_axes([0, 0, 1, 1])
        self.axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.axes.axis("off")

    def text(self, x, y, words, color="text", **style):
        """Words on the baseline y, on a patch of page so that lines behind them do not disturb."""
        self.axes.text(x, y, words, color=COLOR[color], parse_math=False,
                       bbox={"facecolor": COLOR["page"], "edgecolor": "none", "pad": 0.5}, **style)

    def bar(self, start, end, y, height, color, **style):
        self.axes.add_patch(plt.Rectangle((start, y), end - start, height, facecolor=COLOR[color], **style))

    def lost(self, start, end, y, height):
        self.axes.add_patch(plt.Rectangle((start, y), end - start, height, fill=False, linewidth=1,
                                          edgecolor=COLOR["faint"], linestyle=(0, (2, 2))))

    def line(self, x, start, end, color, **style):
        self.axes.plot([x, x], [start, end], color=COLOR[color], **{"linewidth": 1, **style})


def width_of(words, weight):
    font = FontProperties(weight=weight, size=plt.rcParams["font.size"])
    return TextPath((0, 0), words, prop=font).get_extents().width


def size_text(n):
    return f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else str(n)


def draw_chart(chart):
    """Panels of lines over N, two in a row, all of one scale. Measured stages are solid lines, all else is dashed."""
    rows = (len(chart["panels"]) + 1) // 2
    header = 40 + 17 * ((len(chart["lines"]) + LEGEND_COLUMNS - 1) // LEGEND_COLUMNS) + 22
    height = header + rows * PANEL_HEIGHT + (rows - 1) * PANEL_GAP + MARGINS["bottom"]
    figure, axes = plt.subplots(rows, 2, sharex=True, sharey=True, squeeze=False,
                                figsize=(CHART_WIDTH / 72, height / 72))
    figure.subplots_adjust(left=MARGINS["left"] / CHART_WIDTH, right=1 - MARGINS["right"] / CHART_WIDTH,
                           bottom=MARGINS["bottom"] / height, top=1 - header / height, wspace=0.06,
                           hspace=PANEL_GAP / PANEL_HEIGHT)
    figure.text(0, 1 - 16 / height, chart["title"], color=COLOR["text"], fontsize=14, weight="bold")
    figure.text(0, 1 - 33 / height, chart["problem"], color=COLOR["faint"], fontsize=9.5)
    x = chart["N"]
    for panel, axis in zip(chart["panels"], axes.flat):
        # Ratios are to the first stage, which is then no line; the others keep their colours.
        styles = {"stage": cycle(STAGES[chart["log"]:]), "other": cycle(OTHERS)}
        for line, values, marker in zip(chart["lines"], panel["values"], cycle(MARKERS)):
            stage = line["kind"] == "stage"
            color, _ = next(styles["stage" if stage else "other"])
            points = [(n, value) for n, value in zip(x, values) if value is not None]
            axis.plot([n for n, _ in points], [value for _, value in points], label=line["name"], color=color,
                      linestyle="-" if stage else (0, (4, 2)), linewidth=1.6, marker=marker, markersize=4.5,
                      markerfacecolor=color if stage else COLOR["page"])
        axis.set_title(panel["title"], color=COLOR["text"], fontsize=10.5, loc="left")
        axis.set_xscale("log", base=2)
        axis.set_xticks(x, [size_text(n) for n in x])
        axis.minorticks_off()
        if chart["log"]:
            axis.set_yscale("log", base=2)
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}x")
            axis.axhline(1, color=COLOR["faint"], linewidth=1)
        axis.grid(color=COLOR["grid"], linewidth=0.6)
        axis.set_axisbelow(True)
        axis.tick_params(colors=COLOR["faint"], labelsize=9, length=0, labelbottom=True)
        axis.set_facecolor("none")
        for spine in axis.spines.values():
            spine.set_visible(False)
    if not chart["log"]:
        axis.set_ylim(bottom=0)
    for axis in axes[-1]:
        axis.set_xlabel("N", color=COLOR["faint"], fontsize=9.5)
    for axis in axes.flat[len(chart["panels"]):]:
        axis.set_visible(False)
    handles, names = axes.flat[0].get_legend_handles_labels()
    # A legend fills its columns from the top; these names read along the rows.
    order = [i for column in range(LEGEND_COLUMNS) for i in range(column, len(names), LEGEND_COLUMNS)]
    figure.legend([handles[i] for i in order], [names[i] for i in order], loc="upper left",
                  bbox_to_anchor=(0, 1 - 42 / height), ncols=LEGEND_COLUMNS, frameon=False, fontsize=9.5,
                  labelcolor=COLOR["text"], borderpad=0, borderaxespad=0, handlelength=3, labelspacing=0.4,
                  columnspacing=1.5)
    return figure


def draw_progress(progress):
    """A bar for each rung: what it had from its parent, and what its change gained. What they are compared with is a line."""
    steps, yardsticks = progress["steps"], progress["yardsticks"]
    first = PROGRESS_HEAD + LINE * len(yardsticks)  # the baseline of the slowest's name
    top = first + 12
    bottom = top + ROW * len(steps)
    picture = Picture(bottom + 26)
    picture.text(0, 16, progress["title"], fontsize=14, weight="bold")
    picture.text(0, 33, progress["problem"], "faint", **SMALL)
    x, y = 0, 33 + LINE
    for kind, words in legend_of(steps):
        if kind == "lost":
            picture.lost(x + 0.5, x + 8.5, y - 8, 8)
        elif kind == "library":
            picture.line(x + 4.5, y - 10, y + 2, "text", linewidth=2)
        else:
            picture.bar(x, x + 9, y - 8.5, 9, kind)
        picture.text(x + 14, y, words, "faint", **SMALL)
        x += 30 + width_of(words, "normal")

    left = 12 + max(width_of(words_of(step["stage"]), weight_of(step)) for step in steps)
    longest = max(max(step["rate"], step["rate"] / (step["over_parent"] or 1)) for step in steps)
    libraries = [step["library"]["rate"] for step in steps if "library" in step]
    fastest = max([longest, *libraries, *(line["rate"] for line in yardsticks)])
    room = WIDTH - 14 - left  # half a number of the axis
    per_rate = min(room / fastest, (room - SPEEDUP_WIDTH) / max([longest, *libraries]))

    def at(rate):
        return left + per_rate * rate

    step_of_axis = tick(fastest)
    for i in range(int(fastest / step_of_axis) + 1):
        x = at(i * step_of_axis)
        picture.line(x, top, bottom, "grid", zorder=0)
        picture.text(x, bottom + 14, f"{i * step_of_axis:g}", "faint", ha="center", **SMALL)
    for i, line in enumerate(yardsticks):
        y, x = first - LINE * i, at(line["rate"])
        name = f"{line['name']} {rate_text(line['rate'])}"
        picture.line(x, y - 10, bottom, "faint", linestyle=(0, (4, 3)), zorder=0)
        ends = x - 4 > width_of(name, "normal")
        picture.text(x - 4 if ends else x + 4, y, name, "faint", ha="right" if ends else "left", **SMALL)
    for i, step in enumerate(steps):
        draw_step(picture, step, left, top + ROW * i + (ROW - BAR) / 2, at)
    return picture.figure


def legend_of(steps):
    kinds = {"shared": ("where it starts", any(step["start"] for step in steps)),
             "own": ("gained by the change", any(step["over_parent"] for step in steps)),
             "lost": ("lost by it", any((step["over_parent"] or 1) < 0.995 for step in steps)),
             "library": ("the fastest library on the same mask, and the stage over it",
                         any("library" in step for step in steps))}
    return [(kind, words) for kind, (words, shown) in kinds.items() if shown]


def draw_step(picture, step, left, y, at):
    baseline = y + BAR - 2.5
    picture.text(0, baseline, words_of(step["stage"]), weight=weight_of(step))
    x, speedup, library = at(step["rate"]), step["over_parent"], step.get("library")
    before = at(step["rate"] / speedup) if speedup else x
    picture.bar(left, min(before, x), y, BAR, "shared" if step["start"] else "own", alpha=0.45 if speedup else 1, linewidth=0)
    if x > before:
        picture.bar(before, x, y, BAR, "own", linewidth=0)
    if x < before:
        picture.lost(x, before, y + 0.5, BAR - 1)
    if library:
        picture.line(at(library["rate"]), y - 2.5, y + BAR + 2.5, "text", linewidth=2)
    shown = speedup or (library and library["over"])
    picture.text(max(before, x, at(library["rate"]) if library else 0) + 5, baseline,
                 speedup_text(shown) if shown else rate_text(step["rate"]),
                 "text" if step["shows_here"] else "faint", weight=weight_of(step), **SMALL)


def draw_ladder(ladder):
    """Upright bars, one for each rung, in panels below each other: what a rung had from its parent, and what it gained. Below
    stands what a part is called, and above its last rung how many times as fast as the fastest library that is."""
    panels = ladder["ladder"]
    height = LADDER_HEAD + PLOT_HEIGHT + LADDER_FOOT
    top = TITLE_END + LINE
    picture = Picture(top + height * len(panels))
    picture.text(0, 16, ladder["title"], fontsize=14, weight="bold")
    picture.text(0, 33, "A bar is a rung; its full colour is what its one change gained.", "faint", **SMALL)
    picture.text(0, 33 + LINE, "Bold: the last rung of a part over the fastest library.", "faint", **SMALL)
    columns = max(sum(len(group["steps"]) for group in panel["groups"]) for panel in panels)
    for n, panel in enumerate(panels):
        draw_columns(picture, panel, top + height * n, (WIDTH - LADDER_LEFT) / columns)
    return picture.figure


def draw_columns(picture, panel, start, pitch):
    steps = [step for group in panel["groups"] for step in group["steps"]]
    fastest = max(*(step["rate"] for step in steps), *(line["rate"] for line in panel["yardsticks"]))
    base = start + LADDER_HEAD + PLOT_HEIGHT

    def at(rate):
        return base - PLOT_HEIGHT * rate / fastest

    picture.text(0, start + 16, f"{panel['title']}: {panel['unit']}", weight="bold")
    picture.text(width_of(f"{panel['title']}: {panel['unit']}", "bold") + 8, start + 16, panel["problem"], "faint", **SMALL)
    step_of_axis = tick(fastest)
    for i in range(int(fastest / step_of_axis) + 1):
        y = at(i * step_of_axis)
        picture.axes.plot([LADDER_LEFT, WIDTH], [y, y], color=COLOR["grid"], linewidth=1, zorder=0)
        picture.text(LADDER_LEFT - 4, y + 3.5, f"{i * step_of_axis:g}", "faint", ha="right", **SMALL)
    baseline = 0
    for line in reversed(panel["yardsticks"]):
        y = at(line["rate"])
        baseline = max(y - 3, baseline + 11)
        picture.axes.plot([LADDER_LEFT, WIDTH], [y, y], color=COLOR["faint"], linewidth=1, linestyle=(0, (4, 3)), zorder=0)
        name = line["name"].replace("FlashAttention-", "FA")
        apart = f" (in a run where {line['apart']})" if "apart" in line else ""
        picture.text(LADDER_LEFT + 4, baseline, f"{name} {rate_text(line['rate'])}{apart}", "faint", zorder=5, **SMALL)
    x = LADDER_LEFT
    for color, group in zip(cycle(("shared", "own", "green")), panel["groups"]):
        first = x
        for step in group["steps"]:
            now, before = at(step["rate"]), at(step["rate"] / (step["over_parent"] or 1))
            style = {"linewidth": 0, "zorder": 2}
            picture.bar(x + 1.5, x + pitch - 1.5, max(now, before), base - max(now, before), color, alpha=0.45, **style)
            if now < before:
                picture.bar(x + 1.5, x + pitch - 1.5, now, before - now, color, **style)
            picture.text(x + pitch / 2, base + 12, step["stage"][:2], "faint", ha="center", **SMALL)
            x += pitch
        picture.axes.plot([first + 1.5, x - 1.5], [base + 17, base + 17], color=COLOR[color], linewidth=2)
        picture.text(first + 1.5, base + 29, group["part"], **SMALL)
        if group["over"]:
            highest = max(step["rate"] for step in group["steps"][-2:])  # the words are as wide as two bars
            picture.text(x - 1, at(highest) - 4, f"{group['over']:.2f}x", ha="right", weight="bold", zorder=6, **SMALL)


def groups_of(points):
    """Points that would cover each other are one: (stages, x, y) with the mean of their places."""
    groups = []
    for point in points:
        near = next((group for group in groups if group[0]["problem"] == point["problem"] and
                     all(abs(math.log10(group[0][key] / point[key])) < 0.06 for key in ("intensity", "tflops"))), None)
        if near:
            near.append(point)
        else:
            groups.append([point])
    return groups


def draw_roofline(roof):
    """Operations per second against operations per byte of HBM, both logarithmic, under the two ceilings."""
    picture = Picture(ROOF_HEIGHT)
    left, right, top, bottom = 34, WIDTH - 8, 50, ROOF_HEIGHT - 34
    low_x, high_x = 1, 4 * max(point["intensity"] for point in roof["points"])
    low_y = 10 ** math.floor(math.log10(min(p["tflops"] for p in roof["points"])))
    high_y = 10 ** math.ceil(math.log10(roof["tflops"] * 1.1))

    def at_x(intensity):
        return left + (right - left) * math.log10(intensity / low_x) / math.log10(high_x / low_x)

    def at_y(tflops):
        return bottom - (bottom - top) * math.log10(tflops / low_y) / math.log10(high_y / low_y)

    picture.text(0, 16, roof["title"], fontsize=14, weight="bold")
    picture.text(0, 33, "TFLOP/s against operations per byte of HBM", "faint", **SMALL)
    for power in range(math.floor(math.log10(high_x / low_x)) + 1):
        picture.line(at_x(low_x * 10**power), top, bottom, "grid", zorder=0)
        picture.text(at_x(low_x * 10**power), bottom + 14, f"{low_x * 10**power:g}", "faint", ha="center", **SMALL)
    for power in range(round(math.log10(high_y / low_y)) + 1):
        y = at_y(low_y * 10**power)
        picture.axes.plot([left, right], [y, y], color=COLOR["grid"], linewidth=1, zorder=0)
        picture.text(left - 5, y + 3.5, f"{low_y * 10**power:g}", "faint", ha="right", **SMALL)
    ridge = roof["tflops"] * 1000 / roof["gbs"]
    start = max(low_x, low_y * 1000 / roof["gbs"])
    picture.axes.plot([at_x(start), at_x(ridge), right],
                      [at_y(roof["gbs"] * start / 1000), at_y(roof["tflops"]), at_y(roof["tflops"])],
                      color=COLOR["text"], linewidth=1.5)
    picture.text(right, at_y(roof["tflops"]) - 5, f"a GEMM: {roof['tflops']:.0f} TFLOP/s", "faint", ha="right", **SMALL)
    picture.text(at_x(ridge) - 46, at_y(roof["tflops"]) + 22, f"a copy: {roof['gbs']:.0f} GB/s", "faint", ha="right",
                 **SMALL)
    problems = list(dict.fromkeys(point["problem"] for point in roof["points"]))
    room = {}  # below what each column of labels may go on, from the slowest upwards
    for group in sorted(groups_of(roof["points"]), key=lambda group: group[0]["tflops"]):
        x, y = at_x(group[0]["intensity"]), at_y(group[0]["tflops"])
        column = round(x / 40)
        baseline = min(y + 3.5, room.get(column, bottom))
        room[column] = baseline - 13
        color = COLOR["shared" if group[0]["problem"] == problems[0] else "own"]
        picture.axes.plot([x], [y], "o", color=color, markersize=6)
        picture.text(x + 7, baseline, ", ".join(point["stage"][:2] for point in group), weight="bold")
    for number, problem in enumerate(problems):
        x = left + 14 + 90 * number
        picture.axes.plot([x], [ROOF_HEIGHT - 7], "o", color=COLOR[("shared", "own")[min(number, 1)]], markersize=6)
        picture.text(x + 8, ROOF_HEIGHT - 3.5, problem, "faint", **SMALL)
    return picture.figure


DRAW = {"steps": draw_progress, "ladder": draw_ladder, "panels": draw_chart, "points": draw_roofline}


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    for line in (folder / "pictures.json").read_text().splitlines():
        if line in "[]":
            continue
        line = line.rstrip(",")
        picture = json.loads(line)
        figure = next(draw for field, draw in DRAW.items() if field in picture)(picture)
        svg = io.StringIO()
        figure.savefig(svg, transparent=True,
                       metadata={"Date": None, "Creator": None, "Title": picture["title"], "Description": line})
        (folder / f"{picture['name']}.svg").write_text(adaptive(svg.getvalue()), encoding="utf-8")
        plt.close(figure)


if __name__ == "__main__":
    main()
