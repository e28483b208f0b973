"""What the site's search looks through, as a script for search.js: the text of all pages, and the symbols' names."""

import html
import json
import re
from xml.etree import ElementTree

GLOSSARY = "docs/glossary.md"
# Around a lesson's text, and of its own making; a lesson's tables have the same rows everywhere.
FRAME = re.compile(r'<(nav) class="steps">.*?</nav>|<(dl) class="family">.*?</dl>', re.S)
TABLE = re.compile(r'<div class="table[^>]*>.*?</table></div>', re.S)
INLINE = re.compile(r"</?(?:a|b|code|data|em|i|span|strong|sub|sup)\b[^>]*>|\\[()\[\]]")  # and a formula's ends
KINDS = ("lesson", "glossary", "notebook", "page")


def text_in(body):
    """HTML as a reader sees it, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", INLINE.sub("", FRAME.sub("", body)))).split())


def kind_of(page, lessons):
    if page in lessons:
        return "lesson"
    return "glossary" if page.path == GLOSSARY else "notebook" if page.path.endswith(".ipynb") else "page"


def page_entries(pages, lessons):
    """For each page its kind, its file, its title and its sections (anchor, heading, text): lessons as a reader climbs,
    the glossary, the notebooks, and then the others. Kernels and diffs, which no text is made of, are left out: of them
    the symbols are found."""
    def place(page):
        return KINDS.index(kind_of(page, lessons)), lessons.index(page) if page in lessons else 0, page.path

    entries = []
    for page in sorted(pages, key=place):
        sections = [[section.anchor, section.heading,
                     text_in(TABLE.sub("", section.body) if page in lessons else section.body)]
                    for section in page.sections if section.level == 0 or section.tokens]
        entries.append([kind_of(page, lessons), page.file, page.title, sections])
    return entries


def symbol_entries(tags):
    """Of each symbol in Doxygen's tag file its name, what it is, and where its page is."""
    def page(name):
        return name if name.endswith(".html") else f"{name}.html"

    entries = {}
    for compound in ElementTree.parse(tags).getroot():
        kind, name = compound.get("kind"), compound.findtext("name")
        if kind in ("class", "struct", "file"):
            entries[page(compound.findtext("filename"))] = [name, kind]
        for member in compound.findall("member") if kind in ("class", "struct", "file", "namespace") else ():
            url = f"{page(member.findtext('anchorfile'))}#{member.findtext('anchor')}"
            entries[url] = [member.findtext("name"), f"{member.get('kind')} of {name}"]
    return sorted([name, kind, url] for url, (name, kind) in entries.items())


def search_index(pages, lessons, tags):
    """The script. `lessons` are the pages that a reader climbs, in order; `tags` is Doxygen's tag file."""
    index = {"pages": page_entries(pages, lessons), "symbols": symbol_entries(tags)}
    return "const searchIndex = " + json.dumps(index, ensure_ascii=False, separators=(",", ":")) + ";\n"
