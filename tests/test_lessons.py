#!/usr/bin/env python3
"""Tests what pages say: lessons are short, and no measured number is typed. Usage: test_lessons.py"""

import re
import unittest
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


def prose_of(text):
    """A page without what programs wrote, and without pictures, formulas and code that stand alone."""
    text = GENERATED.sub("", text)
    text = re.sub(r"<picture>.*?</picture>", "", text, flags=re.S)
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

    def test_lessons_have_one_order(self):
        for page in LESSONS:
            headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.M)
            with self.subTest(page=page.parent.name):
                self.assertEqual([heading for heading in headings if heading in ORDER], ORDER)

    def test_no_measured_number_is_typed(self):
        for page in [ROOT / "README.md", ROOT / "docs/results.md", ROOT / "stages/README.md", *PARTS, *LESSONS, *BESIDE,
                     *COURSE]:
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
