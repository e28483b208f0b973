#!/usr/bin/env python3
"""A quiz on each part of the ladder: `lab quiz` runs it.

    quiz.py [PART] [--list | --key] [--json FILE] [--markdown]

PART is 00s, 10s ..., the number of a stage, or all; the algorithm's by default. The questions are in
docs/course/quiz/*.md: a heading, the question, and each answer as a fold whose inside says in one sentence why it is
right or wrong. The fold of the right one may say how to count its number; tests/test_quiz.py does. Needs Python alone.
Exit codes: 0 ok; 2 bad usage.
"""

import html
import json
import re
import shutil
import sys
import textwrap
from typing import NamedTuple

sys.dont_write_bytecode = True

from blocks import Failure  # noqa: E402
from command import Options, lab_command, run, write  # noqa: E402
from markdown import without_spans  # noqa: E402
from parts import part_pages  # noqa: E402
from records import ROOT  # noqa: E402

FOLDER = ROOT / "docs/course/quiz"
ANSWER = re.compile(r"<details><summary>(.*?)</summary>\n\n(Right|Wrong): (.*?)\n\n"
                    r"(?:Count it: (.*?)\.\n\n)?</details>", re.S)
COUNT = re.compile(r"`\./lab count ([\d ]+?) (--\S+.*?)`: (.+) = ([\d,.]+)")


class Count(NamedTuple):
    """How a number is counted: what `lab count` is told, a formula of "COUNTER of STAGE", and what it gives."""
    stages: list
    options: str
    formula: str
    value: str


class Answer(NamedTuple):
    text: str
    right: bool
    why: str
    count: Count = None


class Question(NamedTuple):
    idea: str
    text: str
    answers: list

    @property
    def right(self):
        """The number of the right answer, from 1."""
        return next(n for n, answer in enumerate(self.answers, 1) if answer.right)


class Part(NamedTuple):
    name: str
    title: str
    source: str
    questions: list


def plain(text):
    """Markdown on one line, as a terminal shows it."""
    return html.unescape(" ".join(text.split()))


def read_answer(text, right, why, count):
    if count:
        said = COUNT.fullmatch(plain(count))
        if not said:
            raise Failure(f"'{plain(count)}' is no way to count")
        count = Count([int(stage) for stage in said[1].split()], *said.groups()[1:])
    return Answer(plain(text), right == "Right", plain(why), count or None)


def read_part(path):
    """Fails on what is not in the form of a quiz."""
    source = without_spans(path.read_text(encoding="utf-8"))
    head, *sections = re.split(r"^## ", source, flags=re.M)
    questions = []
    for section in sections:
        idea, text = section.split("\n", 1)
        answers = [read_answer(*answer) for answer in ANSWER.findall(text)]
        rest = plain(ANSWER.sub("", text))
        if sum(answer.right for answer in answers) != 1 or "<details>" in rest or not rest:
            raise Failure(f"{path.name}: '{idea}' needs a text, and answers in the known form, one of them right")
        questions.append(Question(idea, rest, answers))
    return Part(path.stem, re.match("# (.*)", head)[1], source, questions)


def parts():
    """The quizzes by name: 00s, 10s ..."""
    return {path.stem: path for path in sorted(FOLDER.glob("[0-9][0-9]s.md"))}


def find(word):
    """The quizzes that a word of the command line names."""
    known, name = parts(), word
    if re.fullmatch(r"[0-9]+", word):
        kernel = next((ROOT / "stages").glob(f"{int(word):02}_*/kernel.cu"), None)
        declared = kernel and re.search(r"[.]part = ([0-9]+)", kernel.read_text(encoding="utf-8"))
        number = int(declared[1] if declared else word)
        name = f"{max(part for part in part_pages() if part <= number):02}s"
        if not kernel:
            raise Failure(f"there is no stage '{word}'; see {lab_command('list')}")
    if name != "all" and name not in known:
        raise Failure(f"there is no quiz '{word}': there are {', '.join(known)} and all; see {lab_command('quiz', '--help')}")
    return [read_part(path) for path in (known.values() if name == "all" else [known[name]])]


