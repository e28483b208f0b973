"""Writes a hand-out: the sources without some stages' kernels and lessons, and without every stage that was made from one
of them, or includes a file of one: its kernel holds the solution as well.

    handout.py < REQUEST

`lab handout` runs it, and says as JSON which sources, exercises and stages there are (course/commands/handout.cpp). The
answer is JSON: the folders that are hidden and kept, and how many files were written; or why there is no hand-out.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

FILES = """lab CMakeLists.txt CMakePresets.json LICENSE .gitattributes .gitignore
    stages/device.cuh stages/hopper.cuh stages/stage.h stages/errors.h stages/launch.h stages/ring.h stages/README.md
    docs/explorer.md docs/glossary.md docs/troubleshooting.md docs/worked_example.md docs/one_mma.md docs/one_descriptor.md
    docs/course/labs/README.md notebooks/01_online_softmax.ipynb notebooks/ladder.py""".split()
FOLDERS = "harness", "course", "explorer", "simt", "reference", "docs/plots", ".devcontainer"


def included(root, name):
    """The files of stages' folders that a kernel includes."""
    return set(re.findall(r'#include "(stages/\w+/[\w.]+)"', (root / name).read_text(encoding="utf-8")))


def files_to_write(root, e, folder_of):
    """The included files of a solution that are answers: what an exercise starts from does not have them."""
    start = f"stages/{e['folder']}/start.cu"
    if not (root / start).exists():
        start = f"stages/{folder_of[e['parent']]}/kernel.cu"
    return included(root, f"stages/{e['folder']}/kernel.cu") - included(root, start)


def hidden_stages(root, stages, exercises, to_write):
    """The gradients' kernels, which have no parent among the algorithm's, are made of its tiles. Later stages that take
    what an exercise is the first of its chain to take have its answers, too: 65 those of 60; and so have stages of other
    parts that include a file of them: 85 those of 96. `to_write` has these files for each exercise."""
    hidden = {e["number"] for e in exercises}
    of_the_algorithm = any(e["core"] for e in exercises)
    number_of = {stage["folder"]: stage["number"] for stage in stages}
    part_of = {stage["number"]: stage["part"] for stage in stages}
    for stage in stages:  # after its parent, and after those that it includes files of
        files = included(root, f"stages/{stage['folder']}/kernel.cu")
        made_from = {stage["parent"], *(number_of[name.split("/")[1]] for name in files)}
        answers = any((stage["number"] > e["number"] and set(stage["takes"]) & set(e["takes_new"])) or
                      (stage["part"] != part_of[e["number"]] and files & own)
                      for e, own in zip(exercises, to_write))
        if made_from & hidden or answers or (stage["parent"] < 0 and stage["backward"] and of_the_algorithm):
            hidden.add(stage["number"])
    return hidden


class Copier:
    def __init__(self, root, folder):
        self.root, self.folder, self.files = root, folder, 0
        self.without = set()  # files that all_of() leaves out

    def target(self, name):
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        self.files += 1
        return target

    def file(self, name):
        shutil.copy(self.root / name, self.target(name))

    def write(self, name, content):
        self.target(name).write_text(content, encoding="utf-8")

    def all_of(self, name):
        """All files of a folder, those that start with a dot and Python's leavings aside."""
        for path, folders, files in os.walk(self.root / name):
            folders[:] = [folder for folder in folders if not folder.startswith(".") and folder != "__pycache__"]
            for file in files:
                name = Path(path, file).relative_to(self.root)
                if not file.startswith(".") and (self.root / name).is_file() and name.as_posix() not in self.without:
                    self.file(name)


