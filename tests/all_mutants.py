"""Many mutants of a kernel as one source, which is compiled once and of which one is chosen when it is loaded.

    all_mutants.py < REQUEST

check_mutants.cpp runs it, and says as JSON: "kernel"; "mutants", of each the kernels with one of its replacements;
"chosen", the file in which the number stands of the mutant that programs have which load the kernel; "errors", what a
compiler said of the sources before this one ("kernel.cu:12:3: error: ..."), which is made without what it refused. The
answer is JSON: "source", and "mutants", the numbers of those that are in it; null if there is nothing more to leave out.

Where a mutant changes an expression, both are in the source and its number decides, `(MUTANT(3) ? (a <= b) : (a < b))`;
where it changes statements, as an if. Some need a source of their own: those that change what is no function's code, a constant
expression, or a declaration that others use.
"""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from kernel_text import Kernel, mutant_in, tokens_of  # noqa: E402

OPENS, CLOSES = {"(": ")", "[": "]", "{": "}"}, (")", "]", "}")
EXPRESSION, STATEMENTS, NONE = range(3)  # how a change is put next to what it changes
BEFORE = set("( [ { , ; } = return else += -= *= /= |= &= %= ^= <<= >>=".split())
AFTER = {")", "]", "}", ",", ";"}
KINDS = set("const auto int float bool unsigned constexpr static using template struct static_assert".split())


def is_complete(texts):
    """Whether it is balanced."""
    open_ones = []
    for text in texts:
        if text in OPENS:
            open_ones.append(OPENS[text])
        elif text in CLOSES and (not open_ones or open_ones.pop() != text):
            return False
    return not open_ones


def is_list(texts):
    """A list, or an argument more or less, is no expression; what it is the list of may be."""
    if not texts or texts[0] == "{" or not is_complete(texts):
        return True
    depth = 0
    for text in texts:
        if depth == 0 and text in (",", ";", "="):
            return True
        depth += (text in OPENS) - (text in CLOSES)
    return False


class Edit:
    """Tokens [first, end) of the kernel, in whose place the mutant has this text."""

    def __init__(self, mutant, kernel, wrong):
        old, new = [t.text for t in kernel.tokens], tokens_of(wrong)
        shorter = min(len(old), len(new))
        first = next((n for n in range(shorter) if old[n] != new[n].text), shorter)
        same = next((n for n in range(shorter - first) if old[-1 - n] != new[-1 - n].text), shorter - first)
        end = len(new) - same
        self.mutant, self.first, self.end = mutant, first, len(old) - same
        self.text = "" if first == end else wrong[new[first].at:new[end - 1].end]


class Unit:
    """Tokens in whose place all versions of them stand, and the lines of the source where they do."""

    def __init__(self, first, end, form, mutants):
        self.first, self.end, self.form, self.mutants, self.lines = first, end, form, mutants, range(0)


