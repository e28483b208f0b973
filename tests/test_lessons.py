#!/usr/bin/env python3
"""Tests what pages say: lessons are short, no measured number is typed, and no prediction is changed afterwards. Usage:
test_lessons.py"""

import json
import re
import subprocess
import unittest
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LESSONS = sorted(ROOT.glob("stages/[0-9]*/README.md"))
PARTS = sorted(ROOT.glob("stages/[0-9]*s_*.md"))
COURSE = sorted(ROOT.glob("docs/course/slides/*.md")) + sorted(ROOT.glob("docs/course/labs/*.md"))
BESIDE = [ROOT / "docs" / name for name in ("claimed_and_measured.md", "flash_attention_1_and_2.md", "worked_example.md")]
MOST_WORDS = 2000

GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.S)
# Times, rates and speedups; what is counted has other units.
MEASURED = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(?:-?x\b|\s(?:TFLOP/s|TB/s|GB/s|ms|us)\b)")
# A table or a paragraph may say numbers of its own if it says where they come from.
SOURCE = re.compile(r"\b(trials?|papers?|report(?:s|ed)|predict\w*|calculated|arithmetic|specif\w+|arXiv|model)\b", re.I)
ORDER = ["The complaint", "The change", "The prediction", "The measurement", "What it leaves on the table", "Questions"]

# The pages of which every number is held, one a line; the others are held to typed_numbers() until they are among them.
HELD = (ROOT / "tests/held_pages.txt").read_text(encoding="utf-8").splitlines()
# What may be typed on a held page: "pages | text | why", a line each.
REVIEWED = [tuple(part.strip() for part in line.split(" | "))
            for line in (ROOT / "tests/typed_numbers.txt").read_text(encoding="utf-8").splitlines()]
SPAN = re.compile(r"<data value=[^>]*>[^<]*</data>")
TAG = re.compile(r"</?data[^>]*>")
ANY_MEASURED = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?:-?x(?!\w)|%|\s(?:TFLOP/s|TB/s|GB/s|ms|us)\b|(?<=\.\d)\stimes\b)")


def prose_of(text):
    """The words of a page: prose_of_source() without the tags of spans."""
    return TAG.sub("", prose_of_source(text))


def prose_of_source(text):
    """A page without what programs wrote, and without pictures, formulas and code that stand alone."""
    text = GENERATED.sub("", text)
    text = re.sub(r"<img .*>", "", text)
    text = re.sub(r"^ *\$\$.*\$\$$", "", text, flags=re.M)
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return re.sub(r"^    .*$", "", text, flags=re.M)


def typed_numbers(text):
    """Measured numbers outside of generated blocks that no block of the page has and that name no source."""
    generated = " ".join(GENERATED.findall(text))
    recorded = set(re.findall(r"\d+(?:\.\d+)?", generated))
    found, section, before = [], "", ""
    for paragraph in re.split(r"\n\s*\n", prose_of(text)):
        if heading := re.match(r"#+ (.*)", paragraph.strip()):
            section = heading[1]
        sourced = SOURCE.search(paragraph) or SOURCE.search(section)
        if paragraph.lstrip().startswith(("|", "- ")):  # a table or a list belongs to the sentence before it
            sourced = sourced or SOURCE.search(before)
        else:
            before = paragraph
        if not sourced:
            found += [match[0] for match in MEASURED.finditer(paragraph) if match[1] not in recorded]
    return found


