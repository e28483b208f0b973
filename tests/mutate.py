#!/usr/bin/env python3
"""Breaks a kernel in every small way that its text offers, or counts what of it ran.

    mutate.py mutate BUILD [STAGES]       the share of mutants that lab check's cases reject
    mutate.py coverage BUILD [STAGES]     which ways conditions go and how often loops run in these cases

One source holds all mutants of a kernel: it is compiled once, and a file names the one that runs. Each is one edit
that its place allows, such as `a < b` -> `a < MUTANT(7) + b`, which is a <= b where 7 is active. Left out are those
that the stage's library does not hold, since its types choose other code.
"""

import argparse
import json
import re
import struct
import subprocess
import sys
import threading
import time
from multiprocessing.pool import ThreadPool
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "docs/publish")]
import mutation  # noqa: E402
from kernel_text import KEYWORDS, Edits, Kernel, mutant_in  # noqa: E402
from markdown import table  # noqa: E402
from recording import machine_and_commit  # noqa: E402
from whole_kernel import INCLUDE, file_text, kernel_text  # noqa: E402

SILENT = {"note_tile", "note_rows", "note_lane_sums", "static_assert"}  # what they say is for people
MANY = {"constant", "sign", "factor"}
ORDER = {"__syncthreads", "__syncwarp", "copy_wait", "copy_commit", "__threadfence", "mbarrier_init", "mbarrier_arrive",
         "mbarrier_arrive_after_copies", "mbarrier_wait"}


class Failed(Exception):
    """Why a stage's mutants could not be run."""


def inherited(kernel, others=()):
    """Where a kernel's text has files that its parent's has, too, or that of one of these stages, as (begin, end): their
    mutants are those stages'."""
    text, whole = kernel.read_text(encoding="utf-8"), kernel_text(kernel)
    stages = [*re.findall(r"\.parent = (\d+)", text), *others]
    kernels = [path for n in stages for path in kernel.resolve().parents[1].glob(f"{int(n):02}_*/kernel.cu")]
    theirs = {name for other in kernels for name in INCLUDE.findall(other.read_text(encoding="utf-8"))}
    parts = [file_text(kernel, name) for name in INCLUDE.findall(text) if name in theirs]
    return [(whole.index(part), whole.index(part) + len(part)) for part in parts]


