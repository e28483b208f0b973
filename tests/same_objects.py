#!/usr/bin/env python3
"""Compiles in a copy of the tree what differs there, and takes the object of the tree's own build for the rest.

    CMAKE_CXX_COMPILER_LAUNCHER='same_objects.py;ROOT;BUILD' cmake -S COPY -B COPY/build

An object is the tree's if the command is the same but for the folders, if each file that the compiler read is in the
copy, too, to the last byte, and if no folder's name is in the object.
"""
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

root, build = sys.argv[1:3]
command = sys.argv[3:]
build_here = os.getcwd()
here = os.path.dirname(build_here)


def in_tree(text):
    return text.replace(build_here, build).replace(here, root)


def in_copy(path):
    for there, folder in ((build, build_here), (root, here)):
        if path.startswith(there + "/"):
            return folder + path[len(there):]
    return path


def option(name):
    """Takes an option with a value out of the command."""
    at = plain.index(name)
    value = plain[at + 1]
    del plain[at:at + 2]
    return value


def read_for(product):
    """What the tree's compiler read for it; nothing if that has changed since."""
    said = subprocess.run(["ninja", "-C", build, "-t", "deps", product], capture_output=True, text=True).stdout
    head, *lines = said.splitlines()[1:] if said.startswith("ninja:") else said.splitlines()
    files = [os.path.normpath(os.path.join(build, line.strip())) for line in lines if line.strip()]
    made = os.stat(os.path.join(build, product)).st_mtime
    return files if "(VALID)" in head and all(os.stat(file).st_mtime <= made for file in files) else []


def same(file):
    mine = in_copy(file)
    if mine == file or file.endswith(".gch"):  # what that was made from is listed, too
        return True
    return in_tree(Path(mine).read_text()) == Path(file).read_text()


def taken_from_tree():
    product = plain[plain.index("-o") + 1]
    wanted = [in_tree(word) for word in plain]
    entries = json.loads(Path(build, "compile_commands.json").read_text())
    if not any(shlex.split(entry["command"]) == wanted for entry in entries):
        return False
    files = read_for(product)
    if not files or not all(map(same, files)):
        return False
    if product.endswith(".o") and root.encode() in Path(build, product).read_bytes():
        return False
    shutil.copyfile(os.path.join(build, product), product)
    names = (in_copy(file).replace(" ", "\\ ") for file in files)
    Path(listing).write_text(f"{target}: " + " \\\n ".join(names) + "\n")
    return True


plain = [word for word in command if word != "-MD"]
try:
    target, listing = option("-MT"), option("-MF")
    if taken_from_tree():
        sys.exit(0)
except (IndexError, OSError, ValueError):
    pass  # no such command, object or file there: the compiler says what is missing
sys.exit(subprocess.run(command).returncode)
