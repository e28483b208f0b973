#!/usr/bin/env python3
"""Tests what the site is made of: diffs side by side, links, Markdown, figures. Usage: test_site.py"""

import base64
import json
import re
import runpy
import sys
import tempfile
import unittest
from difflib import unified_diff
from html import unescape
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs/site"))
sys.dont_write_bytecode = True

from check_links import check_links  # noqa: E402
from kernels import comment_html, definitions, enclosing, explain  # noqa: E402
from ladder import Ladder, kernel_text  # noqa: E402
from markup import Markdown, slug, tokens_by_line  # noqa: E402
from navigation import Group, groups_of, menu  # noqa: E402
from pages import Page, Pages, read  # noqa: E402
from search import ALIASES, page_entries, symbol_entries, text_in  # noqa: E402
from side_by_side import CONTEXT, SideBySide, mark, pair, parse  # noqa: E402
from slides import Slides, rows_of  # noqa: E402

KERNELS = sorted(map(kernel_text, ROOT.glob("stages/*/kernel.cu")))


def diff_of(old, new):
    return "".join(line if line.endswith("\n") else line + "\n" for line in
                   unified_diff(old.splitlines(True), new.splitlines(True), "old", "new"))


def text_of(html):
    return unescape(re.sub(r"<[^>]*>", "", html))


class SideBySideTest(unittest.TestCase):
    def test_both_columns_are_the_whole_files(self):
        for old, new in zip(KERNELS, KERNELS[1:]):
            sides = SideBySide(old, new, diff_of(old, new))
            page = sides.html(definitions(new), ["" for _ in sides.changes()])
            for side, code in (("old", old), ("new", new)):
                rows = re.findall(rf'<div class="{side}"><span class="no">(\d+)</span><code>(.*?)</code></div>', page)
                self.assertEqual([int(number) for number, _ in rows], list(range(1, code.count("\n") + 1)))
                self.assertEqual([text_of(line).rstrip() for _, line in rows], [c.rstrip() for c in code.splitlines()])

    def test_what_is_unchanged_folds_but_for_its_ends(self):
        lines = [f"line {n};\n" for n in range(40)]
        changed = lines[:20] + ["another;\n"] + lines[20:]
        sides = SideBySide("".join(lines), "".join(changed), diff_of("".join(lines), "".join(changed)))
        page = sides.html([], ["why"])
        hidden = "".join(re.findall(r"<details>.*?</details>", page, re.S))
        self.assertEqual(page.count("<summary>"), 2)
        self.assertIn(f"<summary>{20 - CONTEXT} unchanged lines</summary>", page)
        self.assertIn("line 0;", text_of(hidden))
        self.assertNotIn("line 19;", text_of(hidden))
        self.assertNotIn("another", hidden)
        self.assertEqual(sides.changes(), [([], [20], True)])
        self.assertEqual(page.count('<div class="why">why</div>'), 1)

    def test_versions_of_a_line_stand_beside_each_other(self):
        old, new = (tokens_by_line(code) for code in ("int a = f(x, y);\nfoo();\n", "bar(1, 2);\nint a = f(x, z);\n"))
        self.assertEqual(pair([0, 1], [0, 1], old, new), [(None, 0), (0, 1), (1, None)])

    def test_marks_are_words(self):
        old, new = (tokens_by_line(code)[0] for code in ("f(min(a, b));", "f(max(a, b) + 1);"))
        self.assertEqual(text_of(mark(new, old, "ins")), "f(max(a, b) + 1);")
        self.assertEqual(re.findall("<ins>(.*?)</ins>", mark(new, old, "ins"))[0], "max")
        self.assertEqual(re.findall("<del>(.*?)</del>", mark(old, new, "del")), ["min"])

    def test_a_diff_of_nothing_in_common(self):
        self.assertEqual(parse("--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n", 1), [("change", [0], [0])])