class Mutants:
    def __init__(self, kernel, of_parent=(), without=()):
        self.k, self.edits, self.list, self.without = kernel, Edits(), [], set(without)
        self.of_parent = of_parent

    def number(self, kind, place, what):
        """The next mutant's number, or None if it is known not to compile."""
        number = len(self.list) + 1
        at = self.k.tokens[place].at
        self.list.append({"id": number, "kind": kind, "line": self.k.line(place), "what": what,
                          "of_parent": any(begin <= at < end for begin, end in self.of_parent),
                          "text": self.k.source.splitlines()[self.k.line(place) - 1].split("//")[0].strip(), "compiles": number not in self.without})
        return None if number in self.without else number

    def find(self):
        k = self.k
        dropped = {}
        skipped = set()
        for first, end in k.statements():
            words = k.tokens[first:end]
            if words[0].text in SILENT:
                skipped.update(range(first, end))
                continue
            if words[0].text in ("static_assert", "constexpr") or [w.text for w in words[:2]] == ["static", "constexpr"]:
                skipped.update(range(first, end))
                continue
            if words[0].text == "return" and len(words) > 2:
                continue
            if k.is_declaration(first, end):
                skipped.update(k.extents(first, end))
                continue
            dropped[first] = end
        for first, end in dropped.items():
            name = k.text(first)
            kind = "order" if name in ORDER else "statement"
            text = " ".join(k.source[k.tokens[first].at:k.tokens[end - 1].end].split())
            n = self.number(kind, first, f"without {text}")
            if n:
                self.edits.put(k.tokens[first].at, f"{{ if (!MUTANT({n})) ", -50)
                self.edits.put(k.tokens[end - 1].end, " }", 90)
        for at in range(len(k.tokens)):
            if k.in_body[at] and at not in skipped and not k.template[at]:
                self.token(at)

    def token(self, at):
        k = self.k
        t, text = k.tokens[at], k.text(at)
        binary = at > 0 and k.is_operand_end(at - 1) and t.end < k.tokens[at + 1].at
        where = " ".join(k.source[k.tokens[at - 1].at:k.tokens[min(at + 3, len(k.tokens) - 1)].end].split())
        put = self.edits.put
        if text in ("<", "<=", ">", ">=") and binary:
            other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[text]
            n = self.number("bound", at, f"{other} for {text} in {where}")
            if n:
                put(t.end, f" {'-' if text in ('<=', '>') else ''}MUTANT({n}) +")
        elif text in ("+", "-") and binary:
            n = self.number("sign", at, f"{'-' if text == '+' else '+'} for {text} in {where}")
            if n:
                put(t.end, f" SIGN({n}) *")
        elif text in ("*", "/", "%") and binary:
            end = k.primary(at + 1)
            if end and not (end == at + 2 and k.tokens[at + 1].kind == "number" and text != "*"):
                n = self.number("factor", at, f"1 for the right of {text} in {where}")
                if n:
                    put(k.tokens[at + 1].at, f"unit({n}, ", -20)
                    put(k.tokens[end - 1].end, ")", 20)
        elif text in ("&&", "||"):
            n = self.number("condition", at, f"without the right of {text} in {where}")
            if n:
                put(t.end, f" MUTANT({n}) |" if text == "&&" else f" !MUTANT({n}) &")
        elif text == "?":
            n = self.number("condition", at, f"the other way round: {where}")
            if n:
                put(t.at, f"!= bool(MUTANT({n})) ")
        elif text == "if" and k.text(at + 1) == "(":
            close = k.partner[at + 1]
            if any(w.text in (";", "const") for w in k.tokens[at + 2:close]):
                return
            n = self.number("condition", at, "the other way round: " + k.source[t.at:k.tokens[close].end])
            if n:
                put(k.tokens[at + 1].end, "bool(", -60)
                put(k.tokens[close].at, f") != bool(MUTANT({n}))", 60)
        elif t.kind == "number":
            n = self.number("constant", at, f"{text} + 1 in {where}")
            if n:
                put(t.at, "(", -30)
                put(t.end, f" + MUTANT({n}))", 30)
        elif text in ("inf", "masked_score"):
            n = self.number("constant", at, f"0 for {text} in {where}")
            if n:
                put(t.at, f"(MUTANT({n}) ? 0.0f : ", -30)
                put(t.end, ")", 30)
        elif text in ("min", "max", "fmaxf", "fminf") and k.text(at + 1) == "(" and k.text(at - 1) not in (".", "::"):
            other = {"min": "max", "max": "min", "fmaxf": "fminf", "fminf": "fmaxf"}[text]
            n = self.number("extremum", at, f"{other} for {where}")
            if n:
                self.edits.replace(t.at, t.end, f"other_{text}")
                put(k.tokens[at + 1].end, f"{n}, ", -70)
        elif text == "=" and k.text(at - 2) in ("int", "auto", ",") and k.tokens[at + 1].kind == "name" \
                and self.in_for_head(at):
            n = self.number("bound", at, f"starts one later: {where}")
            if n:
                put(t.end, f" MUTANT({n}) +")
        if t.kind == "name" and k.text(at + 1) in ("(", "[") or t.text == ">" and k.template[at]:
            self.exchanges(at)
        elif text == "]" and k.text(at + 1) == "[":
            self.exchange(k.partner[at] + 1, at, at + 2, k.partner[at + 1])

    def in_for_head(self, at):
        return self.k.in_for(at)

    def exchanges(self, at):
        """Every two neighbours among the arguments of a call."""
        k = self.k
        if k.text(at + 1) != "(" or k.text(at) in KEYWORDS | SILENT:
            return
        close, starts = k.partner[at + 1], [at + 2]
        n = at + 2
        while n < close:
            if k.text(n) in ("(", "[", "{"):
                n = k.partner[n]
            elif k.text(n) == "," and not k.template[n]:
                starts.append(n + 1)
            n += 1
        starts.append(close + 1)
        for a, b, c in zip(starts, starts[1:], starts[2:]):
            self.exchange(a, b - 1, b, c - 1)

    def exchange(self, a, a_end, b, b_end):
        k = self.k
        simple = all(w.kind == "name" or w.text in (".", "->") for w in k.tokens[a:a_end] + k.tokens[b:b_end])
        if not simple or a == a_end or b == b_end:
            return
        one = k.source[k.tokens[a].at:k.tokens[a_end - 1].end]
        two = k.source[k.tokens[b].at:k.tokens[b_end - 1].end]
        if one == two or {one, two} & {"inf"}:
            return
        n = self.number("exchange", a, f"{one} and {two} exchanged")
        if n:
            self.edits.put(k.tokens[a].at, f"(MUTANT({n}) ? {two} : ", -40)
            self.edits.put(k.tokens[a_end - 1].end, ")", 40)
            self.edits.put(k.tokens[b].at, f"(MUTANT({n}) ? {one} : ", -40)
            self.edits.put(k.tokens[b_end - 1].end, ")", 40)


