"""Markdown as GitHub reads it, and C++ with colours, as HTML."""

import html
import re

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments.lexers import CppLexer, PythonLexer
from pygments.token import Comment, Keyword, Name, Number, String

# Doxygen's names for kinds of code, so that its style colours ours as well.
CLASSES = [(Comment.Preproc, "preprocessor"), (Comment.PreprocFile, "preprocessor"), (Comment, "comment"),
           (Keyword.Type, "keywordtype"), (Keyword, "keyword"), (String, "stringliteral"), (Number, "number"),
           (Name.Decorator, "preprocessor")]
LEXERS = {"cpp": CppLexer, "python": PythonLexer}
# CUDA's own words, which to a C++ lexer are names.
CUDA = re.compile(r"__(global|device|host|forceinline|shared|launch_bounds|syncthreads|syncwarp)__?|__\w+_sync"
                  r"|(thread|block)(Idx|Dim)|gridDim")

TABLE, TEXT = re.compile(r'<div class="table.*?</table></div>', re.S), re.compile(r">[^<]+<")
STAGE = re.compile(r"\b\d\d_[a-z0-9_]+")
WHOLE = re.compile(r"[\d.,]+ (?:[TG]FLOP/s|[GT]B/s|[KMG]i?B|ms|us)\b|\bFlashAttention-\d(?:-FP8)?")


def in_lines(text):
    """Text of a cell as its lines may break: after an underscore of a stage's name, so never inside a word, and never
    between a rate and its unit or inside a library's name."""
    text = WHOLE.sub(r'<span class="whole">\g<0></span>', text)
    return STAGE.sub(lambda name: name[0].replace("_", "_<wbr>"), text)


def kind_of(token, text):
    if CUDA.fullmatch(text):
        return "cuda"
    return next((name for base, name in CLASSES if token in base), "")


def tokens_by_line(code, language="cpp"):
    """The lines of `code`, each a list of (kind, text)."""
    lexer = LEXERS[language](stripnl=False, ensurenl=False)
    lines = [[]]
    for token, text in lexer.get_tokens(code):
        for number, piece in enumerate(text.split("\n")):
            if number:
                lines.append([])
            if piece:
                lines[-1].append((kind_of(token, piece), piece))
    if not lines[-1]:
        lines.pop()
    return lines


def span(kind, text):
    text = html.escape(text, quote=False)
    return f'<span class="{kind}">{text}</span>' if kind else text


def highlight(code, language):
    """A block of code. A diff's lines are coloured by what they do."""
    if language in LEXERS:
        body = "\n".join("".join(span(*token) for token in line) for line in tokens_by_line(code, language))
    elif language == "diff":
        kinds = {"+": "added", "-": "removed", "@": "position"}
        body = "\n".join(span(kinds.get(line[:1], ""), line) for line in code.rstrip("\n").split("\n"))
    else:
        body = html.escape(code.rstrip("\n"), quote=False)
    return f'<pre class="fragment">{body}</pre>\n'


def slug(heading, taken):
    """The anchor that GitHub gives a heading; `taken` holds the page's earlier ones."""
    base = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name)
    return name


def plain(inline):
    """The text of a heading or paragraph, without its marks."""
    return "".join(token.content for token in inline.children if token.type != "html_inline")


class Markdown:
    """Renders Markdown; `resolve` turns a link's target into the site's."""

    def __init__(self, resolve):
        self.resolve = resolve
        self.parser = MarkdownIt("commonmark", {"html": True}).enable("table")
        # Without digits around it, a formula at the start of a cell that ends in a digit would be no formula.
        self.parser.use(dollarmath_plugin, allow_space=False, allow_digits=True)
        rules = {"site_html": lambda tokens, i, *_: tokens[i].content,  # of the site's own making
                 "fence": self.fence, "code_block": self.fence, "html_block": self.raw, "html_inline": self.raw,
                 "code_inline": self.code, "table_open": self.table,
                 "table_close": lambda *_: "</table></div>\n",
                 "math_inline": lambda tokens, i, *_: rf"\({html.escape(tokens[i].content)}\)",
                 "math_block": self.math_block}
        self.parser.renderer.rules.update(rules)

    def fence(self, tokens, i, *_):
        return highlight(tokens[i].content, tokens[i].info.strip())

    @staticmethod
    def code(tokens, i, *_):
        """An option's hyphens end no line."""
        text = tokens[i].content
        whole = ' class="whole"' if text.startswith("-") and len(text) <= 30 else ""
        return f"<code{whole}>{html.escape(text)}</code>"

    @staticmethod
    def math_block(tokens, i, *_):
        """Formulas beside each other, with \\qquad between them, stand below each other where there is no room."""
        formulas = [formula for formula in re.split(r"\\qquad\b", tokens[i].content) if formula.strip()]
        if any(formula.count("{") != formula.count("}") or r"\begin" in formula for formula in formulas):
            formulas = [tokens[i].content]
        shown = " ".join(rf"<span>\[{html.escape(formula)}\]</span>" for formula in formulas)
        return f'<p class="formulas">{shown}</p>\n'

    @staticmethod
    def table(tokens, i, *_):
        """One with many columns is marked, since a phone has no room for them."""
        row = [token.type for token in tokens[i:]]
        many = " many" if row[:row.index("tr_close")].count("th_open") > 3 else ""
        return f'<div class="table{many}"><table class="markdownTable">\n'

    def raw(self, tokens, i, *_):
        text = re.sub(r"<!--.*?-->", "", tokens[i].content, flags=re.S)
        return re.sub(r'\b(href|src|srcset)="([^"]*)"', lambda m: f'{m[1]}="{self.resolve(m[2])}"', text)

    def parse(self, text):
        tokens = self.parser.parse(text)
        for token in tokens:
            for child in token.children or []:
                for attribute in ("href", "src"):
                    target = child.attrGet(attribute)
                    if target is not None:
                        child.attrSet(attribute, self.resolve(target))
            for formula, after in zip(token.children or [], (token.children or [])[1:]):
                # A line may break behind a formula, so a comma becomes its last sign.
                if formula.type == "math_inline" and after.type == "text" and after.content[:1] in (",", ".", ";"):
                    formula.content += after.content[0]
                    after.content = after.content[1:]
        return tokens

    def render(self, tokens):
        page = self.parser.renderer.render(tokens, self.parser.options, {})
        return TABLE.sub(lambda table: TEXT.sub(lambda text: in_lines(text[0]), table[0]), page)
