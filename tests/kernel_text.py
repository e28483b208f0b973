"""A kernel's text: its tokens, its statements, and edits of both."""

import re

TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)
  | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<number>\d[\w.']*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<mark><<=|>>=|->|\+\+|--|&&|\|\||[-+*/%&|^=!<>]=|::|<<|>>|.)
""", re.X | re.S)

KEYWORDS = {"if", "for", "while", "return", "else", "do", "switch", "break", "continue", "const", "constexpr", "auto",
            "float", "float2", "int", "bool", "unsigned", "void", "using", "static_assert", "static", "extern",
            "template", "struct", "typename", "sizeof", "case", "default", "T"}


class Token:
    def __init__(self, kind, text, at):
        self.kind, self.text, self.at, self.end = kind, text, at, at + len(text)

    def __repr__(self):
        return self.text


def tokens_of(source):
    found = [Token(m.lastgroup, m.group(), m.start()) for m in TOKEN.finditer(source)]
    return [t for t in found if t.kind != "skip"]


class Kernel:
    """A source with its tokens, which brackets belong together, and which tokens are code of a function."""

    def __init__(self, source):
        self.source, self.tokens = source, tokens_of(source)
        self.partner, self.in_body = {}, [False] * len(self.tokens)
        self.template = [False] * len(self.tokens)  # inside <...> of a template
        stack, body = [], None
        for k, t in enumerate(self.tokens):
            self.in_body[k] = body is not None
            if t.text in ("(", "[", "{"):
                stack.append(k)
                if t.text == "{" and body is None and self.opens_function(k):
                    body = len(stack)
            elif t.text in (")", "]", "}"):
                opening = stack.pop()
                self.partner[opening], self.partner[k] = k, opening
                if body is not None and len(stack) < body:
                    body = None
                    self.in_body[k] = False
        k = 0
        while k < len(self.tokens):
            if self.text(k) == "<" and self.adjacent(k - 1, k):  # a comparison has blanks around it
                end, depth = k, 0
                while True:
                    depth += {"<": 1, ">": -1, ">>": -2}.get(self.text(end), 0)
                    self.template[end] = True
                    if depth <= 0:
                        break
                    end += 1
                k = end
            k += 1

    def opens_function(self, k):
        """Whether the brace opens a function's body: a parenthesis before it, or a constructor's initializers."""
        start = k - 1
        while start >= 0 and self.text(start) not in (";", "}", "{") and k - start < 80:
            start -= 1
        head = [self.text(n) for n in range(start + 1, k)]
        return "(" in head and not {"struct", "namespace", "enum", "LADDER_STAGE"} & set(head) or (
            "template" in head and "(" in head and "struct" not in head)

    def text(self, k):
        return self.tokens[k].text if 0 <= k < len(self.tokens) else ""

    def adjacent(self, k, n):
        return self.tokens[k].end == self.tokens[n].at

    def line(self, k):
        return self.source.count("\n", 0, self.tokens[k].at) + 1

    def is_operand_end(self, k):
        t = self.tokens[k]
        return t.kind in ("number", "string") or t.text in (")", "]") or (
            t.kind == "name" and t.text not in KEYWORDS) or (t.text == ">" and self.template[k])

    def primary(self, k):
        """The end (exclusive) of the operand that starts at token k; None if that is more than a name with what
        belongs to it."""
        if self.text(k) == "(":
            return self.partner[k] + 1
        if self.tokens[k].kind not in ("name", "number"):
            return None
        k += 1
        while k < len(self.tokens):
            if self.text(k) in ("(", "["):
                k = self.partner[k] + 1
            elif self.text(k) in (".", "->", "::"):
                k += 2
            elif self.template[k]:
                while self.template[k]:
                    k += 1
            else:
                break
        return k

    def statements(self):
        """(first, end) of each statement of a function that ends with a semicolon, and no declaration."""
        k = 0
        while k < len(self.tokens):
            starts = self.in_body[k] and self.text(k - 1) in (";", "{", "}", "else", ")") and (
                self.text(k - 1) != ")" or self.closes_head(k - 1))
            if not starts or self.text(k) in ("{", "}", "if", "for", "while", "else") or self.in_for(k) or (
                    self.tokens[k].kind != "name" and self.text(k) not in ("++", "--")):
                k += 1
                continue
            end = k
            while self.text(end) != ";":
                end = self.partner[end] if self.text(end) in ("(", "[", "{") else end
                if self.text(end) in ("}", ")"):
                    if end + 1 >= len(self.tokens) or self.text(end) == "}" and self.text(end + 1) not in (";", ",", ")"):
                        break
                end += 1
            if self.text(end) == ";":
                yield k, end + 1
            body = next((n for n in range(k, end) if self.text(n) == "{" and self.text(n - 1) == ")"), end)
            k = body + 1  # a lambda's statements are statements, too

    def closes_head(self, k):
        opening = self.partner[k]
        return self.text(opening - 1) in ("if", "for", "while", "constexpr")

    def in_for(self, k):
        depth = 0
        for n in range(k - 1, -1, -1):
            if self.text(n) in (")", "]", "}"):
                depth += 1
            elif self.text(n) in ("(", "[", "{"):
                if depth == 0:
                    return self.text(n) == "("
                depth -= 1
        return False

    def is_declaration(self, first, end):
        words = self.tokens[first:end]
        if words[0].text in KEYWORDS - {"break", "continue", "return"}:
            return True
        k = first
        while self.text(k + 1) == "::":
            k += 2
        after = k + 1
        while after < end and self.template[after]:
            after += 1
        while self.text(after) in ("*", "&") or [w.text for w in self.tokens[after:after + 2]] == ["(", "&"]:
            after += 1 + (self.text(after) == "(")
        return words[0].kind == "name" and after < end and self.tokens[after].kind == "name" and (
            after > k + 1 or not self.is_call(k))

    def extents(self, first, end):
        """The tokens between the brackets of what a statement declares."""
        k, value = first, False
        while k < end:
            if self.text(k) in ("(", "[", "{"):
                if self.text(k) == "[" and not value:
                    yield from range(k + 1, self.partner[k])
                k = self.partner[k]
            elif self.text(k) in ("=", ","):
                value = self.text(k) == "="
            k += 1

    def is_call(self, k):
        return self.text(k + 1) in ("(", "=", "[", ".", "+=", "-=", "*=", "/=", "++", "--", "->")


class Edits:
    """Texts that go in before or in place of places of a source."""

    def __init__(self):
        self.insertions = []  # (place, rank, text): at one place, higher ranks are further out
        self.replaced = []    # (first, end, text)

    def put(self, at, text, rank=0):
        self.insertions.append((at, rank, text))

    def replace(self, first, end, text):
        self.replaced.append((first, end, text))

    def apply(self, source):
        changes = [(at, at, rank, n, text) for n, (at, rank, text) in enumerate(self.insertions)]
        changes += [(first, end, 50, n, text) for n, (first, end, text) in enumerate(self.replaced)]
        out, last = [], 0
        for first, end, _, _, text in sorted(changes, key=lambda c: (c[0], c[1] > c[0], c[2], c[3])):
            out += [source[last:first], text]
            last = max(end, first)
        return "".join(out) + source[last:]


def mutant_in(file):
    """Code for MUTANT(n), which is 1 where the file has that number when the library is loaded. Nothing of it is the
    kernel's: it is neither checked nor counted."""
    return f"""#include <cstdio>
namespace {{
__attribute__((no_sanitize("thread"))) int read_chosen_mutant() {{
    int number = -1;
    if (std::FILE* file = std::fopen("{file}", "r")) {{
        if (std::fscanf(file, "%d", &number) != 1) number = -1;
        std::fclose(file);
    }}
    return number;
}}
const int chosen_mutant = read_chosen_mutant();
[[maybe_unused]] __attribute__((no_sanitize("thread"), noinline)) int MUTANT(int n) {{ return chosen_mutant == n; }}
}}  // namespace
"""