OTHERS = r"""#include "stages/device.cuh"
// What of the text a stage's types leave out is not in its library, which names the mutants that are.
#define MUTANT(n) __extension__({ \
    asm volatile(".pushsection .mutants\n.asciz \"mutant " #n ".\"\n.popsection"); \
    MUTANT(n); \
})
#define SIGN(n) (1 - 2 * MUTANT(n))
#define unit(n, ...) unit_if(MUTANT(n), __VA_ARGS__)
#define other_min(n, ...) least_or(MUTANT(n), __VA_ARGS__)
#define other_max(n, ...) least_or(!MUTANT(n), __VA_ARGS__)
#define other_fminf(n, ...) fleast_or(MUTANT(n), __VA_ARGS__)
#define other_fmaxf(n, ...) fleast_or(!MUTANT(n), __VA_ARGS__)
namespace {
template <class A> A unit_if(bool wrong, A a) { return wrong ? A(1) : a; }
template <class A, class B> auto least_or(bool most, A a, B b) {
    using C = std::common_type_t<A, B>;
    return (C(a) < C(b)) != most ? C(a) : C(b);
}
[[maybe_unused]] inline float fleast_or(bool most, float a, float b) { return most ? fmaxf(a, b) : fminf(a, b); }
}  // namespace
"""


COUNTING = """#include <fcntl.h>
#include <sys/mman.h>
#include "stages/device.cuh"
namespace {{
__attribute__((no_sanitize("thread"))) inline unsigned long* count_of(int place, int which) {{
    static unsigned long* const counts = static_cast<unsigned long*>(
        mmap(nullptr, {bytes}, PROT_READ | PROT_WRITE, MAP_SHARED, open("{folder}/counts", O_RDWR), 0));
    return counts + 4 * place + which;
}}
__attribute__((no_sanitize("thread"))) inline bool went(int place, bool yes) {{
    __atomic_fetch_add(count_of(place, yes), 1, __ATOMIC_RELAXED);
    return yes;
}}
/// A loop that has begun: at its end, whoever ends it, its passes are counted as 0, 1, 2 or more.
struct Passes {{
    int place, passes = -1;
    explicit Passes(int p) : place(p) {{}}
    bool next(bool more) {{ ++passes; return more; }}
    ~Passes() {{ __atomic_fetch_add(count_of(place, passes < 0 ? 0 : passes > 3 ? 3 : passes), 1, __ATOMIC_RELAXED); }}
}};
}}  // namespace
"""


def write_counting(kernel, out):
    """Counts which way each condition goes, and how often each loop whose number of passes is no constant runs."""
    k, edits, places = Kernel(kernel_text(kernel)), Edits(), []
    for at, t in enumerate(k.tokens):
        if not k.in_body[at] or t.text not in ("if", "?", "for"):
            continue
        place = {"line": k.line(at), "what": k.source.splitlines()[k.line(at) - 1].strip()}
        close = k.partner.get(at + 1)
        if t.text == "?":
            start = at - 1  # of the condition: behind the last bracket, comma or assignment that is open there
            while k.text(start) not in ("(", "[", "{", ",", "=", "return", ";", "?", ":", "+=", "*="):
                start = k.partner[start] - 1 if k.text(start) in (")", "]") else start - 1
            edits.put(k.tokens[start + 1].at, f"went({len(places)}, bool(", -80)
            edits.put(k.tokens[at - 1].end, "))", 80)
            place["kind"] = "condition"
        elif t.text == "if":
            if k.text(at + 1) != "(":
                continue
            edits.put(k.tokens[at + 1].end, f"went({len(places)}, bool(", -80)
            edits.put(k.tokens[close].at, "))", 80)
            place["kind"] = "condition"
        else:
            if k.source.splitlines()[k.line(at) - 2].strip().startswith("#pragma unroll"):
                continue
            ends = [n for n in range(at, close) if k.text(n) == ";"]
            if len(ends) != 2:  # over a list
                continue
            first, second = ends
            edits.put(t.at, f"if (Passes passes_{len(places)}({len(places)}); true) ", -80)
            edits.put(k.tokens[first].end, f" passes_{len(places)}.next(bool(", 0)
            edits.put(k.tokens[second].at, "))", 80)
            place["kind"] = "loop"
        places.append(place)
    out.mkdir(parents=True, exist_ok=True)
    bytes_ = 32 * len(places)
    (out / "counts").write_bytes(bytes(bytes_))
    (out / "kernel.cu").write_text(COUNTING.format(folder=out, bytes=bytes_) + edits.apply(k.source))
    return places


