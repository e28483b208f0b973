"""What a kernel's source and its lesson say of a change."""

import re
from dataclasses import dataclass

DEFINITION = re.compile(
    r"(?P<doc>(?:^///.*\n)*)(?:^template <.*>\n)?^(?:struct (?P<struct>\w+)|(?P<declaration>LADDER_STAGE)\(|"
    r"(?!using|return|//|#)\w[^;{}=()]*?(?:__launch_bounds__\([^()]*\) )?(?!__launch_bounds__)"
    r"\b(?P<function>\w+)\((?:[^;{]|\{\})*\) \{)", re.M)


@dataclass
class Definition:
    """A function or struct at the top level, from its comment on. Lines count from 0."""
    name: str
    doc: str
    first: int


def definitions(code):
    found = []
    for match in DEFINITION.finditer(code):
        name = match["struct"] or match["function"] or match["declaration"]
        doc = " ".join(line.removeprefix("///").strip() for line in match["doc"].splitlines())
        found.append(Definition(name, doc, code.count("\n", 0, match.start())))
    return found


def enclosing(found, line):
    """The definition that a line belongs to, or None above the first."""
    return next((d for d in reversed(found) if d.first <= line), None)


def code_of(line):
    """A line without its comment and its spaces, by which a lesson's quotation is found."""
    return re.sub(r"\s+", "", re.sub(r"//.*", "", line))


class Explanation:
    """The paragraphs of a lesson's "The change". Each is given to one change: the first that it quotes or names."""

    def __init__(self, tokens):
        self.paragraphs = []  # [tokens, quoted lines, names]
        for n, token in enumerate(tokens):
            if token.type == "inline" and tokens[n - 1].type == "paragraph_open" and token.level == 1:
                names = {word for child in token.children if child.type == "code_inline"
                         for word in re.findall(r"[A-Za-z_]\w{2,}", child.content.split("(")[0])}
                self.paragraphs.append([tokens[n - 1:n + 2], set(), names])
            elif token.type == "fence" and self.paragraphs and token.info.strip() in ("cpp", "diff"):
                lines = token.content.splitlines()
                if token.info.strip() == "diff":
                    lines = [line[1:] for line in lines if line[:1] in ("+", "-")]
                self.paragraphs[-1][1].update(code for code in map(code_of, lines) if len(code) > 8)

    def take(self, lines, words):
        """The paragraphs that quote one of these changed lines or name one of these changed words."""
        changed = set(map(code_of, lines))
        taken = [p for p in self.paragraphs if p[1] & changed or p[2] & words]
        self.paragraphs = [p for p in self.paragraphs if p not in taken]
        return [p[0] for p in taken]
