"""What a kernel's source and its lesson say of a change."""

import html
import re
from dataclasses import dataclass

DEFINITION = re.compile(
    r"(?P<doc>(?:^///.*\n)*)(?:^template <.*>\n)?^(?:struct (?P<struct>\w+)|(?P<declaration>LADDER_STAGE)\(|"
    r"(?!using|return|//|#)\w[^;{}=()]*?(?:__launch_bounds__\([^()]*\)\s+)?(?!__launch_bounds__)"
    r"\b(?P<function>\w+)\((?:[^;{]|\{\})*\) \{)", re.M)


@dataclass(frozen=True)
class Definition:
    """A function or struct at the top level, from its comment on, which keeps its lines. Lines count from 0."""
    name: str
    doc: str
    first: int


def definitions(code):
    found = []
    for match in DEFINITION.finditer(code):
        name = match["struct"] or match["function"] or match["declaration"]
        doc = "\n".join(line.removeprefix("///").removeprefix(" ").rstrip() for line in match["doc"].splitlines())
        found.append(Definition(name, doc, code.count("\n", 0, match.start())))
    return found


def enclosing(found, line):
    """The definition that a line belongs to, or None above the first."""
    return next((d for d in reversed(found) if d.first <= line), None)


def comment_html(name, doc):
    """A definition's comment: paragraphs and lists, whose items go on in lines that are indented, and code."""
    blocks = [("p", f"`{name}`:")]
    for line in doc.split("\n"):
        kind, words = blocks[-1]
        if line.startswith("- "):
            blocks.append(("li", line[2:]))
        elif kind == "p" or line.startswith(" "):
            blocks[-1] = kind, f"{words} {line.strip()}"
        else:
            blocks.append(("p", line))
    shown = "".join(f"<{kind}>{html.escape(words, quote=False)}</{kind}>" for kind, words in blocks)
    shown = re.sub("`([^`]+)`", r"<code>\1</code>", shown)
    return re.sub(r"(?:<li>.*?</li>)+", r"<ul>\g<0></ul>", shown)


def code_of(line):
    """A line without its comment and its spaces, by which a lesson's quotation is found."""
    return re.sub(r"//.*|\s+", "", line)


def words_of(lines):
    return {word for line in lines for word in re.findall(r"\w+", re.sub(r'//.*|"[^"]*"', "", line))}


def explain(tokens, changes):
    """For each of the changes, given as (removed, added) lines, the paragraphs of a lesson that belong to it: each
    paragraph once, to the change that it quotes most of, or else to the one of whose words it names most."""
    paragraphs = []  # [tokens, quoted lines, names]
    for n, token in enumerate(tokens):
        if token.type == "paragraph_open":
            names = {word for child in tokens[n + 1].children if child.type == "code_inline"
                     for word in re.findall(r"[A-Za-z_]\w{2,}", child.content.split("(")[0])}
            token.hidden = tokens[n + 2].hidden = False  # a list's paragraph stands alone here
            paragraphs.append([tokens[n:n + 3], set(), names])
        elif token.type == "fence" and paragraphs and token.info.strip() in ("cpp", "diff"):
            lines = token.content.splitlines()
            if token.info.strip() == "diff":
                lines = [line[1:] for line in lines if line[:1] in ("+", "-")]
            paragraphs[-1][1].update(code for code in map(code_of, lines) if len(code) > 8)
    quotable = [set(map(code_of, removed + added)) for removed, added in changes]
    nameable = [words_of(removed) ^ words_of(added) for removed, added in changes]
    belonging = [[] for _ in changes]
    for paragraph, quoted, names in paragraphs:
        for mine, theirs in ((quoted, quotable), (names, nameable)):
            shared = [len(mine & other) for other in theirs]
            if any(shared):
                belonging[shared.index(max(shared))].append(paragraph)
                break
    return belonging
