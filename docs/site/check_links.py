#!/usr/bin/env python3
"""Checks that every link of a site leads to a file and to an anchor in it, and that no page loads from the network.

Usage: check_links.py SITE. Prints each link that leads nowhere. Exit codes: 0 none does, 1 one does, 2 bad usage.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Reader(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.loaded = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name in ("href", "src", "srcset") and value:
                targets = {part.split()[0] for part in value.split(",")} if name == "srcset" else {value}
                self.links |= targets
                if tag != "a":
                    self.loaded |= targets


def links_of_script(text):
    """The pages that Doxygen's tree, menu and search name, which are scripts. Their anchors are left out: the tree
    names some of enumerators that have none."""
    return set(re.findall(r"""["'](?:\.\./)?([\w./-]+\.html)(?:#[\w-]+)?["']""", text))


def check_links(site):
    """The links of the site that lead nowhere, one line each."""
    pages = {path: Reader(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    links = [(path, path.parent, page.links) for path, page in pages.items()]
    # The search's scripts are read by pages of its folder, whose links start with "../".
    scripts = [path for path in (*site.glob("*.js"), *site.glob("search/*.js")) if not path.match("navtreeindex*")]
    links += [(path, site, links_of_script(path.read_text(encoding="utf-8"))) for path in scripts]
    links += [(path, path.parent, set(re.findall(r"url\([\"']?([^\"')]+)", path.read_text(encoding="utf-8"))))
              for path in site.rglob("*.css")]
    wrong = []
    for path, folder, targets in links:
        for target in sorted(targets):
            url = urlsplit(target)
            if url.scheme or url.netloc:
                if url.scheme in ("", "file"):
                    wrong.append(f"{path.relative_to(site)}: {target} leads out of the site")
                elif url.scheme in ("http", "https") and (path not in pages or target in pages[path].loaded):
                    wrong.append(f"{path.relative_to(site)}: {target} is loaded from the network")
                continue
            linked = (folder / unquote(url.path)).resolve() if url.path else path
            if not linked.is_file():
                wrong.append(f"{path.relative_to(site)}: there is no {target}")
            elif url.fragment and linked in pages and unquote(url.fragment) not in pages[linked].anchors:
                wrong.append(f"{path.relative_to(site)}: {target} has no such anchor")
    return wrong


def main(arguments):
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: check_links.py SITE", file=sys.stderr)
        return 2
    wrong = check_links(Path(arguments[0]).resolve())
    print("\n".join(wrong) or "every link leads somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