def write_mutants(kernel, out, without, others=()):
    mutants = Mutants(Kernel(kernel_text(kernel)), inherited(kernel, others), without)
    mutants.find()
    out.mkdir(parents=True, exist_ok=True)
    text = mutant_in(out / "active") + OTHERS + mutants.edits.apply(mutants.k.source)
    if not (out / "kernel.cu").exists() or (out / "kernel.cu").read_text() != text:
        (out / "kernel.cu").write_text(text)
    (out / "active").write_text("0")
    return mutants.list


NUMBER = re.compile(r"\b(?:MUTANT|SIGN|unit|other_\w+)\((\d+)")


def compilable_mutants(kernel, out, build, others=()):
    """Those of a kernel's mutants that a compiler takes: where it does not, the nearest in the line go."""
    recipe = json.loads((build / "kernels.json").read_text())["cpu"]["compile"]
    command = [word for word in recipe if word] + ["-fsyntax-only", "-w", "-fmax-errors=0", "-ftrack-macro-expansion=0"]
    without = set()
    while True:
        mutants = write_mutants(kernel, out, without, others)
        said = subprocess.run([*command, str(out / "kernel.cu")], capture_output=True, text=True).stderr
        places = set(re.findall(r"kernel\.cu:(\d+):(\d+): (?:error|  required)", said))
        if not places:
            if "error" in said:
                raise Failed(said)
            return mutants
        lines, before = (out / "kernel.cu").read_text().splitlines(), len(without)
        for line, column in places:
            found = [(abs(m.start() - int(column)), int(m.group(1))) for m in NUMBER.finditer(lines[int(line) - 1])]
            without.update(number for _, number in sorted(found)[:1])
        if len(without) == before:
            raise Failed(said)


def name_of(mutant):
    return f"{mutant['what']}, in {mutant['text']}"


def sources_of(kernel):
    """The files that a kernel's text is made of."""
    names = INCLUDE.findall(kernel.read_text(encoding="utf-8"))
    return [kernel, *(path for name in names for path in (ROOT / name, kernel.parent / name) if path.is_file())]


def survivors_of(row, kernel):
    """The survivors in a row of the record that differ from the kernel, which must be the one of that row."""
    if not row:
        raise Failed("no earlier record has it")
    if subprocess.run(["git", "-C", ROOT, "diff", "--quiet", row["commit"], "--", *sources_of(kernel)],
                      capture_output=True).returncode != 0:
        raise Failed(f"its kernel has changed since {row['commit'][:8]}")
    _, left = mutation.row_of(row, mutation.equivalents())
    return {(m["line"], m["mutant"]) for m in left}


def mutate(stage, build, out, given, row=None):
    """A stage's mutants with what rejected each: all that are chosen, or the survivors of a row of the record. Every part of
    them has a folder, and with it a copy, of its own."""
    again = survivors_of(row, stage / "kernel.cu") if given.again else None
    mutants = compilable_mutants(stage / "kernel.cu", out, build, given.others)
    without = {m["id"] for m in mutants if not m["compiles"]}
    chosen = [m for m in mutants if m["compiles"]
              and ((m["line"], name_of(m)) in again if given.again else
                   m["id"] % given.every == 0 or m["kind"] not in MANY and not m["of_parent"])]

    def run(number):
        part = out / str(number)
        write_mutants(stage / "kernel.cu", part, without)
        (part / "ids").write_text("\n".join(f"{m['id']} {m['kind']}" for m in chosen[number::given.parts]))
        results = part / "results"  # as they come, for those who wait
        with results.open("w") as file:
            said = subprocess.run([build / "tests" / "run_mutants", stage, part], stdout=file, stderr=subprocess.PIPE,
                                  text=True)
        if said.returncode != 0:
            raise Failed(said.stderr)
        return [line.split("\t") for line in results.read_text().splitlines()]

    with ThreadPool(given.parts) as pool:
        by = {int(words[0]): words[1] for part in pool.map(run, range(given.parts), chunksize=1) for words in part}
    for m in chosen:
        m["by"] = by[m["id"]]
    return [m for m in chosen if m["by"] != "absent"]


def recorded(stage, chosen, seconds, head):
    """What is recorded of a stage. Which survivors do what the kernel does is asked when the record is read."""
    survivors = [m for m in chosen if m["by"] == "none"]
    return {"stage": stage.name, "mutants": len(chosen), "rejected": len(chosen) - len(survivors),
            "survivors": [{"line": m["line"], "mutant": name_of(m)} for m in survivors], "seconds": round(seconds), **head}


