#!/usr/bin/env python3
"""Tests what pages say: lessons are short and show few numbers, no measured number is typed, and no prediction is changed
afterwards. Usage: test_lessons.py"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import unittest
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs/publish"))
sys.dont_write_bytecode = True

import reading  # noqa: E402

LESSONS = sorted(ROOT.glob("stages/[0-9]*/README.md"))
PARTS = sorted(ROOT.glob("stages/[0-9]*s_*.md"))
# Every page that people read, but for the changelog, whose numbers are those of its days.
PAGES = sorted({page for pattern in ("README.md", "*/README.md", "stages/**/*.md", "docs/**/*.md", "tests/*.md", "notebooks/*.ipynb")
                for page in ROOT.glob(pattern)})
MOST_WORDS = 2000
MOST_NUMBERS, MEAN_NUMBERS = 200, 130  # in sight, in a lesson and in the mean of all

GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.S)
ORDER = ["The complaint", "The change", "The prediction", "The measurement", "What it leaves on the table", "Questions"]

# What may be typed on a page: "pages | text | why", a line each.
REVIEWED = [(line.split(" | ")[0], *line.partition(" | ")[2].rsplit(" | ", 1))
            for line in (ROOT / "tests/typed_numbers.txt").read_text(encoding="utf-8").splitlines()]
SPAN = re.compile(r"<data value=[^>]*>[^<]*</data>")
TAG = re.compile(r"</?data[^>]*>")
ANY_MEASURED = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?:-?x(?!\w)|%|\s(?:TFLOP/s|TB/s|GB/s|ms|us)\b)"
                          r"|(?<![\w.,])\d[\d,]*\.\d+\stimes\b")


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


def typed_on(path, text, reviewed):
    """The numbers that look measured on a page, and the reviewed texts of it that it does not have."""
    text, missing = checked_prose(text), []
    for pages, fragment, _ in reviewed:
        if fnmatch(path, pages):
            missing += [] if fragment in text or "*" in pages else [f"not there: {fragment}"]
            text = text.replace(fragment, " ")
    return [match[0] for match in ANY_MEASURED.finditer(text)] + missing


def numbers_in_sight(text):
    """How many numbers a reader of a page meets: those in folds, code, pictures and targets of links are none."""
    while reading.FOLD.search(text):
        text = reading.FOLD.sub("", text)
    text = re.sub(r"<!--.*?-->|<img [^>]*>|^```.*?^```|\]\([^)]*\)|`[^`]*`", "", TAG.sub("", text), flags=re.S | re.M)
    return len(re.findall(r"(?<![\w.])\d[\d,.]*", text))


def headless_tables(text):
    """The first lines of tables without a head, which are shown as text: an empty line cuts a table in two."""
    lines = ["", *re.sub(r"^```.*?^```", "", text, flags=re.S | re.M).split("\n"), ""]
    return [line for before, line, after in zip(lines, lines[1:], lines[2:])
            if line.startswith("|") and not before.startswith("|") and not re.fullmatch(r"\|[-:| ]+\|", after)]


def git(*words):
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def earlier(path):
    """The rows of predictions.json in each commit of the branch that changed it, and the number of the stage's parent.
    Where the folder began as a copy of its parent's, the rows that came along are not its own."""
    def rows(commit, name):
        return json.loads(git("show", f"{commit}:{name}") or "[]")

    def parent(commit, name):
        declared = re.search(r"[.]parent = (\d+)", git("show", f"{commit}:{Path(name).with_name('kernel.cu')}") or "")
        return int(declared[1]) if declared else None
    log = git("log", "--first-parent", "--follow", "--format=%x00%H", "--name-status", "--", path) or ""
    found, not_its_own = [], []
    for entry in filter(None, log.split("\0")):
        commit, *status = entry.split()
        if not status:
            continue
        found.append((commit, rows(commit, status[-1]), parent(commit, status[-1])))
        if status[0].startswith("C"):
            not_its_own = rows(f"{commit}^", status[1])
            break
    return [(commit, [row for row in were if row not in not_its_own], parent) for commit, were, parent in found]


def renumbered(commit, formerly):
    """The numbers of today of stages that had other ones in a commit; `formerly` are the stages' folders by former names."""
    folders = re.findall(r"\d\d_\w+", git("ls-tree", "--name-only", commit, "stages/") or "")
    return {folder[:2]: formerly[folder][:2] for folder in folders if folder in formerly}


