#!/usr/bin/env python3
"""Tests the quizzes: their form, their numbers against `lab count`, and the command. Usage: test_quiz.py LAB"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs/publish"), str(ROOT / "tests")]
sys.dont_write_bytecode = True

import quiz  # noqa: E402
from blocks import Failure  # noqa: E402
from parts import part_pages  # noqa: E402
from sample_records import free_number  # noqa: E402
from sources import Sources  # noqa: E402

LAB = sys.argv.pop() if len(sys.argv) > 1 else ROOT / "build/lab"
PARTS = [quiz.read_part(path) for path in quiz.parts().values()]
QUESTIONS = [(f"{part.name}: {question.idea}", question) for part in PARTS for question in part.questions]


class FormTest(unittest.TestCase):
    def test_each_part_has_a_quiz_and_its_page_links_to_it(self):
        self.assertEqual([part.name for part in PARTS], [f"{number:02}s" for number in part_pages()])
        for path in part_pages().values():
            self.assertIn(f"(../docs/course/quiz/{path.name[:3]}.md)", (ROOT / "stages" / path.name).read_text("utf-8"))
        for part in PARTS:
            self.assertTrue(8 <= len(part.questions) <= 20, part.name)

    def test_each_answer_has_one_sentence(self):
        for name, question in QUESTIONS:
            self.assertEqual(len(question.answers), 4, name)
            self.assertEqual(len({answer.text for answer in question.answers}), 4, name)
            for answer in question.answers:
                self.assertRegex(answer.why, r"\.$", name)
                self.assertNotRegex(answer.why, r"[.?] [A-Z]", name)

    def test_the_right_answer_is_found_by_no_rule_of_thumb(self):
        for part in PARTS:
            places = Counter(question.right for question in part.questions)
            self.assertLessEqual(max(places.values()), len(part.questions) // 2, f"{part.name}: {places}")
            longest = sum(max(question.answers, key=lambda answer: len(answer.text)).right
                          for question in part.questions)
            self.assertLessEqual(longest, len(part.questions) // 2, f"{part.name}: right ones are often the longest")

    def test_a_number_is_counted_or_derived(self):
        for name, question in QUESTIONS:
            right = question.answers[question.right - 1]
            if re.match(r"\d", right.text):
                self.assertTrue(right.count or " = " in right.why, name)

    def test_what_is_in_another_form_is_named(self):
        fold, why_not = "<details><summary>a</summary>\n\n{}: b.\n\n{}</details>\n\n", "'Idea' needs .* one of them"
        for text, why in ((fold.format("Wrong", ""), why_not), (fold.format("Right", "") * 2, why_not),
                          (fold.format("Right", "") + fold.format("Maybe", ""), why_not),
                          (fold.format("Right", "Count it: by hand.\n\n"), "'by hand' is no way to count")):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "00s.md"
                path.write_text(f"# Quiz\n\n## Idea\n\nText?\n\n{text}")
                with self.assertRaisesRegex(Failure, why):
                    quiz.read_part(path)


class NumbersTest(unittest.TestCase):
    def test_numbers_are_what_the_stages_count(self):
        sources, wanted = Sources(LAB), {}
        counts = [(name, question.answers[question.right - 1]) for name, question in QUESTIONS
                  if question.answers[question.right - 1].count]
        self.assertGreaterEqual(len(counts), 2 * len(PARTS))
        for _, answer in counts:  # all stages that are counted on a problem at once
            backward = sources.stage(answer.count.stages[0]).backward
            wanted.setdefault((answer.count.options, backward), set()).update(answer.count.stages)
        work = {}
        for (options, backward), numbers in wanted.items():
            stages = [sources.stage(number) for number in sorted(numbers)]
            for stage, counted in zip(stages, sources.work(stages, options)[1]):
                work[options, stage.number] = counted
        for name, answer in counts:
            count = answer.count
            asked = re.findall(r"([a-z][a-z ]*) of (\d\d)", count.formula.replace(" x ", " * "))
            self.assertEqual({int(stage) for _, stage in asked}, set(count.stages), name)
            formula = re.sub(r"([a-z][a-z ]*) of (\d\d)",
                             lambda found: str(work[count.options, int(found[2])][found[1].replace(" ", "_")]),
                             count.formula.replace(" x ", " * "))
            self.assertRegex(formula, r"^[\d */+-]+$", name)
            self.assertEqual(f"{eval(formula):,.6g}", count.value, name)
            self.assertEqual(answer.text, count.value, f"{name}: the answer is the number that is counted")


class CommandTest(unittest.TestCase):
    def run_quiz(self, *words, typed=""):
        done = subprocess.run([sys.executable, ROOT / "docs/publish/quiz.py", *words], input=typed, capture_output=True,
                              text=True, check=False, env={"COLUMNS": "80", "LC_ALL": "C.UTF-8"})
        if "--markdown" not in words:
            self.assertLessEqual(max(map(len, done.stdout.splitlines()), default=0), 80)
        return done

    def test_right_answers_score(self):
        part = PARTS[0]
        done = self.run_quiz(typed="".join(f"{question.right}\n" for question in part.questions))
        total = len(part.questions)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.count("\nRight: "), total)
        self.assertIn(f"\n{total} of {total} right.\n", done.stdout)
        self.assertNotIn("reading again", done.stdout)
        self.assertIn("Count it: ./lab count ", done.stdout)

    def test_a_wrong_answer_is_told_why_and_what_is_right(self):
        question = PARTS[1].questions[0]
        wrong = question.right % 4 + 1
        done = self.run_quiz("10s", typed=f"nine\n5\n{wrong}\n")
        said = " ".join(done.stdout.split())
        self.assertEqual(done.returncode, 0)  # the input ends there, as by Ctrl-D
        self.assertEqual(said.count("Type a number from 1 to 4"), 2)
        self.assertIn(f"Wrong: {question.answers[wrong - 1].why}", said)
        self.assertIn(f"{question.right} is right: {question.answers[question.right - 1].why}", said)
        self.assertIn(f"0 of 1 right, of {len(PARTS[1].questions)} questions. "
                      f"Read again: {question.idea}", said)

    def test_lists_say_nothing_of_the_answers_and_the_key_does(self):
        right = PARTS[2].questions[0].answers[PARTS[2].questions[0].right - 1]
        for words, tells in ((["--list"], False), (["--key"], True), (["--markdown"], False),
                             (["--markdown", "--key"], True)):
            done = self.run_quiz("20s", *words)
            said = " ".join(done.stdout.split())
            self.assertEqual(done.returncode, 0)
            self.assertTrue(all(question.idea in said for question in PARTS[2].questions))
            self.assertEqual([right.text in said, right.why in said], [True, tells], words)
        self.assertEqual(self.run_quiz("20s", "--markdown", "--key").stdout, PARTS[2].source)

    def test_json_goes_into_a_pipe_and_through_a_link(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe, file, link = (Path(folder) / name for name in ("pipe", "quiz.json", "link"))
            os.mkfifo(pipe)
            reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
            link.symlink_to(file)
            for target in pipe, link:
                self.run_quiz("34", "--list", "--json", target)
            self.assertTrue(pipe.is_fifo() and link.is_symlink())
            self.assertEqual(os.read(reader, 1 << 16).decode(), file.read_text())
            os.close(reader)

    def test_json(self):
        self.assertIn("cannot write -: not a file name; standard output is /dev/stdout", self.run_quiz("all", "--list", "--json", "-").stderr)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "quiz.json"
            self.run_quiz("all", "--list", "--json", file)
            shown = json.loads(file.read_text())["parts"]
            self.assertEqual([row["part"] for row in shown], [part.name for part in PARTS])
            self.assertEqual(set(shown[0]["questions"][0]), {"idea", "question", "answers"})
            self.run_quiz("34", "--json", file, typed="1\n")
            part, = json.loads(file.read_text())["parts"]
            self.assertEqual((part["part"], part["questions"][0]["given"]), ("30s", 1))
            self.assertEqual([row for row in part["questions"][1:] if "given" in row], [])
            done = self.run_quiz("--list", "--json", Path(folder) / "none" / "quiz.json")
            self.assertEqual(done.returncode, 2)
            self.assertIn("cannot write", done.stderr)

    def test_bad_usage(self):
        free = str(free_number(Sources(LAB)))
        for words, why in ((["89s"], "there is no quiz '89s': there are 00s, 10s"), (["x"], "there is no quiz 'x'"),
                           (["99s"], "there is no quiz"), ([free], f"there is no stage '{free}'; see ./lab list"),
                           (["100"], "there is no stage '100'"), (["--loud"], "--loud; see ./lab quiz --help"),
                           (["00s", "10s"], "10s; see ./lab quiz --help")):
            done = self.run_quiz(*words)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1))
            self.assertIn(why, done.stderr)


if __name__ == "__main__":
    unittest.main()