class KernelsTest(unittest.TestCase):
    CODE = """/// Adds.
template <class T>
__device__ T add(T a,
                 T b) {
    return a + b;
}

struct Sum {
    int a;
};

__global__ void __launch_bounds__(threads, 2) kernel(int n) {
}
"""

    def test_definitions(self):
        found = definitions(self.CODE)
        self.assertEqual([(d.name, d.doc, d.first) for d in found],
                         [("add", "Adds.", 0), ("Sum", "", 7), ("kernel", "", 11)])
        self.assertEqual(enclosing(found, 4).name, "add")
        self.assertEqual(enclosing(found, 8).name, "Sum")

    def test_an_outline_is_a_list(self):
        code = ("/// One thread copies, others multiply.\n/// - Producer: waits for `empty`.\n"
                "/// - Consumers: for each i < Tc\n///   S = Q K^T.\n/// A slot's life: both.\n"
                "__device__ void f(int n) {\n}\n")
        (outlined,) = definitions(code)
        self.assertEqual(comment_html(outlined.name, outlined.doc),
                         "<p><code>f</code>: One thread copies, others multiply.</p><ul><li>Producer: waits for "
                         "<code>empty</code>.</li><li>Consumers: for each i &lt; Tc S = Q K^T.</li></ul>"
                         "<p>A slot's life: both.</p>")

    def test_a_paragraph_goes_where_it_is_quoted_else_where_its_words_are(self):
        text = "The sum is wider:\n\n```diff\n-    int a;  // of two\n+    long wide_sum;\n```\n\nAnd `add` is gone.\n"
        tokens = Markdown(lambda target: target).parse(text)
        changes = [(["add(1, 2);"], ["x();"]), (["    int a;"], ["    long wide_sum;  // of many"])]
        belonging = explain(tokens, changes)
        self.assertEqual([[p[1].content for p in paragraphs] for paragraphs in belonging],
                         [["And `add` is gone."], ["The sum is wider:"]])