def with_numbers(row, numbers):
    """A prediction whose words call stages ("over 83", "83's") by these numbers; what was predicted stays as it is."""
    def of_today(text):
        return re.sub(r"(?<=\bover )\d\d\b|\b\d\d(?='s\b)", lambda found: numbers.get(found[0], found[0]), text)
    return {key: of_today(value) if key in ("quantity", "from") else value for key, value in row.items()}


def missing(history, rows, numbers=lambda commit: {}):
    """For each commit, the newest last, its rows that are not among these. A stage may get another parent; a row may then
    say which one it had when it was written. Stages may also get other numbers."""
    kept, parents = [predicted(row) for row in rows], {}
    for commit, were, parent in history:
        were, since = [predicted(row) for row in were], numbers(commit)
        for row in were:
            parents.setdefault(json.dumps(row), parent)
        forms = [(row, with_numbers(row, since), parents[json.dumps(row)]) for row in were]
        yield commit, [row for row, now, parent in forms if now not in kept and {**now, "parent": parent} not in kept]


def predicted(row):
    """A row without where its measurement is to be found, and with "1,336" as 1336."""
    return {key: re.sub(r"(?<=\d),(?=\d{3}\b)", "", value) if key == "from" else value
            for key, value in row.items() if key not in ("recorded", "not_measured")}


class PredictionsTest(unittest.TestCase):
    def test_no_prediction_was_changed_or_removed(self):
        if git("rev-parse", "--is-shallow-repository") != "false\n":
            self.skipTest("the history is not here")
        formerly = {}
        for kernel in ROOT.glob("stages/*/kernel.cu"):
            if name := re.search(r'[.]formerly = "(\w+)"', kernel.read_text(encoding="utf-8")):
                formerly[name[1]] = kernel.parent.name
        numbers = cache(lambda commit: renumbered(commit, formerly))
        for path in sorted(ROOT.glob("stages/*/predictions.json")):
            rows = json.loads(path.read_text(encoding="utf-8"))
            history = reversed(earlier(str(path.relative_to(ROOT))))
            for commit, lost in missing(history, rows, numbers):
                with self.subTest(page=path.parent.name, commit=commit[:10]):
                    self.assertEqual(lost, [])

    def test_a_row_may_say_which_parent_it_had_and_nothing_else(self):
        row = {"problem": "decode 8k", "quantity": "over parent", "value": 1.2}
        for now, found in ((row, []), ({**row, "parent": 17}, []), ({**row, "parent": 81}, [row]), ({**row, "value": 1.1}, [row]),
                           ({**row, "recorded": "over 17, decode 8k"}, [])):
            history = [("a", [row], 17), ("b", [row], 81)]
            self.assertEqual([lost for _, lost in missing(history, [now])], [found, found], now)

    def test_a_row_may_have_the_numbers_of_today_and_no_others(self):
        row = {"problem": "decode 8k", "quantity": "over 83", "from": "83's 28 us", "value": 0.83}
        for now, found in (({**row, "quantity": "over 84", "from": "84's 28 us"}, []),
                           ({**row, "quantity": "over 85"}, [row]), ({**row, "from": "84's 29 us"}, [row]),
                           ({**row, "quantity": "over 84", "from": "84's 76 us"}, [row]),
                           ({**row, "quantity": "over 84", "from": "84's 28 us", "value": 0.84}, [row])):
            lost = missing([("a", [row], 17)], [now], lambda commit: {"83": "84", "28": "76"})
            self.assertEqual([lost for _, lost in lost], [found], now)

    def test_a_copied_folder_is_held_to_its_own_predictions(self):
        parent, own, second = ({"problem": problem} for problem in ("causal 2k", "causal 16k", "unmasked"))
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(globals(), ROOT=Path(folder)):
            git("init", "-q")
            for name, rows in (("05", [parent]), ("27", [parent]), ("27", [own]), ("27", [own, second])):
                (ROOT / name).write_text(json.dumps(rows), encoding="utf-8")
                git("add", name)
                git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", name)
            self.assertEqual([rows for _, rows, _ in earlier("27")], [[own, second], [own], []])
            self.assertEqual([rows for _, rows, _ in earlier("05")], [[parent]])

    def test_lessons_have_predictions_as_data_and_their_verdict_first(self):
        for page in LESSONS:
            text = page.read_text(encoding="utf-8")
            with self.subTest(page=page.parent.name):
                self.assertTrue(json.loads((page.parent / "predictions.json").read_text(encoding="utf-8")))
                self.assertTrue((page.parent / "read_against.json").is_file(), "lab tables --lesson NN --reread")
                self.assertIn("\n## The prediction\n\n<!-- generated: prediction -->\n", text)
                self.assertIn("\n## The measurement\n\n<!-- generated: verdict -->\n", text)


