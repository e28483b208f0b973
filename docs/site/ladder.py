"""The ladder: the stages as a map, the parts, and a page for each stage with its lesson, its diff and its kernel."""

import html
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from markdown_it.token import Token

from kernels import comment_html, definitions, enclosing, explain
from markup import span, tokens_by_line
from pages import ROOT, Failure, read
from side_by_side import SideBySide

sys.path.append(str(ROOT / "docs/publish"))
from whole_kernel import kernel_text  # noqa: E402

RESULTS = "docs/results"
PLOTS = "docs/plots"
ASKED = re.compile("<!-- site: (ladder|results|one mma|banks) -->")


class Ladder:
    """`lab` is the program's path: it knows the stages and their diffs."""

    def __init__(self, lab, pages):
        self.lab, self.pages = lab, pages
        shown = subprocess.run([lab, "--help"], capture_output=True, text=True, check=True).stdout
        # Those that show something of one stage.
        known = re.findall(r"^  (\w+) ", shown, re.M)
        self.commands = [c for c in ("diff", "count", "time", "profile", "trace") if c in known]
        self.stages = self.load_stages()
        self.by_path = {stage.path: stage for stage in self.stages.values()}
        self.parts = self.find_parts()
        # As a reader climbs: a part's page, and then its stages.
        self.order = [page for part in self.parts.values() for page in (part.page, *(s.page for s in part.stages))]
        self.instructions = self.find_instructions()

    def ask_lab(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "answer.json"
            done = subprocess.run([self.lab, *arguments, "--json", answer], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Failure(f"lab {' '.join(arguments)} failed: {done.stderr.strip()}")
            return json.loads(answer.read_text(encoding="utf-8"))

    def load_stages(self):
        """The stages by folder: their places in the ladder, and what is recorded of each."""
        stages = {}
        listed = self.ask_lab("list")
        properties = {row["stage"]: row for row in listed["properties"]}
        self.part_of = {folder: f"{row['part']:02}" for folder, row in properties.items()}
        for row in listed["stages"]:
            folder = row["stage"]
            stage = SimpleNamespace(folder=folder, number=folder[:2], parent=None, children=[], change=row["change"],
                                    shows_in=row["shows_in"], path=f"stages/{folder}/README.md")
            if stage.path not in self.pages.by_path:
                raise Failure(f"{folder} has no lesson: there is no {stage.path}")
            stage.page = self.pages[stage.path]
            stage.code = kernel_text(ROOT / f"stages/{folder}/kernel.cu")
            lesson = read(stage.path)
            stage.title = re.search(r"^# ([^:\n]*)", lesson, re.M)[1]
            # `lab tables` has put the newest run into the lesson, bold where the change should show.
            measured = re.search("<!-- generated: measured -->.*?Recorded on ([^,\n]*)(.*?)<!-- end -->", lesson, re.S)
            stage.gpu, table = measured.groups() if measured else ("", "")
            stage.speedups = [float(value) for value in re.findall(r"\*\*([\d.]+)x\*\*", table)]
            stage.commands = [c for c in self.commands if row["parent"] or c != "diff"]
            stages[folder] = stage
        for row in listed["stages"]:  # a parent may be read after its child, in a later part
            stage, stage.parent = stages[row["stage"]], stages.get(row["parent"])
            if stage.parent and not properties[stage.folder]["experiment"]:
                stage.parent.children.append(stage)
        return stages

    def find_parts(self):
        """The parts by the path of their page, with their stages."""
        parts = {path: SimpleNamespace(page=page, stages=[]) for path, page in sorted(self.pages.by_path.items())
                 if re.fullmatch(r"stages/\d\ds_\w+\.md", path)}
        firsts = {path[7:9]: part for path, part in parts.items()}
        for stage in self.stages.values():
            first = self.part_of[stage.folder]
            if first not in firsts:
                raise Failure(f"{stage.folder} belongs to no part: there is no stages/{first}s_....md")
            firsts[first].stages.append(stage)
        return parts

    @staticmethod
    def find_instructions():
        """The CUDA layer's functions by name: the page of their header, and each's definition."""
        found = {}
        for header in ("device", "hopper"):
            code = read(f"stages/{header}.cuh").replace(" LADDER_SITE)", ")").replace("LADDER_ONLY_SITE", "")
            code = code.replace("__host__ __device__", "__device__")
            found |= {d.name: (f"{header}_8cuh_source.html", d) for d in definitions(code) if d.doc}
        return found

    # Links to stages

    @staticmethod
    def link(stage, text=None):
        return f'<a href="{stage.page.file}">{text or stage.title}</a>'

    def prepare(self, tokens):
        """Cells of a table that name a stage become links, and a drawing of stages below each other becomes cards. The
        map, and the table of results, stand where a page asks for them; the schedule explorer stands below a paragraph
        that says how to make it."""
        by_number = {stage.number: stage for stage in self.stages.values()}
        for n in reversed(range(len(tokens))):
            token = tokens[n]
            if token.type == "inline" and (shown := re.match("See it: `./lab trace ([^`]+)`", token.content)):
                tokens.insert(n + 2, Token("site_html", "", 0, content=self.explorer(shown[1])))
        for n, token in enumerate(tokens):
            if token.type == "inline" and token.content in self.stages and tokens[n - 1].type == "td_open":
                token.children[0].type = "site_html"
                token.children[0].content = self.link(self.stages[token.content], token.content)
            elif token.type == "code_block":
                drawn = re.findall(r"^(\d\d) .*?(?:  +(.*))?$", token.content, re.M)
                if len(drawn) > 1 and all(number in by_number for number, _ in drawn):
                    cards = "".join(self.card(by_number[number], moves) for number, moves in drawn)
                    token.type, token.content = "site_html", f'<div class="ladder"><ol>{cards}</ol></div>\n'
            elif token.type == "html_block" and (asked := ASKED.search(token.content)):
                made = {"ladder": self.overview, "results": self.results_table,
                        "one mma": lambda: self.one_mma("fragments"), "banks": lambda: self.one_mma("banks")}[asked[1]]
                token.type, token.content = "site_html", made()

    # What is made where a page asks for it

    def overview(self):
        """The stages as cards: a column up to the fork, and one for each branch behind it; then the same for stages that
        start anew."""
        columns = "".join(self.column(stage) for stage in self.stages.values() if stage.parent is None)
        gpus = " and ".join(dict.fromkeys(stage.gpu for stage in self.stages.values() if stage.speedups))
        caption = f"Colour marks the speedup over the parent, recorded on {gpus}, where it should show."
        return f'<div class="ladder">{columns}<p>{caption}</p></div>\n'

    def column(self, stage):
        cards = [self.card(stage)]
        while len(stage.children) == 1:
            stage = stage.children[0]
            cards.append(self.card(stage))
        branches = "".join(map(self.column, stage.children))
        below = f'<div class="branches">{branches}</div>' if branches else ""
        return f'<div class="column"><ol>{"".join(cards)}</ol>{below}</div>'

    def card(self, stage, moves=""):
        """A stage, its change, and what that moves in words of a page's own."""
        moves = f'<span class="moves">{html.escape(moves)}</span>' if moves else ""
        text = (f'<span class="number">{stage.number}</span> <span class="words"><b>{html.escape(stage.title[3:])}</b> '
                f'<span>{html.escape(stage.change)}</span>{moves}</span> {self.badge(stage)}')
        return f'<li class="card">{self.link(stage, text)}</li>'

    def explorer(self, arguments):
        """The page of `lab trace` in a frame; nothing where there is no CPU back-end to record with."""
        name = f"trace{re.sub('[^0-9A-Za-z]+', '_', ' ' + arguments)}.html"
        if name not in self.pages.files:  # slides show what lessons do
            with tempfile.TemporaryDirectory() as folder:
                page = Path(folder) / "page.html"
                done = subprocess.run([self.lab, "trace", *arguments.split(), "--html", page], capture_output=True,
                                      text=True, check=False)
                if done.returncode == 3:
                    return ""
                if done.returncode != 0:
                    raise Failure(f"lab trace {arguments} failed: {done.stderr.strip()}")
                self.pages.files[name] = page.read_bytes()
        return (f'<iframe class="explorer wide" src="{name}" loading="lazy" title="The schedule explorer: lab trace '
                f'{html.escape(arguments)}"></iframe>\n')

    def one_mma(self, figure):
        """A figure that its script draws, in the place of the still picture after it."""
        self.pages.files["one_mma.js"] = read("docs/site/one_mma.js").encode()
        return (f'<div class="one-mma wide" data-figure="{figure}"></div>\n'
                + ('<script defer src="one_mma.js"></script>\n' if figure == "fragments" else ""))

    def badge(self, stage):
        """The recorded speedups where the change should show."""
        if not stage.speedups:
            return ""
        low, high = f"{min(stage.speedups):.2f}x", f"{max(stage.speedups):.2f}x"
        kind = "faster" if high > "1.00x" else "slower" if high < "1.00x" else ""
        return (f'<span class="badge {kind}" title="speedup over {stage.parent.title}, recorded on {stage.gpu}">'
                f'{stage.shows_in} {low if low == high else f"{low} to {high}"}</span>')

    def results_table(self):
        """What the recorded files say of themselves."""
        rows = []
        for path in sorted((ROOT / RESULTS).glob("*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            hardware, measured = record.get("hardware", record), record.get("rows", [])
            regimes = dict.fromkeys(row["regime"] for row in measured if "regime" in row)
            link = self.pages.copy(f"{RESULTS}/{path.name}")
            cells = [f'<a href="{link}">{path.name}</a>', record["kind"], ", ".join(regimes),
                     str(len({row["folder"] for row in measured if "folder" in row} or record.get("stages", []))),
                     hardware.get("gpu") or record["device"], hardware.get("driver", ""), record["date"][:10], f'<code>{record["commit"][:7]}</code>']
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        head = "".join(f"<th>{title}</th>" for title in
                       ("file", "kind", "regimes", "stages", "GPU", "driver", "date", "commit"))
        return ('<p>What each file says of itself:</p>\n<div class="table many"><table class="markdownTable">'
                f'<thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>\n' + self.plots())

    def plots(self):
        """Every plot, with the words that some page has for it."""
        words = {}
        for page in self.pages:
            if page.path.endswith(".md"):
                words.update((src, alt) for alt, src in re.findall(r'alt="([^"]*)"\s+src="[^"]*?(plots/[^"]*)"',
                                                                   read(page.path)))
        files = [self.pages.copy(f"{PLOTS}/{file.name}") for file in sorted((ROOT / PLOTS).glob("*.svg"))]
        shown = [f'<img alt="{words.get(file.removeprefix("docs/"), file)}" src="{file}">' for file in files]
        return f'<p>Drawn from them:</p>\n<div class="plots">{"".join(shown)}</div>\n' if shown else ""

    # A part's page, and a stage's

    def add_part(self, part):
        self.pages.add_markdown(part.page, read(part.page.path), self.prepare)
        part.page.top.body = self.steps(part.page) + part.page.top.body

    def add_stage(self, stage):
        page = stage.page
        markdown = self.pages.add_markdown(page, read(stage.path), self.prepare)
        changed = None
        marked = set()
        if stage.parent:
            place = next((n for n, s in enumerate(page.sections) if s.heading == "The change"), None)
            if place is None:
                self.pages.problems.append(f'{stage.path}: there is no section "The change"')
                return
            sections = page.sections  # with what is below "The change"
            end = next((n for n in range(place + 1, len(sections)) if sections[n].level <= sections[place].level),
                       len(sections))
            tokens = [token for section in sections[place:end] for token in section.tokens]
            answer = self.ask_lab("diff", stage.number)
            changed = answer["changed_lines"]
            sides = SideBySide(stage.parent.code, stage.code, answer["diff"])
            marked = {line for _, new, _ in sides.changes() for line in new}
            sections.insert(end, page.new_section(2, "The diff", self.diff(stage, sides, tokens, markdown)))
        page.top.body = self.steps(page) + self.family(stage, changed) + page.top.body
        page.sections.append(page.new_section(2, "The kernel", self.listing(stage.code, marked) + self.steps(page)))

    def title(self, page):
        """A page's name in links: what its title says before the colon."""
        return re.match("# ([^:\n]*)", read(page.path))[1]

    def steps(self, page):
        n = self.order.index(page)
        before, after = (self.order[n - 1 : n] or [None])[0], (self.order[n + 1 : n + 2] or [None])[0]
        before = f'<a href="{before.file}">&larr; {self.title(before)}</a>' if before else ""
        after = f'<a href="{after.file}">{self.title(after)} &rarr;</a>' if after else ""
        ladder = self.pages["stages/README.md"].file
        return (f'<nav class="steps"><span>{before}</span><span><a href="{ladder}">The ladder</a></span>'
                f'<span>{after}</span></nav>\n')

    def family(self, stage, changed):
        """Where a stage stands, and how to run it."""
        facts = {}
        if stage.parent:
            facts["parent"] = self.link(stage.parent)
        if stage.children:
            links = ", ".join(map(self.link, stage.children))
            facts["children" if len(stage.children) > 1 else "child"] = f"<span>{links}</span>"
        if changed is not None:
            facts["diff"] = f'<a href="#{stage.page.anchor("the-diff")}">{changed} lines</a> added or changed'
        facts["shows in"] = self.badge(stage) or stage.shows_in
        if (ROOT / stage.path).with_name("exercise.md").exists():
            facts["try it first"] = f"<code>./lab start {int(stage.number)}</code> <code>./lab check</code>"
        facts["then" if "try it first" in facts else "try it"] = " ".join(
            f"<code>./lab {command} {int(stage.number)}</code>" for command in stage.commands)
        rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
        return f'<dl class="family">{rows}</dl>\n'

    def diff(self, stage, sides, tokens, markdown):
        """The diff with what stands above each change: where it is, and what the lesson's `tokens` say of it."""
        old_lines, new_lines = stage.parent.code.splitlines(), stage.code.splitlines()
        found = definitions(stage.code)
        changes = sides.changes()
        lessons = explain(tokens, [([old_lines[n] for n in c[0]], [new_lines[n] for n in c[1]]) for c in changes])
        heads, described, last = [], set(), None
        for (_, new, first), paragraphs in zip(changes, lessons):
            inside = list(filter(None, dict.fromkeys(enclosing(found, line) for line in new)))
            # A comment that is new itself stands in the diff.
            strange = [d for d in inside if d.doc and d not in described and d.first not in new]
            head = "".join(comment_html(d.name, d.doc) for d in strange)
            known = [d for d in inside if d not in strange]
            if known and (first or known != [last]):
                head = f"<p>In {', '.join(f'<code>{d.name}</code>' for d in known)}</p>" + head
            described.update(inside)
            last = inside[-1] if inside else None
            lesson = "".join(map(markdown.render, paragraphs))
            heads.append(head + (f'<div class="lesson">{lesson}</div>' if lesson else ""))

        parent = stage.parent.page
        titles = (f'<div class="titles"><a href="{parent.file}#{parent.anchor("the-kernel")}">{stage.parent.title}</a>'
                  f'<a href="#{stage.page.anchor("the-kernel")}">{stage.title}</a></div>')
        return f'<div class="diff">\n{titles}\n{sides.html(found, heads)}</div>\n'

    def listing(self, code, marked):
        """A kernel with line numbers; changed lines are marked, instructions explain themselves."""
        names = "|".join(self.instructions)
        rows = []
        for n, tokens in enumerate(tokens_by_line(code)):
            line = re.sub(rf"(?<!-)\b({names})\b(?=(</span>)?(\(|&lt;\w+&gt;\())", self.instruction,
                          "".join(span(*token) for token in tokens))
            kind = ' class="changed"' if n in marked else ""
            rows.append(f'<div{kind} id="L{n + 1}"><a class="no" href="#L{n + 1}">{n + 1}</a>'
                        f'<code>{line or " "}</code></div>')
        return f'<div class="listing wide">{"".join(rows)}</div>\n'

    def instruction(self, match):
        page, definition = self.instructions[match[1]]
        return (f'<a href="{page}#l{definition.first + 1:05}" title="{html.escape(" ".join(definition.doc.split()))}">'
                f'{match[1]}</a>')