class LinksTest(unittest.TestCase):
    def check(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                (Path(folder) / name.replace("_", ".")).write_text(text, encoding="utf-8")
            return check_links(Path(folder))

    def test_links(self):
        self.assertEqual(self.check(a_html='<a href="b.html#x">', b_html='<p id="x"><a name="y"><a href="a.html">'), [])
        self.assertEqual(self.check(a_html='<a href="https://example.org/x"><a href="mailto:a@b">'), [])
        self.assertEqual(self.check(a_html='<a href="b.html">'), ["a.html: there is no b.html"])
        self.assertEqual(self.check(a_html='<img src="b.png">'), ["a.html: there is no b.png"])
        self.assertEqual(self.check(a_html='<source srcset="b.svg 2x">'), ["a.html: there is no b.svg"])
        self.assertEqual(self.check(a_html='<a href="#x">'), ["a.html: #x has no such anchor"])
        self.assertEqual(self.check(a_html='<a href="file:///etc">'), ["a.html: file:///etc leads out of the site"])
        self.assertEqual(self.check(a_html='<script src="https://x.org/y.js">'),
                         ["a.html: https://x.org/y.js is loaded from the network"])
        self.assertEqual(self.check(a_css="url(https://x.org/y.woff)"),
                         ["a.css: https://x.org/y.woff is loaded from the network"])
        self.assertEqual(self.check(a_js='x = ["b.html#x"]'), ["a.js: there is no b.html"])
        self.assertEqual(self.check(a_css="url('b.svg')"), ["a.css: there is no b.svg"])

    def test_where_links_of_the_repository_lead(self):
        pages = Pages()
        shared = next(path.relative_to(ROOT / "stages") for path in (ROOT / "stages").glob("*/*.cuh"))
        ring = shared.parent
        for source, target, page in (
                ("README.md", "stages/README.md", "stages.html"),
                ("README.md", "stages/", "stages.html"),
                ("stages/README.md", "10s_decoding.md", "stages_10s_decoding.html"),
                ("stages/README.md", "../README.md#commands", "about.html#about_commands"),
                ("stages/05_causal_skip/README.md", "kernel.cu",
                 "stages_05_causal_skip.html#stages_05_causal_skip_the-kernel"),
                ("README.md", f"stages/{shared}", f"stages_{ring}.html#stages_{ring}_the-kernel"),
                ("README.md", "stages/device.cuh", "device_8cuh.html"),
                ("README.md", "docs/results/", "docs_results.html"),
                ("README.md", "docs/results/h200.json", "docs/results/h200.json"),
                ("README.md", "LICENSE", "LICENSE.txt"),
                ("docs/site/front.md", "../../README.md", "about.html"),
                ("README.md", "docs/site/front.md", "index.html"),
                ("README.md", "https://example.org", "https://example.org")):
            self.assertEqual(pages.resolve(source, target), page)
        self.assertEqual(pages.problems, [])
        pages.resolve("README.md", "nowhere.md")
        pages.resolve("README.md", "../outside.md")
        self.assertEqual(pages.problems, ["README.md: there is no nowhere.md", "README.md: there is no ../outside.md"])


class LadderTest(unittest.TestCase):
    def test_a_parent_may_be_read_after_its_child(self):
        pages = Pages()
        child, parent = sorted(path.split("/")[1] for path in pages.by_path
                               if re.match(r"stages/0\d_.*/README.md", path))[:2]
        rows = [{"stage": child, "parent": parent, "change": "", "shows_in": ""},
                {"stage": parent, "parent": None, "change": "", "shows_in": ""}]
        properties = [{"stage": row["stage"], "part": 0, "experiment": False} for row in rows]
        ladder = Ladder.__new__(Ladder)
        ladder.pages, ladder.commands = pages, ["diff", "time"]
        ladder.ask_lab = lambda *_: {"stages": rows, "properties": properties}
        stages = ladder.load_stages()
        self.assertEqual((stages[child].parent, stages[parent].children), (stages[parent], [stages[child]]))
        self.assertEqual((stages[child].commands, stages[parent].commands), (["diff", "time"], ["time"]))

    def prepared(self, text):
        """The text as the site shows it, of a ladder of two stages."""
        stages = [SimpleNamespace(folder=f"{number}_{name}", number=number, title=f"{number} {name}", change=f"{name}!",
                                  page=Page(f"stages/{number}_{name}/README.md"), speedups=[])
                  for number, name in (("03", "slices"), ("04", "split"))]
        ladder = Ladder.__new__(Ladder)
        ladder.stages = {stage.folder: stage for stage in stages}
        ladder.explorer = lambda arguments: f"<iframe of {arguments}>"
        markdown = Markdown(lambda target: target)
        tokens = markdown.parse(text)
        ladder.prepare(tokens)
        return markdown.render(tokens)

    def test_a_drawing_of_stages_becomes_cards(self):
        page = self.prepared("    03 the slices      9 barriers\n     |\n     v\n    04 split           2 barriers\n")
        self.assertEqual(re.findall('class="moves">(.*?)<', page), ["9 barriers", "2 barriers"])
        self.assertEqual(re.findall('href="(.*?)"', page), ["stages_03_slices.html", "stages_04_split.html"])
        self.assertNotIn("<pre", page)
        for other in ("    04 split\n", "    03 slices\n    94 no stage\n"):
            self.assertIn("<pre", self.prepared(other))

    def test_the_explorer_stands_below_the_paragraph_that_names_it(self):
        page = self.prepared("Before.\n\nSee it: `./lab trace 3 4 --causal` writes it.\n\nBehind.\n")
        self.assertRegex(page, r"(?s)writes it\.</p>\s*<iframe of 3 4 --causal>\s*<p>Behind")
        self.assertNotIn("iframe", self.prepared("`./lab trace 3 4` is a command.\n"))

    def test_what_a_phone_has_no_room_for_is_marked(self):
        for columns, mark in ((3, 'class="table"'), (4, 'class="table many"')):
            self.assertIn(mark, self.prepared(f"{'| a ' * columns}|\n{'|---' * columns}|\n{'| 1 ' * columns}|\n"))


class NavigationTest(unittest.TestCase):
    def setUp(self):
        self.pages = Pages()
        for page in self.pages:
            heading = page.path.endswith(".md") and re.search("^# (.+)", read(page.path), re.M)
            page.title = heading[1] if heading else page.path
        lesson, other = (self.pages[f"stages/{folder}/README.md"] for folder in ("00_naive", "04_split_q"))
        lesson.title, other.title = "00 naive: three kernels", "04 split-Q: a warp owns its rows"
        path = "stages/00s_the_algorithm.md"
        self.pages[path].title = "The algorithm: 00 to 06"
        part = SimpleNamespace(page=self.pages[path], stages=[SimpleNamespace(page=page) for page in (lesson, other)])
        ladder = SimpleNamespace(parts={path: part}, by_path={lesson.path: 0, other.path: 0})
        with tempfile.TemporaryDirectory() as site:
            (Path(site) / "files.html").touch()
            self.groups = groups_of(self.pages, ladder, Path(site))

    def test_a_part_has_its_rungs_and_is_open_where_the_reader_is(self):
        shown = menu(self.groups, "stages_04_split_q.html")
        opened = re.findall(r"<details open>(.*?)</details>", shown, re.S)
        self.assertEqual(len(opened), 1)
        self.assertEqual([text_of(link) for link in re.findall(r"<a .*?</a>", opened[0])],
                         ["The algorithm 00 to 06", "00 naive", "04 split-Q"])
        self.assertEqual(re.findall(r'href="([^"]*)" aria-current="page"', shown), ["stages_04_split_q.html"])
        self.assertRegex(menu(self.groups, "stages_00s_the_algorithm.html"), '<details open><summary><a href="stages_00s')

    def test_every_page_is_in_the_menu_once(self):
        links = re.findall(r'href="([^"]*)"', menu(self.groups, "index.html"))
        self.assertEqual(links[0], "index.html")
        self.assertEqual(sorted(links), sorted({*(page.file for page in self.pages), "files.html"}))

    def test_names_in_a_group_differ(self):
        for group in (item for _, items in self.groups for item in items if isinstance(item, Group)):
            titles = [link.title for link in group.links]
            self.assertEqual(sorted(titles), sorted(set(titles)))
        self.assertIn("Lab 04 split-Q", menu(self.groups, "index.html"))

    def test_a_page_of_doxygen_belongs_to_the_reference(self):
        opened = re.findall(r"<details open>(.*?)</details>", menu(self.groups, "hopper_8cuh.html"), re.S)
        self.assertEqual([text_of(group).split() for group in opened], [["Reference", "Files"]])


class SearchTest(unittest.TestCase):
    def test_text_is_what_a_reader_sees(self):
        body = '<nav class="steps">x</nav><p>split-<b>Q</b>,\n<code>a &lt; b</code></p><p>\\(m\\)</p>'
        self.assertEqual(text_in(body), "split-Q, a < b m")

    def test_formulas_are_text_without_tex(self):
        self.assertEqual(text_in(r"<p>\(\frac{m_i}{2} \cdot \alpha &lt; \mathrm{max}\) and \[O = P V\]</p>"),
                         "m_i/2 · α < max and O = P V")
        pages = Pages()
        lessons = [page for page in pages if page.path.startswith("stages/")]
        for page in pages:
            if page.path.endswith(".md") and "\\sum" in read(page.path):
                pages.add_markdown(page, read(page.path))
        entries = page_entries(pages, lessons)
        texts = " ".join(text for *_, sections, _ in entries for _, _, text in sections)
        self.assertEqual(set(re.findall(r"\\(?:frac|cdot|sum|alpha|mathrm|le|infty)\b", texts)), set())
        self.assertEqual(ALIASES.keys() - pages.by_path.keys(), set())
        kinds = [kind for kind, *_ in entries]
        self.assertEqual((kinds[-1], kinds.count("changelog")), ("changelog", 1))

    def test_lessons_come_first_and_code_is_no_text(self):
        sources = {"README.md": "# Start\n", "docs/glossary.md": "# Glossary\n\n| a |\n|---|\n| row |\n",
                   "stages/03_b/README.md": "# 03\n\n## Why\n\nsoftmax\n\n| a |\n|---|\n| row |\n",
                   "stages/20s_a.md": "# 20s\n"}
        pages = Pages()
        pages.by_path = {path: Page(path) for path in sources}
        for path, text in sources.items():
            pages.add_markdown(pages[path], text)
        lessons = [pages["stages/03_b/README.md"], pages["stages/20s_a.md"]]
        lessons[0].sections.append(lessons[0].new_section(2, "The kernel", "code"))
        entries = page_entries(pages, lessons)
        self.assertEqual([entry[:3] for entry in entries],
                         [["lesson", "stages_03_b.html", "03"], ["lesson", "stages_20s_a.html", "20s"],
                          ["glossary", "docs_glossary.html", "Glossary"], ["page", "about.html", "Start"]])
        self.assertEqual(entries[0][3], [["", "", ""], ["stages_03_b_why", "Why", "softmax"]])
        self.assertEqual(entries[2][3], [["", "", "a row"]])

    def test_symbols(self):
        with tempfile.TemporaryDirectory() as folder:
            tags = Path(folder) / "tags"
            tags.write_text("""<tagfile><compound kind="file"><name>a.h</name><filename>a_8h.html</filename>
                <member kind="function"><name>f</name><anchorfile>a_8h</anchorfile><anchor>x1</anchor></member>
                </compound><compound kind="page"><name>p</name><filename>p</filename></compound></tagfile>""")
            self.assertEqual(symbol_entries(tags),
                             [["a.h", "file", "a_8h.html"], ["f", "function of a.h", "a_8h.html#x1"]])


class MarkdownTest(unittest.TestCase):
    def render(self, text):
        markdown = Markdown(lambda target: f"to/{target}")
        return markdown.render(markdown.parse(text))

    def test_anchors_are_github_s(self):
        taken = set()
        self.assertEqual([slug(text, taken) for text in ("The change", "By hand: N = 8, d = 4", "The change")],
                         ["the-change", "by-hand-n--8-d--4", "the-change-1"])

    def test_links_and_pictures(self):
        self.assertIn('<a href="to/x.md">', self.render("[x](x.md)"))
        self.assertIn('srcset="to/x.svg"', self.render('<picture><source srcset="x.svg"><img src="y.svg"></picture>'))

    def test_comments_are_dropped_and_tables_kept(self):
        page = self.render("<!-- generated: x -->\n| a | b |\n|---|---:|\n| 1 | 2 |\n<!-- end -->\n")
        self.assertNotIn("generated", page)
        self.assertIn("<td", page)

    def test_measured_numbers_in_prose_end_no_paragraph(self):
        page = self.render('It is\n<data value="over 04,\ncausal">2.00x</data> as **fast**.\n')
        self.assertIn('<data value="over 04,\ncausal">2.00x</data> as <strong>fast</strong>', page)
        self.assertEqual(page.count("<p>"), 1)

    def test_names_of_stages_break_between_words_in_tables_alone(self):
        page = self.render("04_split_q\n\n| a |\n|---|\n| [`04_split_q`](stages/04_split_q) |\n")
        self.assertIn("<p>04_split_q</p>", page)
        self.assertIn('href="to/stages/04_split_q"', page)
        self.assertIn("<code>04_<wbr>split_<wbr>q</code>", page)
        self.assertEqual(text_in(page), "04_split_q a 04_split_q")

    def test_no_line_ends_before_a_unit_or_inside_a_library_s_name_in_tables(self):
        page = self.render("721 TFLOP/s\n\n| a | b |\n|---|---|\n| 721 TFLOP/s | 1.04x (FlashAttention-3) |\n")
        self.assertIn("<p>721 TFLOP/s</p>", page)
        self.assertEqual(re.findall('<span class="whole">(.*?)</span>', page), ["721 TFLOP/s", "FlashAttention-3"])
        self.assertEqual(text_in(page), "721 TFLOP/s a b 721 TFLOP/s 1.04x (FlashAttention-3)")

    def test_no_line_ends_inside_an_option(self):
        self.assertIn('<code class="whole">--sms N</code> and <code>a &lt; b - 1</code>',
                      self.render("`--sms N` and `a < b - 1`"))

    def test_formulas_are_left_to_katex(self):
        self.assertIn(r"\(m_i &lt; 1\)", self.render("$m_i < 1$"))
        self.assertIn("costs $5 and $6", self.render("costs $5 and $6"))
        self.assertIn(r"<td>\(4 n\) at d = 64</td>", self.render("| a |\n|---|\n| $4 n$ at d = 64 |"))  # ends in a digit


class NotebookTest(unittest.TestCase):
    def test_pictures_are_those_of_an_execution_of_the_same_notebook(self):
        path = next(path for path in Pages().by_path if path.startswith("notebooks/0"))
        notebook = json.loads((ROOT / path).read_text(encoding="utf-8"))
        self.assertNotIn("image/png", json.dumps(notebook))
        plot = {"output_type": "display_data", "data": {"image/png": base64.b64encode(b"plot").decode()}}
        code = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
        code["outputs"] = [plot]
        for source, pictures in ((code["source"], [b"plot"]), (["another"], [])):
            with tempfile.TemporaryDirectory() as folder:
                code["source"] = source
                executed = Path(folder, "executed.ipynb")
                for written in (False, True):
                    pages = Pages()
                    pages.add_notebook(pages[path], executed)
                    found = [content for name, content in pages.files.items() if name.endswith(".png")]
                    self.assertEqual(found, pictures if written else [])
                    executed.write_text(json.dumps(notebook), encoding="utf-8")


class SlidesTest(unittest.TestCase):
    def slides(self):
        pages = Pages()
        return pages, Slides(pages, SimpleNamespace(prepare=lambda tokens: None))

    def test_decks_show_what_they_ask_for(self):
        pages, slides = self.slides()
        self.assertGreaterEqual(len(pages.decks), 7)
        for deck in pages.decks:
            with self.subTest(deck=deck):
                page = slides.page(deck)
                shown = re.findall(r'<section id="\d+">(.*?)</section>', page, re.S)
                self.assertTrue(10 <= len(shown) <= 18, len(shown))
                self.assertNotIn("<!-- block", page)
                for slide in shown:
                    self.assertRegex(slide, r"^\s*<h[12]>")
                    self.assertEqual(slide.count("<details>"), 1, slide[:80])
                    words = re.sub(r"(?s)<(details|table|pre)\b.*?</\1>", "", slide)
                    self.assertLessEqual(len(text_of(words).split()), 100, slide[:80])
        self.assertEqual(pages.problems, [])

    def test_a_deck_is_a_page_of_its_own(self):
        pages, _ = self.slides()
        self.assertEqual(pages.resolve("docs/course/README.md", "slides/measuring.md"),
                         "docs_course_slides_measuring.html")
        self.assertNotIn("docs/course/slides/measuring.md", pages.by_path)

    def test_rows_of_a_block(self):
        block = "Recorded:\n\n| problem | ms |\n|---|---:|\n| train 2k | 1 |\n| long 16k | 2 |\n\nBold.\n"
        shown, missing = rows_of(block, ["long 16k", "none"])
        self.assertEqual(shown, block.replace("| train 2k | 1 |\n", ""))
        self.assertEqual(missing, ["none"])
        folded = block.replace("| long 16k", "\n<details><summary>Others</summary>\n\n| problem | ms |\n|---|---:|\n| long 16k"
                               ).replace("\n\nBold", "\n\n</details>\n\nBold")
        self.assertEqual(rows_of(folded, ["long 16k", "none"]), (shown, missing))


class FiguresTest(unittest.TestCase):
    FOLDER = ROOT / "docs/figures"

    def test_they_are_what_the_script_draws(self):
        drawn = dict(runpy.run_path(str(self.FOLDER / "draw.py"))["files"]())
        found = {path.name: path.read_text(encoding="utf-8") for path in self.FOLDER.glob("*.svg")}
        self.assertEqual(sorted(found), sorted(drawn))
        for name, text in drawn.items():
            self.assertTrue(found[name] == text, f"docs/figures/{name} is out of date: run docs/figures/draw.py")

    def test_each_is_shown_and_in_words(self):
        shown = re.findall(r'<img width="\d+" alt="[^"]+" src="[./]*(?:docs/)?figures/([\w-]+).svg">',
                           "".join(page.read_text(encoding="utf-8") for folder in ("docs", "stages")
                                   for page in (ROOT / folder).rglob("*.md")))
        self.assertEqual(sorted(set(shown)), sorted(path.stem for path in self.FOLDER.glob("*.svg")))

    def test_no_light_colour_stays_on_a_dark_page(self):
        for folder in ("docs/figures", "docs/plots"):
            for path in (ROOT / folder).glob("*.svg"):
                style, body = path.read_text(encoding="utf-8").partition("}</style>")[::2]
                used = {(name, color) for name, color in re.findall(r'(fill|stroke)(?:="|: )(#[0-9a-f]{6})', body)}
                dark = {(name, color) for color, name in re.findall(r'(#[0-9a-f]{6})"\] { (fill|stroke): #', style)}
                self.assertEqual(used - dark, set(), path)


if __name__ == "__main__":
    unittest.main()
