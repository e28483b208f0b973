"""What a lesson's prose was read against: read_against.json beside it holds the rows of its tables in sight, and its
spans. Words such as "nearly doubles" cannot be generated, so when a number has changed the lesson is named."""

import json
import re

from command import write
from markdown import SPAN
from records import DRIFT, ROOT

BLOCK = re.compile(r"<!-- generated: (\S+?)(?: [^>]*)? -->\n(.*?)<!-- end -->", re.S)
FOLD = re.compile(r"<details>(?:(?!<details>).)*?</details>", re.S)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
NOT_READ = ("kind", "predicted")  # how columns end that stay


def rows_of(block):
    """Of each table of a block, each row: its first cell, and the others by column."""
    columns = []
    for line in block.split("\n"):
        cells = [cell.strip().strip("*") for cell in line.replace("\\|", "/").strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = cells
        elif not set(line) <= set("|-: "):
            yield cells[0], {column: cell for column, cell in zip(columns[1:], cells[1:]) if not column.endswith(NOT_READ)}


def seen(text):
    """The numbers of a lesson's tables in sight, by block and row, and its spans, those of folds among them."""
    spans = {" ".join(words.split()): value for _, words, value in SPAN.findall(BLOCK.sub("", text))}
    while FOLD.search(text):
        text = FOLD.sub("", text)
    found = {}
    for name, block in BLOCK.findall(text):
        for first, cells in rows_of(block) if name != "prediction" else ():
            key, number = f"{name}: {first}", 2
            while key in found:
                key, number = f"{name}: {first} #{number}", number + 1
            found[key] = cells
    return found | ({"spans": spans} if spans else {})


def path_of(folder):
    return ROOT / "stages" / folder / "read_against.json"


def stamp(folder, text):
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(cells)}" for key, cells in seen(text).items())
    write(path_of(folder), f"{{\n{lines}\n}}\n")


def differs(was, now):
    """Whether a cell says something else: other words, or a number that has changed by more than the drift."""
    if NUMBER.sub("", was) != NUMBER.sub("", now):
        return True
    pairs = [[float(number.replace(",", "")) for number in pair] for pair in zip(NUMBER.findall(was), NUMBER.findall(now))]
    points = 2 if "%" in was else 0
    return any(abs(a - b) > max(DRIFT * max(a, b), points) for a, b in pairs)


def changed(folder, text):
    """What changed since the prose was read, each in words; empty if nothing did, or it was never read so."""
    path = path_of(folder)
    if not path.exists():
        return []
    was, now = json.loads(path.read_text(encoding="utf-8")), seen(text)
    found = [f"{key} is new" for key in now if key not in was] + [f"{key} is gone" for key in was if key not in now]
    for key in was.keys() & now.keys():
        for name in dict.fromkeys([*was[key], *now[key]]):
            old, new = was[key].get(name), now[key].get(name)
            if (old is None) != (new is None) or (old is not None and differs(old, new)):
                found.append(f"{key}, {name}: {old}, now {new}")
    return sorted(found)