def once_more(row, chosen, head):
    """The row of the record whose survivors ran again. It stays that of its commit."""
    rejected = {(m["line"], name_of(m)) for m in chosen if m["by"] != "none"}
    left = [m for m in row["survivors"] if (m["line"], m["mutant"]) not in rejected]
    return {**row, "rejected": row["mutants"] - len(left), "survivors": left,
            "again": {"date": head["date"], "commit": head["commit"]}}


def mutate_all(stages, given, out):
    """Several stages at a time; each is recorded as soon as it is done, beside what is recorded of others."""
    head, known, lock, rows = machine_and_commit(), mutation.equivalents(), threading.Lock(), {}
    if given.json and given.json.exists():
        rows = {row["stage"]: row for row in json.loads(given.json.read_text())["stages"]}
    print(table(mutation.COLUMNS, []), end="", flush=True)

    def run(stage):
        began = time.monotonic()
        try:
            row = rows.get(stage.name)
            chosen = mutate(stage, given.build.resolve(), out / stage.name, given, row)
        except Failed as failure:
            print(f"{stage.name}: {failure}", file=sys.stderr)
            return False
        with lock:
            now = recorded(stage, chosen, time.monotonic() - began, head) | {"every": given.every}
            rows[stage.name] = once_more(row, chosen, head) if given.again else now
            cells, left = mutation.row_of(rows[stage.name], known)
            print(f"| {' | '.join(cells)} |", flush=True)
            for m in left:
                print(f"    line {m['line']}: {m['mutant']}", file=sys.stderr)
            if given.json:
                record = {"kind": "mutation", **head, "stages": [rows[name] for name in sorted(rows)]}
                given.json.write_text(json.dumps(record, indent=1) + "\n")
        return True

    with ThreadPool(given.jobs) as pool:
        return all(pool.map(run, stages, chunksize=1))


def coverage(stage, build, out):
    places = write_counting(stage / "kernel.cu", out)
    said = subprocess.run([build / "tests" / "run_mutants", stage, out, "--all"], capture_output=True, text=True)
    if said.returncode != 0:
        sys.exit(said.stdout + said.stderr)
    counts = struct.unpack(f"{4 * len(places)}Q", (out / "counts").read_bytes())
    reached = all_ = 0
    for n, place in enumerate(places):
        wanted = 2 if place["kind"] == "condition" else 4
        place["counts"] = counts[4 * n:4 * n + wanted]
        missing = [("no", "yes")[c] if wanted == 2 else f"{c} passes" if c < 3 else "more passes"
                   for c in range(wanted) if place["counts"][c] == 0]
        reached += wanted - len(missing)
        all_ += wanted
        if missing:
            print(f"    line {place['line']}, never {', '.join(missing)}: {place['what']}", file=sys.stderr)
        place["never"] = missing
    print(f"| {stage.name} | {sum(p['kind'] == 'condition' for p in places)} | "
          f"{sum(p['kind'] == 'loop' for p in places)} | {reached} of {all_} |")
    return {"stage": stage.name, "reached": reached, "all": all_, "never": [
        f"line {p['line']}, {', '.join(p['never'])}: {p['what']}" for p in places if p["never"]]}


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("what", choices=["mutate", "coverage"])
    options.add_argument("build", type=Path)
    options.add_argument("stages", nargs="*", help="numbers [the seven of the algorithm]")
    options.add_argument("--every", type=int, default=1,
                         help="of the many changes of constants, signs and factors, and of all in a file that the "
                             "parent includes, too, take one in so many")
    options.add_argument("--again", action="store_true",
                         help="of mutants, only the survivors that the record names, of kernels that are as they were then")
    options.add_argument("--others", nargs="+", default=[], metavar="STAGE",
                         help="stages whose files count as the parent's: their mutants run with them")
    options.add_argument("--jobs", type=int, default=1, help="stages at a time, of mutants [1]")
    options.add_argument("--parts", type=int, default=1, help="of each stage's mutants, run at a time [1]")
    options.add_argument("--json", type=Path, help="a record; of mutants, what it has of other stages stays")
    given = options.parse_args()
    numbers = {int(n) for n in given.stages} or set(range(7))
    stages = [s for s in sorted((ROOT / "stages").glob("[0-9]*_*")) if s.is_dir() and int(s.name[:2]) in numbers]
    out = given.build.resolve() / given.what
    if given.what == "mutate":
        sys.exit(not mutate_all(stages, given, out))
    print("| stage | conditions | loops | ways and counts of passes (0, 1, 2, more) reached |\n|---|---:|---:|---:|")
    results = [coverage(stage, given.build.resolve(), out / stage.name) for stage in stages]
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