# --- In the terminal --------------------------------------------------------------------------------------------------

def say(text, head="", indent=2):
    """Fills the lines of a terminal, of 80 columns where there is none."""
    width = max(40, min(shutil.get_terminal_size().columns, 100))
    print(textwrap.fill(head + text, width, subsequent_indent=" " * indent, break_long_words=False,
                        break_on_hyphens=False), flush=True)


def show(number, question):
    print(f"\n{number}. {question.idea}\n")
    say(question.text, indent=0)
    print()
    for n, answer in enumerate(question.answers, 1):
        say(answer.text, f"  {n}  ", 5)


def explain(question, given):
    """What was answered, and the right answer where it is another one."""
    right = question.answers[question.right - 1]
    if given == question.right:
        say(right.why, "Right: ")
    else:
        say(question.answers[given - 1].why, "Wrong: ")
        say(right.why, f"{question.right} is right: ")
    if right.count:
        stages, options, formula, value = right.count
        count = lab_command("count", *map(str, stages))
        say(f"{count} {options}: {formula} = {value}", "Count it: ")


def ask(question):
    """The number that was typed. Raises EOFError when there is no more to read."""
    most = len(question.answers)
    while True:
        word = input(f"\nYour answer, 1 to {most}: ").strip()
        if not sys.stdin.isatty():
            print(word)
        if word.isascii() and word.isdigit() and 1 <= int(word) <= most:
            return int(word)
        print(f"Type a number from 1 to {most}, or Ctrl-D to stop.")


def hold(part):
    """Asks a part's questions. Returns the answers, fewer than there are questions where the input ends early."""
    given = []
    try:
        for number, question in enumerate(part.questions, 1):
            show(number, question)
            given.append(ask(question))
            print()
            explain(question, given[-1])
    except (EOFError, KeyboardInterrupt):
        print()
    missed = [question.idea for question, n in zip(part.questions, given) if n != question.right]
    print()
    of_all = "" if len(given) == len(part.questions) else f", of {len(part.questions)} questions"
    say(f"{len(given) - len(missed)} of {len(given)} right{of_all}.", indent=0)
    if missed:
        say("; ".join(missed), "Read again: ")
    return given


def list_all(part, key):
    """Prints all questions, with the key or without."""
    for number, question in enumerate(part.questions, 1):
        show(number, question)
        if key:
            print()
            for n, answer in enumerate(question.answers, 1):
                say(answer.why, f"  {n} is {'right' if answer.right else 'wrong'}: ", 5)
    print()


def without_answers(source):
    """A quiz as Markdown to hand out: its answers as a list, without what says which is right."""
    return ANSWER.sub(lambda answer: f"- {' '.join(answer[1].split())}", source)


def as_json(part, key, given):
    rows = []
    for n, question in enumerate(part.questions):
        row = {"idea": question.idea, "question": question.text,
               "answers": [answer.text for answer in question.answers]}
        if key:
            row |= {"right": question.right, "why": [answer.why for answer in question.answers]}
        if n < len(given):
            row |= {"given": given[n], "is_right": given[n] == question.right}
        rows.append(row)
    return {"part": part.name, "title": part.title, "questions": rows}


def main():
    options = Options("quiz")
    options.add_argument("part", nargs="?", default="00s")
    options.add_argument("--list", action="store_true")
    options.add_argument("--key", action="store_true")
    chosen = options.parse_args()
    answer = []
    for part in find(chosen.part):
        given = []
        if chosen.markdown:
            print(part.source if chosen.key else without_answers(part.source), end="")
        else:
            say(part.title)
            if chosen.list or chosen.key:
                list_all(part, chosen.key)
            else:
                given = hold(part)
        answer.append(as_json(part, chosen.key, given))
    if chosen.json:
        write(chosen.json, json.dumps({"command": "quiz", "parts": answer}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