class AllMutants:
    """Mutants numbered from 0 in their order."""

    def __init__(self, kernel, mutants):
        self.k = Kernel(kernel)
        self.edits = [Edit(n, self.k, wrong) for n, of_mutant in enumerate(mutants) for wrong in of_mutant]
        self.forms = [EXPRESSION] * len(mutants)

    def slice(self, first, end):
        return self.k.source[self.k.tokens[first].at:self.k.tokens[end - 1].end] if first < end else ""

    def past(self, n):
        """The token after this one, or after what it opens."""
        return self.k.partner[n] + 1 if self.k.text(n) in OPENS else n + 1

    def before(self, n):
        """The token before this one, or the one that opens what ends there."""
        return self.k.partner[n - 1] if self.k.text(n - 1) in CLOSES else n - 1

    def starts_statement(self, n):
        """Whether a statement may begin at this token."""
        before = self.k.text(n - 1)
        if n == 0 or self.k.text(n) == "else":
            return False
        if before not in (";", "}", "{", "else"):
            return before == ")" and self.k.closes_head(n - 1)
        # A semicolon in the head of a loop, or a list in braces, begins none.
        while n > 0:
            n -= 1
            if self.k.text(n) in CLOSES:
                n = self.k.partner[n]
            elif self.k.text(n) in OPENS:
                return self.k.text(n) == "{" and not self.k.adjacent(n - 1, n) and self.k.text(n - 1) not in (
                    "=", "return", ",", "(")
        return False

    def extend(self, unit):
        """Widens a unit to the brackets that it has one end of."""
        n = unit.first
        while n < unit.end:
            partner = self.k.partner.get(n, n)
            if partner < unit.first:
                unit.first = n = partner
            elif partner >= unit.end:
                unit.end = partner + 1
            n += 1
        return self.k.in_body[unit.first]

    def texts(self, unit):
        return [token.text for token in self.k.tokens[unit.first:unit.end]]

    def versions(self, unit):
        return [[token.text for token in tokens_of(self.version(unit, mutant))] for mutant in unit.mutants]

    def is_argument_of_template(self, unit):
        """Whether one of its edits is among the arguments of a template, and not all of them."""
        for edit in self.edits:
            inside = edit.mutant in unit.mutants and unit.first <= edit.first and edit.end <= unit.end
            if inside and self.k.template[edit.first]:
                first = end = edit.first
                while self.k.template[first - 1]:
                    first -= 1
                while end < len(self.k.tokens) and self.k.template[end]:
                    end += 1
                if first < edit.first and end > edit.end:
                    return True
        return False

    def extend_to_expression(self, unit):
        k = self.k
        for _ in range(6):
            if not self.extend(unit):
                return False
            while k.text(unit.first - 1) not in BEFORE:
                if k.text(unit.first - 1) == ")" and k.closes_head(unit.first - 1):
                    return False  # the expression is a statement
                unit.first = self.before(unit.first)
            while k.text(unit.end) not in AFTER:
                unit.end = self.past(unit.end)
            if unit.first == unit.end or (self.starts_statement(unit.first) and k.text(unit.end) == ";"):
                return False
            if self.is_argument_of_template(unit):
                return False
            if not any(map(is_list, [self.texts(unit), *self.versions(unit)])):
                return True
            n = unit.first  # to the bracket around it
            while k.text(n := n - 1) not in OPENS:
                n = k.partner[n] if k.text(n) in CLOSES else n
                if k.text(n) == ";":
                    return False
            unit.first, unit.end = n, k.partner[n] + 1
        return False

    def ends_statement(self, unit):
        """Whether that is its end, with all that an else adds."""
        if unit.end == unit.first:
            return True
        last, after = self.k.text(unit.end - 1), self.k.text(unit.end)
        if last == ";":
            return after != "else" and self.starts_statement(unit.end)
        return last == "}" and after not in ("else", ";", ",", ")", "(")

    def extend_to_statements(self, unit):
        k, known = self.k, None
        while known != (unit.first, unit.end):
            known = unit.first, unit.end
            if not self.extend(unit):
                return False
            while not self.starts_statement(unit.first):
                n = unit.first - 1
                if k.text(n) == "{" and not k.in_body[n]:
                    return False
                unit.first = self.before(unit.first)
                if k.text(n) in OPENS:
                    unit.end = max(unit.end, k.partner[n] + 1)
            while not self.ends_statement(unit):
                if k.text(unit.end) == "}":
                    return False
                unit.end = self.past(unit.end)
        return all(map(is_complete, self.versions(unit))) and not self.declares_for_others(unit)

    def declares_for_others(self, unit):
        """Whether what follows statements in their block has the name of something that they declare."""
        k, names, declares, n = self.k, set(), False, unit.first
        while n < unit.end:
            if self.starts_statement(n):
                declares = k.text(n) in KINDS
            if k.text(n) in OPENS and not (k.text(n) == "[" and declares):
                n = k.partner[n]
            elif declares and k.text(n)[0].isalpha():
                names.add(k.text(n))
            n += 1
        depth = 0
        for token in k.tokens[unit.end:]:
            if token.text in names - KINDS:
                return True
            depth += (token.text in OPENS) - (token.text in CLOSES)
            if depth < 0:
                break
        return False

    def version(self, unit, mutant):
        """The unit's text as the mutant has it."""
        text, after = "", unit.first
        for edit in sorted((edit for edit in self.edits if edit.mutant == mutant and unit.first <= edit.first
                            and edit.end <= unit.end), key=lambda edit: edit.first):
            text += (self.slice(after, edit.first) + " " if after < edit.first else "") + edit.text + " "
            after = edit.end
        return text + (self.slice(after, unit.end) + " " if after < unit.end else "")

    def refuse(self, mutants):
        for mutant in mutants:
            self.forms[mutant] = NONE

    def of_each_edit(self):
        """A unit for each, or None after one was refused."""
        found = []
        for edit in self.edits:
            if self.forms[edit.mutant] == NONE:
                continue
            unit = Unit(edit.first, edit.end, self.forms[edit.mutant], [edit.mutant])
            if unit.form == EXPRESSION and not self.extend_to_expression(unit):
                unit = Unit(edit.first, edit.end, STATEMENTS, [edit.mutant])
            if unit.form == STATEMENTS and not self.extend_to_statements(unit):
                return self.refuse([edit.mutant])
            found.append(unit)
        return sorted(found, key=lambda unit: (unit.first, unit.end))

    def joined(self, a, b):
        """Both as one unit; None after the second one was refused."""
        if a.first <= b.first and a.end >= b.end:
            form = a.form
        elif b.first <= a.first and b.end >= a.end:
            form = b.form
        else:
            form = STATEMENTS
        both = Unit(min(a.first, b.first), max(a.end, b.end), form, a.mutants + b.mutants)
        fits = self.extend_to_expression(both) if form == EXPRESSION else self.extend_to_statements(both)
        return both if fits else self.refuse(b.mutants)

    def units(self):
        """Disjoint, in order: changes of the same place are versions of it."""
        units, n = None, 1
        while units is None or n < len(units):
            if units is None:
                units, n = self.of_each_edit(), 1
                continue
            a, b = units[n - 1:n + 1]
            if b.first > a.end or (b.first == a.end and a.first != a.end and b.first != b.end and b.first != a.first):
                n += 1
            elif both := self.joined(a, b):
                units[n - 1:n + 1] = [both]
                n = 1
            else:
                units = None
        for unit in units:
            unit.mutants = sorted(set(unit.mutants))
        return units

    def text_of(self, unit):
        form = "MUTANT({}) ? ({}) : " if unit.form == EXPRESSION else "if (MUTANT({})) {{ {} }} else "
        text = "".join(form.format(mutant, self.version(unit, mutant)) for mutant in unit.mutants)
        own = self.slice(unit.first, unit.end)
        return f"({text}({own}))" if unit.form == EXPRESSION else f"{{ {text}{{ {own} }} }}"

    def source(self, units, chosen):
        k, text, after, prelude = self.k, "", 0, mutant_in(chosen)
        shift = prelude.count("\n") + 1
        for unit in units:
            at = k.tokens[unit.first].at if unit.first < len(k.tokens) else len(k.source)
            text += k.source[after:at]
            first_line = text.count("\n") + shift
            text += self.text_of(unit)
            unit.lines = range(first_line, text.count("\n") + shift + 1)
            after = at if unit.first == unit.end else k.tokens[unit.end - 1].end
            text += "\n" if unit.first == unit.end else ""
        text += k.source[after:]
        # The kernel's own first header comes before all else, as a compiler may have it precompiled.
        head = text.index("\n", text.index("#include")) + 1
        return text[:head] + prelude + text[head:]

    def leave_out(self, units, errors):
        """Whether anything of the units is left out, by what a compiler said of their source."""
        before = list(self.forms)

        def weaken(refused):
            for unit in refused:
                for mutant in unit.mutants:
                    self.forms[mutant] = max(self.forms[mutant], unit.form + 1)

        for line in re.findall(r"kernel\.cu:(\d+):\d+: (?:error|  required)", errors):
            weaken(unit for unit in units if int(line) in unit.lines)
        # What is declared inside of an if is not known after it.
        for name in re.findall(r"[‘']([A-Za-z_]\w*)[’'] was not declared", errors):
            if self.forms == before:
                weaken(unit for unit in units if unit.form == STATEMENTS and name in self.texts(unit))
        return self.forms != before


def main():
    request = json.loads(sys.stdin.readline())
    found = AllMutants(request["kernel"], request["mutants"])
    units = found.units()
    source = found.source(units, request["chosen"])
    for errors in request["errors"]:
        if not found.leave_out(units, errors):
            return None
        units = found.units()
        source = found.source(units, request["chosen"])
    return {"source": source, "mutants": sorted({mutant for unit in units for mutant in unit.mutants})}


if __name__ == "__main__":
    print(json.dumps(main()))
