"""What `lab grade` says of a class, once each submission is graded: grades.csv, a report for each student, and how much of a
change submissions share, in similarity.csv.

    class_report.py < REQUEST

`lab grade` runs it, and says as JSON where the grades are and of which tokens the kernels are made (course/commands/grade.cpp).
The answer is JSON: what to write, the tables as it shows them, of cells (value, text, tone), and its notes.

Submissions are compared as MOSS does it (Schleimer, Wilkerson and Aiken: Winnowing, SIGMOD 2003): a kernel is the set of its
sequences of k tokens, in which names and literals are all the same. What the parent has counts for none. A kernel is
short, so all sequences are compared, not a sample of them.
"""

import json
import math
import re
import string
import sys
from pathlib import Path

TOKENS = 10  # of a sequence: about a line
# Words that no submission can rename
WORDS = set("""auto bool break case char const constexpr continue do double else false float for if int long operator return
    sizeof static struct switch template true typename unsigned using void volatile while threadIdx blockIdx gridDim
    blockDim""".split())
LEAST, SHOWN_FROM, MOST_SHOWN = 0.5, 0.8, 10  # shares that are written down, and shown; how many of these


def sequences(tokens):
    kept = ["name" if re.match("[A-Za-z_]", token) and token not in WORDS and not token.startswith("__") else token
            for token in tokens]
    return {hash(sequence) for sequence in zip(*(kept[n:] for n in range(TOKENS)))}


def similarities(submissions, ladder, parent):
    """Of kernels by name, as tokens: each two submissions once, the one with the larger share first, and each with that of
    the ladder's kernels which has most of it. (submission, other, its sequences, shares of each), the most similar first."""
    known = sequences(parent)
    own, of_ladder = ({name: sequences(tokens) - known for name, tokens in kernels.items()} for kernels in (submissions, ladder))
    names, found = list(own), []

    def add(name, other, theirs):
        mine, shared = own[name], len(own[name] & theirs)
        if mine and shared >= LEAST * len(mine):
            found.append((name, other, len(mine), shared / len(mine), shared / len(theirs) if theirs else 0))

    for n, name in enumerate(names):
        for other in names[n + 1:]:
            first, second = (name, other) if len(own[name]) <= len(own[other]) else (other, name)
            add(first, second, own[second])
        if of_ladder:
            nearest = max(of_ladder, key=lambda stage: len(own[name] & of_ladder[stage]))
            add(name, nearest, of_ladder[nearest])
    return sorted(found, key=lambda one: (-one[3], -one[2]))


def quoted(name):
    """A spreadsheet must not take a name for a formula, neither after blanks nor in wide letters."""
    formula = name.lstrip(" ")[:1] in tuple("=+-@\uff1d\uff0b\uff0d\uff20")
    return '"' + ("'" if formula else "") + name.replace('"', '""') + '"'


def read_grade(path):
    """The scores in such a file, by criterion, if it is one; None otherwise."""
    try:
        tests = json.loads(Path(path).read_text(encoding="utf-8"))["tests"]
        return {test["extra_data"]["criterion"]: test for test in tests}
    except (OSError, ValueError, KeyError, TypeError):  # another file, or none
        return None


def total(grade, key):
    return math.floor(100 * sum(test[key] for test in grade.values()) + 0.5) / 100


def markdown_report(title, name, grade):
    """For a student to read. A name means nothing to Markdown."""
    shown = "".join("\\" + c if c in string.punctuation else c for c in name)
    text = (f"# {title}: {shown}\n\n{total(grade, 'score'):g} of {total(grade, 'max_score'):g} points\n\n"
            "| criterion | points | of |\n|---|---:|---:|\n")
    text += "".join(f"| {test['name']} | {test['score']:g} | {test['max_score']:g} |\n" for test in grade.values())
    for test in grade.values():
        if test["score"] < test["max_score"]:
            text += f"\n## {test['name']}\n\n" + "".join(f"    {line}\n" if line else "\n"
                                                         for line in test["output"].removesuffix("\n").split("\n"))
    return text


def table_of_similar(similar):
    return [[[name, name], [other, other], [own, f"{own:,}"], [share, f"{100 * share:.0f}%"],
             [of_other, f"{100 * of_other:.0f}%"]] for name, other, own, share, of_other in similar
            if share >= SHOWN_FROM][:MOST_SHOWN]


def report(title, points, submissions, ladder, parent, out, csv, said):
    rows, notes, missing, files = [], [], 0, {}
    text = ",".join(["submission", *points, "total,of,modified\n"])
    for submission in submissions:
        name, grade, modified = submission["name"], read_grade(submission["result"]), submission["modified"]
        scores = [(grade or {}).get(key, {}).get("score") for key in points]
        cells = [[score, "-", "faint"] if score is None else [score, f"{score:g}"] for score in scores]
        both = [total(grade, key) for key in ("score", "max_score")] if grade else []
        rows.append([[name, name], *cells, [both[0], f"{both[0]:g}", "strong"] if grade else [None, "not graded", "bad"],
                     [modified, modified]])
        numbers = [cell[1] for cell in cells] + [f"{each:g}" for each in both] if grade else [""] * (len(points) + 2)
        text += ",".join([quoted(name), *numbers, modified]) + "\n"
        if grade:
            files[submission["report"]] = markdown_report(title, name, grade)
        else:
            missing += 1
            notes += [said[name]] if name in said else []
    similar = similarities({one["name"]: one["tokens"] for one in submissions}, ladder, parent)
    files[csv] = text
    files[f"{out}/similarity.csv"] = "submission,with,sequences,shared,shared_of_other\n" + "".join(
        f"{quoted(name)},{quoted(other)},{own},{share:.2f},{of_other:.2f}\n" for name, other, own, share, of_other in similar)
    return {"files": files, "grades": rows, "similar": table_of_similar(similar), "missing": missing,
            "notes": [f"all grades: {csv}; two files each, for Gradescope and for students: {out}",
                      f"how much of a change submissions share: {out}/similarity.csv; a short change leaves few ways to write "
                      "it, so read both", *notes]}


if __name__ == "__main__":
    print(json.dumps(report(**json.loads(sys.stdin.readline()))))
