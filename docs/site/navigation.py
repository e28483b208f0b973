"""The menu of every page: the parts with their rungs in reading order, then the documentation, the course and the rest.
A group is a <details>, which opens without a script; that of the page itself is open."""

import html
import re
from typing import NamedTuple

# The way that a reader climbs; other pages of docs/ come after these.
DOCUMENTATION = ["docs/site/front.md", "README.md", "docs/one_mma.md", "stages/README.md", "docs/glossary.md",
                 "docs/one_descriptor.md", "docs/flash_attention_1_and_2.md", "docs/worked_example.md", "docs/results.md",
                 "docs/benchmark.md", "docs/standard_attention.md", "docs/claimed_and_measured.md",
                 "docs/send_a_recording.md", "docs/explorer.md", "docs/python.md", "docs/triton.md",
                 "docs/troubleshooting.md", "docs/how_it_runs.md", "docs/add_a_stage.md", "CONTRIBUTING.md", "CHANGELOG.md"]
AT_THE_TOP = ("docs/site/front.md", "stages/README.md", "docs/results.md")
COURSE = ["docs/course/README.md", "docs/course/students.md", "docs/course/instructors.md", "docs/course/plan.md",
          "docs/course/slides/README.md", "docs/course/labs/README.md", "docs/course/policies.md", "docs/course/gpu.md"]
REFERENCE = {"files.html": "Files", "namespaces.html": "Namespaces", "annotated.html": "Classes",
             "globals.html": "Names"}

PLACE = "<!-- the menu -->"  # where the header of a page has it
# A phone shows the menu when the box is checked, which takes no script.
MENU = """<input type="checkbox" id="menu-open" aria-label="Show the menu">
<label for="menu-open" aria-hidden="true">Menu</label>
<nav id="menu" aria-label="Pages">
{}</nav>
"""


class Link(NamedTuple):
    file: str
    title: str


class Group(NamedTuple):
    title: str
    links: list
    head: Link = None  # the page that the group's name leads to

    def has(self, file):
        return file in (link.file for link in (*self.links, *filter(None, [self.head])))


def link_to(page, title=None):
    return Link(page.file, title or re.split("[:,]", page.title)[0])


def groups_of(pages, ladder, site):
    """Pairs of a heading, which may be empty, and what is below it: links and groups. `site` is where Doxygen's pages are."""
    parts = [Group(part.page.title, [link_to(stage.page) for stage in part.stages], link_to(part.page, part.page.title))
             for part in ladder.parts.values()]
    notebooks = [page for page in pages if page.path.endswith(".ipynb")]
    labs = [page for page in pages if re.match(r"docs/course/labs/\d", page.path)]
    quiz = [page for page in pages if page.path.startswith("docs/course/quiz/")]
    course = [*(pages[path] for path in COURSE), *labs, *quiz]
    course_links = [link_to(page, page.title.replace(":", "") if page in labs else None) for page in course]
    known = {*DOCUMENTATION, *ladder.by_path, *ladder.parts, "notebooks/README.md",
             *(page.path for page in (*notebooks, *course))}
    documentation = [link_to(pages[path]) for path in DOCUMENTATION if path not in AT_THE_TOP]
    others = [link_to(page) for page in pages if page.path not in known]
    reading = [Group("Documentation", documentation), Group("Course", course_links),
               Group("Notebooks", [*map(link_to, (pages["notebooks/README.md"], *notebooks))]),
               Group("Reference", [Link(file, title) for file, title in REFERENCE.items() if (site / file).is_file()]),
               Group("More", others)]
    top = [link_to(pages[path], title) for path, title in zip(AT_THE_TOP, ("Start", "The ladder", "The results"))]
    return [("", top), ("The parts", parts), ("Reading", [group for group in reading if group.links])]


def as_html(item, current):
    if isinstance(item, Link):
        here = ' aria-current="page"' if item.file == current else ""
        return f'<li><a href="{item.file}"{here}>{html.escape(item.title)}</a></li>\n'
    name, _, numbers = item.title.partition(":")
    name = html.escape(name) + (f" <span>{html.escape(numbers.strip())}</span>" if numbers else "")
    if item.head:
        here = ' aria-current="page"' if item.head.file == current else ""
        name = f'<a href="{item.head.file}"{here}>{name}</a>'
    is_open = " open" if item.has(current) else ""
    return (f"<li><details{is_open}><summary>{name}</summary>\n<ul>\n"
            f"{''.join(as_html(link, current) for link in item.links)}</ul></details></li>\n")


def menu(groups, current):
    """Of the page whose file this is. A page that no group has, such as a header's, belongs to the reference."""
    items = [item for _, items in groups for item in items]
    known = any(item.file == current if isinstance(item, Link) else item.has(current) for item in items)
    shown = current if known else next(iter(REFERENCE))
    shown_groups = ((heading, "".join(as_html(item, shown) for item in items)) for heading, items in groups)
    return MENU.format("".join((f"<h2>{heading}</h2>\n" if heading else "") + f"<ul>\n{links}</ul>\n"
                               for heading, links in shown_groups))