def without_dead_links(page, folder, top):
    """A page in `folder` whose links to files that are not there, or not below `top`, have become their words; where these
    are a file's path, they say that only the whole ladder has it. What is code stays."""
    def living(match):
        words, target = match[1], match[2]
        is_below = target and os.path.relpath(folder / target, top).split(os.sep)[0] != os.pardir
        if not target or ":" in target or (is_below and (folder / target).exists()):
            return match[0]
        return words + (" of the whole ladder" if "/" in words and " " not in words else "")

    pieces, prose, in_code = [], "", False
    for line in [*page.removesuffix("\n").split("\n"), None]:  # a link may go on in the next line
        is_fence = line is not None and line.startswith("```")
        in_code ^= is_fence
        if line is None or is_fence or in_code or line.startswith("    "):
            pieces.append(re.sub(r"`[^`]*`|\[([^\]]*)\]\(([^)#\s]+)[^)]*\)", living, prose))
            pieces.append("" if line is None else line + "\n")
            prose = ""
        else:
            prose += line + "\n"
    return "".join(pieces)


def leave_out_dead_links(file, top):
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        text = without_dead_links(text, file.parent, top)
    else:
        notebook = json.loads(text)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = without_dead_links("".join(cell["source"]), file.parent, top)
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    file.write_text(text, encoding="utf-8")


def write_handout(root, folder, exercises, stages, pages):
    folder_of = {stage["number"]: stage["folder"] for stage in stages}
    to_write = [files_to_write(root, e, folder_of) for e in exercises]
    hidden = hidden_stages(root, stages, exercises, to_write)
    for e in exercises:
        if e["parent"] in hidden:
            raise ValueError(f"{e['folder']} starts from {folder_of[e['parent']]}, which would be hidden: "
                             "hand it out when that one is solved")
    copy = Copier(root, folder)
    for name in [*FILES, *(f"stages/{page}" for page in pages)]:
        copy.file(name)
    kept = [stage["folder"] for stage in stages if stage["number"] not in hidden]
    copy.without = set().union(*to_write) - set().union(*(included(root, f"stages/{stage}/kernel.cu") for stage in kept))
    for name in [*FOLDERS, *(f"stages/{stage}" for stage in kept)]:
        copy.all_of(name)
    # The pictures of the lessons handed out: "04-split-q.svg" is of stage 04, "20s-..." of a part.
    for picture in (root / "docs/figures").glob("*.svg"):
        if not (picture.name[2] == "-" and int(picture.name[:2]) in hidden):
            copy.file(f"docs/figures/{picture.name}")
    for e in exercises:
        place = f"stages/{e['folder']}"
        # The complaint is the lesson's, and the lesson is not there.
        copy.write(f"{place}/exercise.md", (root / place / "exercise.md").read_text(encoding="utf-8") +
                   f"\n## The complaint\n\n{e['complaint']}\n{e['effort']}")
        copy.write(f"{place}/stage.json", e["declaration"])
        if e["start"]:
            copy.write(f"{place}/start.cu", e["start"])
        # What a check holds the student's kernel to, and the lab's sheet
        for name in (f"{place}/claims.cpp", f"{place}/claims.h", f"docs/course/labs/{e['folder']}.md"):
            if (root / name).exists():
                copy.file(name)
    # The guide's example is the smallest stage; here it is the first of these.
    first = exercises[0]
    guide = (root / "docs/course/students.md").read_text(encoding="utf-8")
    copy.write("STUDENTS.md", guide.replace("lab start 2\n", f"lab start {first['number']}\n", 1)
               .replace("lab count 1\n", f"lab count {first['parent']}\n", 1))
    rows = "".join(f"| {e['number']:02} | {folder_of[e['parent']]} | {e['change']} |\n" for e in exercises)
    readme = (root / "course/handout_readme.txt").read_text(encoding="utf-8")
    copy.write("README.md", readme.format(rows, first["number"]))
    for file in folder.rglob("*"):
        if file.suffix in (".md", ".ipynb"):
            leave_out_dead_links(file, folder)
    return {"hidden": [stage["folder"] for stage in stages if stage["number"] in hidden], "kept": kept, "files": copy.files}


def main():
    request = json.loads(sys.stdin.readline())
    try:
        answer = write_handout(Path(request["root"]), Path(request["folder"]).absolute(), request["exercises"],
                               request["stages"], request["pages"])
    except ValueError as error:
        answer = {"refused": str(error)}
    except OSError as error:
        answer = {"refused": f"cannot write {error.filename2 or error.filename}: {error.strerror}"}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
