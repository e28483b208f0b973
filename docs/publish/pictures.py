"""Pictures that docs/plots/draw.py draws of numbers."""

import html
import json
from typing import NamedTuple

from markdown import rounded, short_size

PLOTS = "docs/plots"


def line_of(data):
    return json.dumps(six_digits(data), ensure_ascii=False, separators=(",", ":"))


def six_digits(data):
    """The same, with numbers to as many digits as anybody sees."""
    if isinstance(data, dict):
        return {key: six_digits(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [*map(six_digits, data)]
    return float(f"{data:.6g}") if isinstance(data, float) else data


class Picture(NamedTuple):
    """What a page needs of it."""
    data: dict  # what draw.py reads; its name is that of the files
    words: str  # the same in words, in one line, for those who do not see it
    width: int  # on a page, in pixels

    @property
    def line(self):
        return line_of(self.data)

    @property
    def file(self):
        return f"{PLOTS}/{self.data['name']}.svg"

    def is_shown(self, svg):
        """Whether draw.py made this SVG of these data, and not of older ones."""
        return f">{html.escape(self.line, quote=False)}<" in svg

    def html(self, page):
        words = html.escape(self.words, quote=False).replace('"', "&quot;")
        return f'<img width="{self.width}" alt="{words}" src="{page.link(self.file)}">\n'


def centered(pictures, page):
    return f'<p align="center">\n{"".join(picture.html(page) for picture in pictures)}</p>\n'


def chart(name, title, problem, lengths, lines, panels, are_ratios=False):
    """Lines over the sequence length N, in panels that share their scales. `lines` are pairs of a name and whether it
    is a stage's measurement, and not what that is compared with; `panels` have a title and the values of each line,
    None where there is none. Ratios are on a logarithmic scale around 1."""
    data = {"name": name, "title": title, "problem": problem, "log": are_ratios, "N": lengths,
            "lines": [{"name": line, "kind": "stage" if is_stage else "other"} for line, is_stage in lines],
            "panels": [{"title": panel, "values": values} for panel, values in panels]}

    def text(value):
        if value is None:
            return "-"
        return f"{value:.2g}x" if are_ratios else rounded(value, 10)

    def panel_text(values):
        return ", ".join(f"{line} {' '.join(map(text, own))}" for (line, _), own in zip(lines, values)
                         if any(value is not None for value in own))

    in_words = "; ".join(f"{panel}: {panel_text(values)}" for panel, values in panels)
    return Picture(data, f"{title}. {problem}. At N = {' '.join(map(short_size, lengths))}. {in_words}", 620)
