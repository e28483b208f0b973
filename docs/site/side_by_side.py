"""A unified diff of two kernels as two columns: words marked, what is unchanged folded, each change explained."""

import html
import re
from difflib import SequenceMatcher

from markup import span, tokens_by_line

CONTEXT = 3          # unchanged lines around a change that stay visible, as many as `diff -u` prints
ALIKE = 0.4          # two lines with less in common than this are not versions of one line


def parse(unified_diff, old_count):
    """The whole of both files as runs: ("same", old, new, length) and ("change", old lines, new lines), from 0."""
    runs, old, new = [], 0, 0

    def same(length):
        nonlocal old, new
        if length and runs and runs[-1][0] == "same":
            runs[-1] = ("same", runs[-1][1], runs[-1][2], runs[-1][3] + length)
        elif length:
            runs.append(("same", old, new, length))
        old, new = old + length, new + length

    for line in unified_diff.splitlines()[2:]:
        position = re.match(r"@@ -(\d+)", line)
        if position:
            same(int(position[1]) - 1 - old)
        elif line.startswith(" "):
            same(1)
        elif line[:1] in ("-", "+"):
            if not runs or runs[-1][0] != "change":
                runs.append(("change", [], []))
            if line[0] == "-":
                runs[-1][1].append(old)
                old += 1
            else:
                runs[-1][2].append(new)
                new += 1
    same(old_count - old)
    return runs


def words(line):
    return [word for _, text in line for word in re.findall(r"\w+|\s+|[^\w\s]", text)]


def likeness(old, new):
    old, new = ([word for word in words(line) if not word.isspace()] for line in (old, new))
    return SequenceMatcher(None, old, new, autojunk=False).ratio() if old and new else 0.0


def pair(old, new, old_lines, new_lines):
    """Rows (old line or None, new line or None): versions of one line stand beside each other, in order."""
    like = [[likeness(old_lines[a], new_lines[b]) for b in new] for a in old]
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]  # of the lines from a and b on
    for a in reversed(range(len(old))):
        for b in reversed(range(len(new))):
            together = best[a + 1][b + 1] + like[a][b] if like[a][b] >= ALIKE else -1
            best[a][b] = max(together, best[a + 1][b], best[a][b + 1])
    rows, alone = [], ([], [])

    def flush():
        for n in range(max(map(len, alone))):
            rows.append(tuple(side[n] if n < len(side) else None for side in alone))
        for side in alone:
            side.clear()

    a = b = 0
    while a < len(old) and b < len(new):
        if best[a][b] == best[a + 1][b]:
            alone[0].append(old[a])
            a += 1
        elif best[a][b] == best[a][b + 1]:
            alone[1].append(new[b])
            b += 1
        else:
            flush()
            rows.append((old[a], new[b]))
            a, b = a + 1, b + 1
    alone[0].extend(old[a:])
    alone[1].extend(new[b:])
    flush()
    return rows


def mark(line, other, tag):
    """The line with the words that `other` does not have in <tag>, or without marks if they have little in common."""
    mine, theirs = words(line), words(other)
    kept = [False] * len(mine)
    for block in SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks():
        kept[block.a:block.a + block.size] = [True] * block.size
    for n in range(len(mine)):  # a space is marked between marked words, and only there
        if mine[n].isspace():
            kept[n] = not (0 < n < len(mine) - 1) or kept[n - 1] or kept[n + 1]
    pieces, n = [], 0
    for kind, text in line:
        for word in re.findall(r"\w+|\s+|[^\w\s]", text):
            if pieces and pieces[-1][0] == (kind, kept[n]):
                pieces[-1][1] += word
            else:
                pieces.append([(kind, kept[n]), word])
            n += 1
    return "".join(span(kind, text) if keep else f"<{tag}>{span(kind, text)}</{tag}>" for (kind, keep), text in pieces)


class SideBySide:
    """The diff of two kernels, as `lab diff` has it."""

    def __init__(self, old_code, new_code, unified_diff):
        self.old, self.new = tokens_by_line(old_code), tokens_by_line(new_code)
        self.runs = parse(unified_diff, len(self.old))

    def changes(self):
        """The changes as (old lines, new lines, first behind a fold), lines from 0."""
        found, first = [], True
        for number, run in enumerate(self.runs):
            if run[0] == "change":
                found.append((run[1], run[2], first))
            first = self.folds(number)
        return found

    @staticmethod
    def cell(side, line, code):
        if line is None:
            return f'<div class="{side} none"></div>'
        return f'<div class="{side}"><span class="no">{line + 1}</span><code>{code or " "}</code></div>'

    def unchanged(self, old, new, length):
        rows = []
        for n in range(length):
            code = "".join(span(*token) for token in self.new[new + n])
            rows.append(self.cell("old", old + n, code) + self.cell("new", new + n, code))
        return f'<div class="rows same">{"".join(rows)}</div>\n' if rows else ""

    def folded(self, old, new, length, names):
        inside = f': {html.escape(", ".join(names))}' if names else ""
        return (f"<details><summary>{length} unchanged lines{inside}</summary>\n"
                f"{self.unchanged(old, new, length)}</details>\n")

    def change(self, old, new):
        rows = []
        for a, b in pair(old, new, self.old, self.new):
            left, right = ("".join(span(*token) for token in side[n]) if n is not None else ""
                           for side, n in ((self.old, a), (self.new, b)))
            if left and right and likeness(self.old[a], self.new[b]) >= ALIKE:
                left, right = mark(self.old[a], self.new[b], "del"), mark(self.new[b], self.old[a], "ins")
            rows.append(self.cell("old", a, left) + self.cell("new", b, right))
        return f'<div class="rows change">{"".join(rows)}</div>\n'

    def html(self, definitions, heads):
        """The two columns. `definitions` are the new file's. Of `heads` one stands above each change: above its context
        if it is the first behind a fold."""
        heads = iter([f'<div class="why">{head}</div>\n' if head else "" for head in heads])
        parts = [] if self.folds(0) else [next(heads)]
        head_is_there = True
        for number, run in enumerate(self.runs):
            if run[0] == "change":
                parts.append("" if head_is_there else next(heads))
                parts.append(self.change(run[1], run[2]))
                head_is_there = False
                continue
            _, old, new, length = run
            if not self.folds(number):
                parts.append(self.unchanged(old, new, length))
                continue
            before = CONTEXT if number > 0 else 0
            after = CONTEXT if number + 1 < len(self.runs) else 0
            hidden = length - before - after
            names = [d.name for d in definitions if new + before <= d.first < new + before + hidden]
            parts.append(self.unchanged(old, new, before))
            parts.append(self.folded(old + before, new + before, hidden, names))
            if after:
                parts.append(next(heads))
                head_is_there = True
            parts.append(self.unchanged(old + length - after, new + length - after, after))
        return "".join(parts)

    def folds(self, number):
        """Is run `number` unchanged and long enough to hide its middle?"""
        visible = CONTEXT * ((number > 0) + (number + 1 < len(self.runs)))
        return self.runs[number][0] == "same" and self.runs[number][3] > visible + 1
