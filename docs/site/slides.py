"""The course's slides: a Markdown file of docs/course/slides becomes a page of its own, outside of Doxygen's frame.

`---` separates slides. `<!-- block: PATH NAME -->` shows the generated block NAME of the page PATH, so that a deck has
no typed measurement; `<!-- block: PATH NAME: ROW, ROW -->` shows these rows of its table. A deck may also ask for what
any page may: explorers, and links to stages.
"""

import html
import re

from markup import Markdown
from pages import ROOT, read

ASKED = re.compile(r"<!-- block: (\S+)\s([^:]*?)(?::\s(.*?))? -->", re.S)

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="katex/katex.min.css"><script defer src="katex/katex.min.js"></script>
<script defer src="katex/contrib/auto-render.js"></script>
<style>
{style}</style>
<script>
{script}</script>
</head><body>
<nav><a href="{all_decks}">All slides</a> <span>arrow keys: another slide; n: its notes</span></nav>
{slides}</body></html>
"""


# The rest of a table, folded
FOLD = re.compile(r"\n<details><summary>[^<]*</summary>\n\n(\|[^\n]*\n\|[-:|]*\n)(.*?)\n</details>\n", re.S)


def in_sight(block):
    """Without its folds: a slide's only one are its notes."""
    return re.sub(r"<details>.*?</details>\n", "", FOLD.sub("", block), flags=re.S)


def unfolded(block):
    """With the rows of the fold below those in sight; of a fold with other columns, with its table alone."""
    fold = FOLD.search(block)
    if fold and block.count(fold[1]) == 1:
        return re.sub(r"(?m)^\|.*\n", "", block[:fold.start()]) + fold[1] + fold[2] + block[fold.end():]
    return FOLD.sub(lambda fold: fold[2], block)


def rows_of(block, wanted):
    """A block's table with those rows only whose first cell is wanted, folded or not, and the wanted ones that it does
    not have."""
    shown, missing = picked(in_sight(block), wanted)
    return picked(unfolded(block), wanted) if missing else (shown, missing)


def picked(block, wanted):
    lines, missing = [], set(wanted)
    head = True
    for line in block.split("\n"):
        if line.startswith("|"):
            first = line.split("|")[1].strip()
            missing.discard(first)
            if head or first in wanted:
                lines.append(line)
            head = head and not first.startswith("---")
        else:
            lines.append(line)
            head = True
    return "\n".join(lines), sorted(missing)


class Slides:
    """`pages` knows where links lead, `ladder` what the site makes by itself."""

    def __init__(self, pages, ladder):
        self.pages, self.ladder = pages, ladder

    def parsed(self, path, text):
        """A text whose links start at `path`: what renders it, and its tokens."""
        markdown = Markdown(lambda target: self.pages.resolve(path, target))
        tokens = markdown.parse(text)
        self.ladder.prepare(tokens)
        return markdown, tokens

    def block(self, deck, asked):
        path, name, rows = asked[1], " ".join(asked[2].split()), asked[3]
        found = re.search(f"<!-- generated: {re.escape(name)} -->\n(.*?)<!-- end -->",
                          read(path) if (ROOT / path).is_file() else "", re.S)
        if not found:
            self.pages.problems.append(f"{deck}: {path} has no generated block '{name}'")
            return ""
        text = found[1]
        if rows:
            text, missing = rows_of(text, [" ".join(row.split()) for row in rows.split(",")])
            self.pages.problems += [f"{deck}: '{name}' of {path} has no row '{row}'" for row in missing]
        markdown, tokens = self.parsed(path, in_sight(text))
        return f'<div class="block">{markdown.render(tokens)}</div>\n'

    def page(self, deck):
        """The deck as a page."""
        text = read(deck)
        markdown, tokens = self.parsed(deck, text)
        for token in tokens:
            if token.type == "html_block" and (asked := ASKED.match(token.content.strip())):
                token.type, token.content = "site_html", self.block(deck, asked)
        ends = [n for n, token in enumerate(tokens) if token.type == "hr" and token.level == 0] + [len(tokens)]
        starts = [0] + [end + 1 for end in ends]
        slides = "".join(f'<section id="{n}">\n{markdown.render(tokens[start:end])}</section>\n'
                         for n, (start, end) in enumerate(zip(starts, ends), 1))
        return PAGE.format(title=html.escape(re.search("^# (.*)", text, re.M)[1]), slides=slides,
                           all_decks=self.pages["docs/course/slides/README.md"].file,
                           style=read("docs/site/slides.css"), script=read("docs/site/slides.js"))