class TypedTest(unittest.TestCase):
    def test_no_page_has_a_measured_number_outside_of_blocks_and_spans(self):
        self.assertGreater(len(PAGES), len(LESSONS) + len(PARTS) + 50)
        for page in PAGES:
            path = str(page.relative_to(ROOT))
            with self.subTest(page=path):
                self.assertEqual(typed_on(path, markdown_of(page), REVIEWED), [])

    def test_each_reviewed_text_has_a_reason(self):
        for entry in REVIEWED:
            self.assertEqual([len(entry), all(entry)], [3, True], entry)

    def test_the_test_finds_what_it_is_for(self):
        reviewed = [("a.md", "1.7x to 1.8x", "published")]
        for text, found in (("It is 1.97x as fast, 3% more, 1.4 and 1.25 times.", ["1.97x", "3%", "1.25 times"]),
                            ('It is <data value="over parent, causal 2k">1.97x</data>: 64 x 64, `2x`, $3\\%$, 3 times', []),
                            ("## The prediction\n\n5 ms\n\n## The measurement\n\n6 ms\n", ["6 ms"]),
                            ("1,024 us and 7 TFLOP/s", ["1,024 us", "7 TFLOP/s"])):
            self.assertEqual(typed_on("b.md", text, reviewed), found, text)
        self.assertEqual(typed_on("a.md", "It reports 1.7x\nto 1.8x, and 1.9x.", reviewed), ["1.9x"])
        self.assertEqual(typed_on("a.md", "It reports.", reviewed), ["not there: 1.7x to 1.8x"])


class LessonsTest(unittest.TestCase):
    def test_lessons_and_parts_are_short(self):
        for page in LESSONS + PARTS:
            with self.subTest(page=page.parent.name + "/" + page.name):
                self.assertLessEqual(len(prose_of(page.read_text(encoding="utf-8")).split()), MOST_WORDS)

    def test_lessons_show_few_numbers(self):
        shown = {page.parent.name: numbers_in_sight(page.read_text(encoding="utf-8")) for page in LESSONS}
        self.assertEqual({name: number for name, number in shown.items() if number > MOST_NUMBERS}, {}, "fold or cut some")
        self.assertLessEqual(statistics.mean(shown.values()), MEAN_NUMBERS)

    def test_the_count_is_of_what_is_in_sight(self):
        for text, number in (("3 of 64 x 64, 1,024 and 2.5x in H200 at `7` and [9](8.md)", 6), ("```\n5\n```\n$2^6$", 2),
                             ('<data value="over 04, causal 2k">1.97x</data>', 1), ("<!-- generated: over 5 -->", 0),
                             ('<img width="480" alt="6 x 6 tiles" src="05.svg">', 0),
                             ("1 <details><summary>2</summary>3 <details>4</details> 5</details> 6", 2)):
            self.assertEqual(numbers_in_sight(text), number, text)

    def test_every_table_has_a_head(self):
        for page in LESSONS + PARTS + sorted(ROOT.glob("docs/*.md")):
            with self.subTest(page=str(page.relative_to(ROOT))):
                self.assertEqual(headless_tables(page.read_text(encoding="utf-8")), [])
        table = "| a |\n|---|\n| 1 |\n"
        self.assertEqual([headless_tables(text) for text in (table, f"{table}\n| 2 |\n", f"```\n| a |\n```\n{table}")],
                         [[], ["| 2 |"], []])

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

    def test_every_lesson_ends_with_the_line_that_compiles_its_kernel(self):
        for page in LESSONS:
            with self.subTest(page=page.parent.name):
                end = page.read_text(encoding="utf-8").rpartition("\n## The kernel alone\n\n")[2]
                self.assertRegex(end, r"\A<!-- generated: nvcc -->\n(?s:.*)\n<!-- end -->\n\Z")
                header = "hopper" if "stages/hopper.cuh" in (page.parent / "kernel.cu").read_text(encoding="utf-8") else "device"
                self.assertIn(f" -arch={dict(hopper='sm_90a', device='sm_80')[header]} ", end)
                self.assertIn(f" stages/{page.parent.name}/kernel.cu\n", end)

    def test_every_recording_is_in_the_list_of_files(self):
        listed = set(re.findall(r"\]\(results/([^)]+)\)", (ROOT / "docs/results.md").read_text(encoding="utf-8")))
        self.assertEqual({path.name for path in (ROOT / "docs/results").iterdir()}, listed)

    def test_every_part_has_a_page(self):
        parts = {page.parent.name[0] for page in LESSONS}
        self.assertEqual({page.name[0] for page in PARTS}, parts)


if __name__ == "__main__":
    unittest.main()
