#!/usr/bin/env python3
"""Builds the site: the repository's Markdown, kernels, diffs and notebooks as pages in a frame that Doxygen makes.

Usage: build.py LAB OUT [--open]. `lab docs` runs it, and installs what it needs. LAB is the program `lab`, which knows
the stages and their diffs. OUT becomes the site. Exit codes: 0 ok; 1 Doxygen warned, or a link leads nowhere; 2 OUT is
no place for a site; 3 a package is missing.
"""

import html
import re
import shutil
import subprocess
import sys
import tempfile
import webbrowser
from pathlib import Path

try:
    from check_links import check_links
    from ladder import Ladder
    from navigation import PLACE, groups_of, menu
    from pages import FRONT, REFERENCE, ROOT, Failure, Pages, Section, read
    from search import search_index
    from slides import Slides
except ModuleNotFoundError as missing:
    print(f"lab docs: {sys.executable} has no {missing.name}; on Debian and Ubuntu: "
          "apt-get install python3-markdown-it python3-mdit-py-plugins python3-pygments", file=sys.stderr)
    sys.exit(3)

SITE = ROOT / "docs/site"
AWESOME = Path("/usr/share/doxygen-awesome-css")
KATEX = Path("/usr/share/javascript/katex")
MARKER = ".flash-ladder-site"  # tells a site, which may be replaced, from a folder of somebody's own

HEAD = """<link rel="stylesheet" href="$relpath^katex/katex.min.css">
<script defer src="$relpath^katex/katex.min.js"></script>
<script defer src="$relpath^katex/contrib/auto-render.js"></script>
<script>
addEventListener("DOMContentLoaded", () => renderMathInElement(document.querySelector("div.contents"), {
  delimiters: [{left: "\\\\(", right: "\\\\)", display: false}, {left: "\\\\[", right: "\\\\]", display: true}]}));
// Where the menu is longer than the window it shows the page that it is on.
addEventListener("DOMContentLoaded", () =>
  document.querySelector("#menu [aria-current]")?.scrollIntoView({block: "nearest"}));
</script>
<script defer src="$relpath^search.js"></script>
"""

# In the place of Doxygen's own search, which knows symbols only.
SEARCH = """<div id="search-place"><input id="site-search" type="search" placeholder="Search" autocomplete="off"
aria-label="Search the site" aria-controls="site-results" aria-expanded="false"
data-index="$relpath^search_index.js"></div>
"""


def say(words):
    print(f"lab docs: {words}", file=sys.stderr, flush=True)


def as_html(section):
    if not section.level:
        return section.body
    tag = f"h{section.level}"
    return f'<{tag} id="{section.anchor}">{html.escape(section.heading)}</{tag}>\n{section.body}'


def for_doxygen(text):
    """A heading as it is, whatever Doxygen's commands and Markdown would make of it."""
    return re.sub(r"[\\@&$#<>%*_`~\[\]]|--", r"\\\g<0>", text)


def write_pages(pages, work):
    """One Markdown file per page. Headings are Doxygen's, which lists and searches them; what is between is HTML. Only
    those of the first page are not: Doxygen would put them into its tree, among the pages."""
    for page in pages:
        label = "mainpage" if page.path == FRONT else page.label
        lines = [f"# {for_doxygen(page.title)} {{#{label}}}", ""]
        sections = page.sections
        if label == "mainpage":
            sections = [Section(0, body=f'<div class="front">{"".join(map(as_html, sections))}</div>\n')]
        elif sum(section.level == 2 for section in sections) > 1:
            lines += ["@tableofcontents", ""]
        for number, section in enumerate(sections):
            if section.level:
                lines += [f"{'#' * section.level} {for_doxygen(section.heading)} {{#{section.anchor}}}", ""]
            if section.body.strip():
                part = f"{page.label}.{number}.html"
                (work / "parts" / part).write_text(section.body, encoding="utf-8")
                lines += [f'@htmlinclude "{part}"', ""]
        (work / "pages" / f"{page.label}.md").write_text("\n".join(lines), encoding="utf-8")


