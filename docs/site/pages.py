"""The site's pages: the repository's Markdown files and notebooks, their sections, and where their links lead."""

import base64
import html
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from markup import Markdown, highlight, plain, slug

ROOT = Path(__file__).resolve().parents[2]
FRONT = "docs/site/front.md"  # the first page of the site
REFERENCE = ("course", "harness", "reference", "simt", "stages")  # folders whose headers Doxygen reads
LEFT_OUT = set(re.search(r"^EXCLUDE +=(.*)", (ROOT / "docs/Doxyfile").read_text(), re.M)[1].split())  # but not these


class Failure(Exception):
    """What keeps the site from being built, in one line."""


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def find_sources():
    """Every Markdown file and notebook of the repository, but for the exercises: their hints come one at a time. What
    `lab start` and `lab zoo` made here is a student's, and no page."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders
                      if not f.startswith((".", "build", "zoo-")) and not Path(folder, f, "TASK.md").exists()]
        found += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files
                  if f.endswith((".md", ".ipynb")) and f != "exercise.md" and not Path(folder, f).is_symlink()]
    return sorted(found)


def is_deck(path):
    """A Markdown file of slides, which is a page of its own: slides.py makes it."""
    return path.startswith("docs/course/slides/") and path.endswith(".md") and not path.endswith("README.md")


def label_of(path):
    """The name of a page's file: index, about, stages, stages_05_causal_skip, docs_glossary."""
    if path == FRONT:
        return "index"
    return re.sub(r"[^\w]+", "_", re.sub(r"/?README\.md$|\.\w+$", "", path)) or "about"


@dataclass
class Section:
    level: int  # 0 for what stands above the first heading
    heading: str = ""
    anchor: str = ""
    body: str = ""  # HTML
    tokens: list = field(default_factory=list)  # what the body was made of


class Page:
    def __init__(self, path):
        self.path, self.label, self.title = path, label_of(path), ""
        self.sections = [Section(0)]
        self.anchors = set()

    @property
    def file(self):
        return f"{self.label}.html"

    @property
    def top(self):
        return self.sections[0]

    def anchor(self, name):
        """Doxygen wants an anchor's name to be unique in the whole site."""
        return f"{self.label}_{name}"

    def new_section(self, level, heading, body="", tokens=()):
        return Section(level, heading, self.anchor(slug(heading, self.anchors)), body, list(tokens))


class Pages:
    """All pages by the path of their source. `problems` gathers what is wrong with them."""

    def __init__(self):
        sources = find_sources()
        self.by_path = {path: Page(path) for path in sources if not is_deck(path)}
        self.decks = {path: f"{label_of(path)}.html" for path in sources if is_deck(path)}
        self.files = {}  # other files that pages need: name in the site -> content
        self.problems = []

    def __iter__(self):
        return iter(self.by_path.values())

    def __getitem__(self, path):
        return self.by_path[path]

    # Links

    def resolve(self, path, target):
        """Where a link from one of the repository's files leads in the site."""
        if re.match(r"[a-z]+:", target):
            return target
        name, _, anchor = target.partition("#")
        linked = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        full = ROOT / linked
        if linked.startswith("..") or not full.exists():
            self.problems.append(f"{path}: there is no {target}")
            return ""
        if full.is_dir():  # a folder's page, else Doxygen's list of files
            linked = next((p for p in (f"{linked}/README.md", f"{linked}.md", "README.md") if p in self.by_path
                           and (p != "README.md" or linked == ".")), None)
            if linked is None:
                return "files.html"
        if linked in self.decks:
            return self.decks[linked]
        if linked in self.by_path:
            page = self[linked]
            return page.file + (f"#{page.anchor(anchor)}" if anchor else "")
        if re.match(r"stages/\d\d_\w+/\w+\.cuh?$", linked):
            page = self[f"{os.path.dirname(linked)}/README.md"]
            return f"{page.file}#{page.anchor('the-kernel')}"
        header = linked.split("/")[0] in REFERENCE and linked.endswith((".h", ".cuh"))
        if header and linked not in LEFT_OUT:
            name = os.path.basename(linked)
            if sum(1 for folder in REFERENCE for _ in (ROOT / folder).rglob(name)) > 1:  # Doxygen tells them apart
                name = linked
            return name.replace("_", "__").replace("/", "_2").replace(".", "_8") + ".html"
        return self.copy(linked)

    def copy(self, path):
        """Takes a file of the repository into the site, under a name at which a browser shows text."""
        name = path if path.endswith((".json", ".txt", ".svg", ".png", ".html")) else f"{path}.txt"
        self.files[name] = (ROOT / path).read_bytes()
        return name

    # Markdown

    def add_markdown(self, page, text, prepare=None):
        """Adds a text's sections to a page. The first heading is the page's title. `prepare` may change the tokens."""
        markdown = Markdown(lambda target: self.resolve(page.path, target))
        tokens = markdown.parse(text)
        if prepare:
            prepare(tokens)
        starts = [n for n, token in enumerate(tokens) if token.type == "heading_open"] + [len(tokens)]
        page.sections[-1].body += markdown.render(tokens[:starts[0]])
        for start, end in zip(starts, starts[1:]):
            heading, rest = tokens[start + 1], tokens[start + 3:end]
            body = markdown.render(rest)
            if not page.title:
                page.title = plain(heading)
                page.top.body += body
            else:
                level = max(2, int(tokens[start].tag[1]))
                page.sections.append(page.new_section(level, plain(heading), body, rest))
        return markdown

    def add_notebook(self, page, executed):
        """Adds a notebook with the text that is committed with it, or if the file `executed` is the same notebook, with
        what that has: pictures, too."""
        images = 0
        cells = json.loads(read(page.path))["cells"]
        if executed.exists():
            shown = json.loads(executed.read_text(encoding="utf-8"))["cells"]
            if [cell["source"] for cell in shown] == [cell["source"] for cell in cells]:
                cells = shown
        for cell in cells:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                self.add_markdown(page, source)
                continue
            body = highlight(source, "python")
            for output in cell["outputs"]:
                if output["output_type"] == "stream":
                    body += f'<pre class="fragment output">{html.escape("".join(output["text"]))}</pre>\n'
                elif "image/png" in output.get("data", {}):
                    images += 1
                    name = f"{page.label}_{images}.png"
                    self.files[name] = base64.b64decode(output["data"]["image/png"])
                    body += f'<p><img class="plot" src="{name}" alt="the plot of the code above"></p>\n'
            page.sections[-1].body += body
        link = f'<p>To run it: <a href="{self.copy(page.path)}">{page.path}</a>.</p>\n'
        page.top.body = link + page.top.body
