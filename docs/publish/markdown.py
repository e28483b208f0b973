"""Tables and numbers as Markdown shows them."""

import re
import textwrap
from itertools import zip_longest

# A measured number in prose, which spans.py fills. In a notebook's JSON the quotes have backslashes.
SPAN = re.compile(r'<data value=(\\?)"([^"\\]*)\\?">([^<]*)</data>')


def without_spans(text):
    """The same words where nothing is to be generated."""
    return SPAN.sub(lambda span: span[3], text)


def cell(text):
    """A bar would end the cell, and a line break the row."""
    return (text or "").replace("|", "\\|").replace("\n", " ")


def table(columns, rows):
    """Columns are titles; one that begins with ">" is aligned to the right. Missing cells at the end are empty."""
    lines = ["|" + "".join(f" {cell(title.removeprefix('>'))} |" for title in columns),
             "|" + "".join("---:|" if title.startswith(">") else "---|" for title in columns)]
    for row in rows:
        row = [*row, *[""] * (len(columns) - len(row))]
        lines.append("|" + "".join(f" {cell(text)} |" if text else " |" for text in row))
    return "\n".join(lines) + "\n"


def plain_table(columns, rows, width=None):
    """The same for a terminal. What is wider than `width` is made to fit as far as words allow: titles take several
    lines, and then what is aligned to the left."""
    def longest(texts):
        return max(map(len, texts), default=0)

    def words(texts):
        return " ".join(texts).split()

    right = [title.startswith(">") for title in columns]
    lines = [[title.removeprefix(">") for title in columns], *([*row, *[""] * (len(columns) - len(row))] for row in rows)]
    titles, *cells = lines
    own = [[line[n] for line in cells] for n in range(len(columns))]
    widths = [longest([title, *texts]) for title, texts in zip(titles, own)]
    one_line = [longest([*words([title]), *texts]) for title, texts in zip(titles, own)]
    several = [least if end else longest(words([title, *texts]))
               for title, texts, least, end in zip(titles, own, one_line, right)]
    for least in (one_line, several):
        while width and sum(widths) + 2 * (len(widths) - 1) > width and any(map(int.__gt__, widths, least)):
            widest = max((n for n in range(len(widths)) if widths[n] > least[n]), key=widths.__getitem__)
            widths[widest] -= 1
    shown = []
    for line in lines:
        pieces = [textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
                  for text, room in zip(line, widths)]
        shown += ["  ".join(text.rjust(room) if end else text.ljust(room)
                            for text, room, end in zip(row, widths, right)).rstrip()
                  for row in zip_longest(*pieces, fillvalue="")]
    return "".join(f"{line}\n" for line in shown)


def titled(title, content):
    return f"\n{title}:\n\n{content}"


def folded(summary, content):
    return f"\n<details><summary>{summary}</summary>\n\n{content}\n</details>\n"


def bold(text, wanted=True):
    return f"**{text}**" if text and wanted else text


def in_words(name):
    return name.replace("_", " ")


def times(value):
    return "" if value is None else f"{value:.2f}x"


def percent(value, digits=0):
    return "" if value is None else f"{100 * value:.{digits}f}%"


def rounded(value, small):
    """With one decimal below `small`, and none above."""
    return f"{value:.{1 if value < small else 0}f}"


def short_size(n):
    return f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else str(n)


def human_bytes(count):
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.4g} {units[0]}"