def run_doxygen(work):
    """Doxygen's warnings, one per line. The site is in work/html."""
    style = [SITE / "site.css"]
    if AWESOME.is_dir():
        style = [AWESOME / "doxygen-awesome.css", *style]
    settings = {"INPUT": [work / "pages", *REFERENCE], "EXAMPLE_PATH": [work / "parts"],
                "STRIP_FROM_PATH": [ROOT, work], "OUTPUT_DIRECTORY": [work], "HTML_HEADER": [work / "header.html"], "HTML_EXTRA_STYLESHEET": style,
                "WARN_LOGFILE": [work / "warnings"], "GENERATE_TAGFILE": [work / "tags"]}
    config = work / "Doxyfile"
    config.write_text("@INCLUDE = docs/Doxyfile\n", encoding="utf-8")
    quiet = {"cwd": ROOT, "capture_output": True, "text": True, "check": False}
    # The header of the Doxygen that is here, with a few lines of ours.
    subprocess.run(["doxygen", "-w", "html", work / "header.html", work / "footer.html", work / "style.css", config],
                   **quiet)
    header = (work / "header.html").read_text(encoding="utf-8")
    for place, ours in (("</head>", HEAD), ("<!-- end header part -->", SEARCH + PLACE + "\n")):
        if place not in header:
            raise Failure(f"Doxygen's header has no {place}")
        header = header.replace(place, ours + place)
    (work / "header.html").write_text(header, encoding="utf-8")
    lines = [f"{name} = " + " ".join(f'"{value}"' for value in values) for name, values in settings.items()]
    config.write_text("\n".join(["@INCLUDE = docs/Doxyfile", *lines, ""]), encoding="utf-8")
    done = subprocess.run(["doxygen", config], **quiet)
    warnings = (work / "warnings").read_text(encoding="utf-8").splitlines() if (work / "warnings").exists() else []
    if done.returncode != 0 and not warnings:
        warnings = [f"doxygen failed: {done.stderr.strip()}"]
    return warnings


def without_empty_sections(page):
    """A page of Doxygen's whose head links only to the sections that the page has: where nothing of a section is public
    and documented, Doxygen leaves the link in and the section out."""
    def links(head):
        kept = [link for link in re.findall(r"<a .*?</a>", head[0])
                if not (anchor := re.search(r'href="#([^"]*)"', link)) or f'id="{anchor[1]}"' in page]
        return '<div class="summary">\n' + " &#124;\n".join(kept) + "  </div>"

    return re.sub(r'<div class="summary">.*?</div>', links, page, flags=re.DOTALL)


def build(lab, work):
    """Builds the site in work/html. Returns what is wrong with it, one line each."""
    pages = Pages()
    ladder = Ladder(lab, pages)
    for page in pages:
        if page.path in ladder.by_path:
            ladder.add_stage(ladder.by_path[page.path])
        elif page.path in ladder.parts:
            ladder.add_part(ladder.parts[page.path])
        elif page.path.endswith(".ipynb"):
            pages.add_notebook(page, Path(lab).parent / page.path)
        else:
            pages.add_markdown(page, read(page.path), ladder.prepare)
        page.title = page.title or page.path
    pages["README.md"].title = "About the project"  # its heading is that of the front page
    slides = Slides(pages, ladder)
    for deck, name in pages.decks.items():
        pages.files[name] = slides.page(deck).encode()
    for folder in ("pages", "parts"):
        (work / folder).mkdir()
    write_pages(pages, work)
    problems = pages.problems + run_doxygen(work)
    if (work / "tags").is_file():
        pages.files["search_index.js"] = search_index(pages, ladder.order, work / "tags").encode()
    pages.files["search.js"] = (SITE / "search.js").read_bytes()

    site = work / "html"
    if not site.is_dir():
        return problems
    shutil.copytree(KATEX, site / "katex")
    for name, content in pages.files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(content)
    groups = groups_of(pages, ladder, site)
    for page in site.glob("*.html"):
        text = without_empty_sections(page.read_text(encoding="utf-8"))
        page.write_text(text.replace(PLACE, menu(groups, page.name), 1), encoding="utf-8")
    (site / MARKER).touch()
    return problems + check_links(site)


def main(lab, out, *options):
    try:
        if out.exists() and not (out / MARKER).exists() and not (out.is_dir() and not any(out.iterdir())):
            say(f"{out} exists already and is no site that this command built; name another folder")
            return 2
        out.parent.mkdir(parents=True, exist_ok=True)
        holder = tempfile.TemporaryDirectory(dir=out.parent, prefix=".site-")
    except OSError as error:
        say(f"cannot write {out}: {error.strerror}")
        return 2
    for needed, package in ((shutil.which("doxygen"), "doxygen"), (KATEX.is_dir(), "libjs-katex")):
        if not needed:
            say(f"{package} is missing; on Debian and Ubuntu: apt-get install {package}")
            return 3
    if not AWESOME.is_dir():
        say("without doxygen-awesome-css, which Ubuntu 22.04 does not have: the site has Doxygen's plain style")
    say("building the site ...")
    with holder:
        work = Path(holder.name)
        try:
            problems = build(lab, work)
        except Failure as failure:
            problems = [str(failure)]
        for problem in problems:
            say(problem)
        if not (work / "html").is_dir():
            return 1
        if out.exists():
            shutil.rmtree(out)
        (work / "html").rename(out)
    print(out / "index.html")
    if "--open" in options:
        webbrowser.open((out / "index.html").as_uri())
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], Path(sys.argv[2]).resolve(), *sys.argv[3:]))