def markdown_of(page):
    """The text of a page; of a notebook, of its Markdown cells."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")


def checked_prose(text):
    """What is held: all but spans, formulas, code, targets of links, and the section of the prediction, whose arithmetic
    is of the numbers of its day."""
    text = re.sub(r"^## The prediction\n.*?(?=^## |\Z)", "", text, flags=re.S | re.M)
    text = re.sub(r"`[^`\n]*`|\$[^$]*\$|\]\([^)]*\)|<!--.*?-->", "", SPAN.sub("", prose_of_source(text)), flags=re.S)
    return " ".join(text.split())


def typed_on_held(path, text, reviewed):
    """The numbers that look measured on a held page, and the reviewed texts of it that it does not have."""
    text, missing = checked_prose(text), []
    for pages, fragment, _ in reviewed:
        if fnmatch(path, pages):
            missing += [] if fragment in text or "*" in pages else [f"not there: {fragment}"]
            text = text.replace(fragment, " ")
    return [match[0] for match in ANY_MEASURED.finditer(text)] + missing


def git(*words):
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def earlier(path):
    """The rows of predictions.json in each commit of the branch that changed it."""
    log = git("log", "--first-parent", "--follow", "--format=%x00%H", "--name-only", "--", path) or ""
    for entry in filter(None, log.split("\0")):
        commit, *names = entry.split()
        text = git("show", f"{commit}:{names[-1]}") if names else None
        if text:
            yield commit, json.loads(text)


def predicted(row):
    """A row without where its measurement is to be found."""
    return {key: value for key, value in row.items() if key not in ("recorded", "not_measured")}


class PredictionsTest(unittest.TestCase):
    def test_no_prediction_was_changed_or_removed(self):
        if git("rev-parse", "--is-shallow-repository") != "false\n":
            self.skipTest("the history is not here")
        for path in sorted(ROOT.glob("stages/*/predictions.json")):
            rows = json.loads(path.read_text(encoding="utf-8"))
            for commit, were in earlier(str(path.relative_to(ROOT))):
                with self.subTest(page=path.parent.name, commit=commit[:10]):
                    self.assertEqual([row for row in map(predicted, were) if row not in map(predicted, rows)], [])

    def test_held_lessons_have_predictions_as_data_and_their_verdict_first(self):
        for page in LESSONS:
            if str(page.relative_to(ROOT)) in HELD:
                text = page.read_text(encoding="utf-8")
                with self.subTest(page=page.parent.name):
                    self.assertTrue(json.loads((page.parent / "predictions.json").read_text(encoding="utf-8")))
                    self.assertTrue((page.parent / "read_against.json").is_file(), "lab tables --lesson NN --reread")
                    self.assertIn("\n## The prediction\n\n<!-- generated: prediction -->\n", text)
                    self.assertIn("\n## The measurement\n\n<!-- generated: verdict -->\n", text)


class HeldTest(unittest.TestCase):
    def test_held_pages_have_no_measured_number_outside_of_blocks_and_spans(self):
        for path in HELD:
            with self.subTest(page=path):
                self.assertEqual(typed_on_held(path, markdown_of(ROOT / path), REVIEWED), [])

    def test_each_reviewed_text_has_a_reason(self):
        for entry in REVIEWED:
            self.assertEqual(len(entry), 3, entry)

    def test_the_test_finds_what_it_is_for(self):
        reviewed = [("a.md", "1.7x to 1.8x", "published")]
        for text, found in (("It is 1.97x as fast, 3% more, 1.4 times.", ["1.97x", "3%", "1.4 times"]),
                            ('It is <data value="over parent, causal 2k">1.97x</data>: 64 x 64, `2x`, $3\\%$, 3 times', []),
                            ("## The prediction\n\n5 ms\n\n## The measurement\n\n6 ms\n", ["6 ms"]),
                            ("1,024 us and 7 TFLOP/s", ["1,024 us", "7 TFLOP/s"])):
            self.assertEqual(typed_on_held("b.md", text, reviewed), found, text)
        self.assertEqual(typed_on_held("a.md", "It reports 1.7x\nto 1.8x, and 1.9x.", reviewed), ["1.9x"])
        self.assertEqual(typed_on_held("a.md", "It reports.", reviewed), ["not there: 1.7x to 1.8x"])


class LessonsTest(unittest.TestCase):
    def test_lessons_and_parts_are_short(self):
        for page in LESSONS + PARTS:
            with self.subTest(page=page.parent.name + "/" + page.name):
                self.assertLessEqual(len(prose_of(page.read_text(encoding="utf-8")).split()), MOST_WORDS)

    def test_notebooks_name_stages_that_exist(self):
        rows = re.findall(r"^\| \[.*\| ([^|]+) \|$", (ROOT / "notebooks/README.md").read_text(encoding="utf-8"), re.M)
        named = [number for row in rows for number in re.findall(r"\b\d\d\b", row)]
        self.assertGreater(len(named), 20)
        self.assertEqual(set(named) - {page.parent.name[:2] for page in LESSONS}, set())

    def test_the_first_page_is_read_in_five_minutes(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text(encoding="utf-8").split()), 1500)

    def test_the_version_is_the_changelog_s_newest(self):
        newest = re.search(r"^## (\d+\.\d+\.\d+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[1]
        self.assertIn(f"\nversion: {newest}\n", (ROOT / "CITATION.cff").read_text(encoding="utf-8"))

    def test_lessons_have_one_order(self):
        for page in LESSONS:
            headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.M)
            with self.subTest(page=page.parent.name):
                self.assertEqual([heading for heading in headings if heading in ORDER], ORDER)

    def test_no_measured_number_is_typed(self):
        for page in [ROOT / "README.md", ROOT / "docs/results.md", ROOT / "stages/README.md", *PARTS, *LESSONS, *BESIDE,
                     *COURSE]:
            if str(page.relative_to(ROOT)) in HELD:
                continue
            with self.subTest(page=str(page.relative_to(ROOT))):
                self.assertEqual(typed_numbers(page.read_text(encoding="utf-8")), [])

    def test_every_part_has_a_page(self):
        parts = {page.parent.name[0] for page in LESSONS}
        self.assertEqual({page.name[0] for page in PARTS}, parts)

    def test_the_test_finds_what_it_is_for(self):
        block = "<!-- generated: measured -->\n| 1.52x | 212 TFLOP/s |\n<!-- end -->\n"
        for text, found in ((f"It is 1.52x as fast.\n\n{block}", []), (f"It is 1.53x as fast.\n\n{block}", ["1.53x"]),
                            ("It takes 3.5 ms.", ["3.5 ms"]), ("The paper reports 3.5 ms.", []),
                            ("Trial 40:\n\n| a | 3.5 ms |", []), ("Here:\n\n| a | 3.5 ms |", ["3.5 ms"]),
                            ("## The prediction\n\nIt takes 3.5 ms.", []), ("64 x 64 and 128 keys", []),
                            ("    3.5 ms, in a listing", [])):
            self.assertEqual(typed_numbers(text), found, text)


if __name__ == "__main__":
    unittest.main()
