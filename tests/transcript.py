#!/usr/bin/env python3
"""What `lab` says, held still: runs the commands of a transcript and compares what they say now.

    transcript.py BUILD [--compare FILE | --record FILE]

A transcript is text in sections. Each begins with a command of the shell:

    $ lab verify 27
    ! lab: there is no stage '27'; see ./lab list
    = 2

Below it stand what it wrote to stdout, indented, and to stderr, marked with "!", and its exit code unless that is 0.
`[80] $ lab list` is shown on a terminal of 80 columns. The commands run in order, in a folder of their own, which holds
the files of FILES at first.

--compare, the default, prints the differences to FILE, [tests/transcript.txt]; exit code 1 if there are any. --record
runs the commands that FILE lists, or those of tests/transcript.txt where there is no FILE yet, and writes what they say.
To add a command, write its line and record. A stage or a recording that comes changes nothing that is held here: cut
what depends on them with grep, head or sed in the command.
"""

import argparse
import difflib
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PROMPT = re.compile(r"^(?:\[(\d+)\] )?\$ (.*)")
SHORT = 4  # lines of sections between which there is no empty line

# What differs from run to run or from machine to machine, and what stands for it. The folders come first: see Session.
PLACEHOLDERS = [
    (r"^lab: (building|\d+%, ).*\n", ""),  # progress, which depends on the seconds that passed
    (r"Flash Ladder \d+\.\d+\.\d+, commit .*", "Flash Ladder <version>, commit <commit>"),
    (r"((e[-+]\d\d|-) +)\d+\.\d$", r"\1<s>"),  # seconds, the last column of lab verify's table
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
    (r"(?<=\| )\d+\.\d( \| \|)$", r"<s>\1"),
    (r"(\"seconds\": )[-+0-9.e]+", r"\1<s>"),
    (r"about [\d,]+ \w+ on \d+ cores? of the CPU", "about <time> on <n> cores of the CPU"),
    (r"(\bneeds a GPU: |GPU:? +none: ).*", r"\1<why there is none>"),
    (r"(\d\.0*[1-9]\d{3})\d{6,}", r"\1..."),  # digits in which one machine's exponentials differ from another's
    (r"^files( +)\d{3}$", r"files\1<n>"),  # of a hand-out
    (r"(\bpuzzle +\d+ of |there are 1 to )\d+", r"\1<n>"),  # puzzles: each stage brings some
    (r"(family of problems: )train,.*(\n {20,}.*)*", r"\1<regimes>"),  # stages bring those, too
    (r"\{train,[^}]*\}", "{<regimes>}"),
    (r"\bkernel\.cu:\d+(:\d+)?", "kernel.cu:<line>"),
]


def npy(shape, kind="<f2", fortran=False, first=None):
    """A .npy file of small numbers that both types hold exactly, but for the first if it is given."""
    head = f"{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': {tuple(shape)}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    size = 1
    for n in shape:
        size *= n
    numbers = [(i * 37 + 101) % 193 / 64 - 1.5 for i in range(size)]
    if first is not None:
        numbers[0] = first
    letter = {"<f2": "e", "<f4": "f", "<i4": "i"}[kind]
    if letter == "i":
        numbers = map(int, numbers)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack(f"<{size}{letter}", *numbers)


Q, K = (1, 4, 37, 64), (1, 2, 65, 64)
FILES = {
    "q.npy": npy(Q), "k.npy": npy(K), "v.npy": npy(K), "do.npy": npy(Q),
    "q32.npy": npy(Q, "<f4"), "k32.npy": npy(K, "<f4"), "nan.npy": npy(Q, "<f4", first=float("nan")),
    "large.npy": npy(Q, "<f4", first=1e6), "rank3.npy": npy(Q[1:]), "heads.npy": npy((1, 3, 37, 64)),
    "shorter.npy": npy((1, 2, 64, 64)), "batch.npy": npy((2, 4, 37, 64)), "d96.npy": npy((1, 2, 16, 96)), "int.npy": npy(K, "<i4"), "fortran.npy": npy(K, fortran=True),
    "cut.npy": npy(K)[:5000], "longer.npy": npy(K) + b"more", "text.npy": b"text",
}


class Session:
    """A folder and an environment in which commands run one after the other."""

    def __init__(self, build, folder):
        self.folder = folder
        for name, data in FILES.items():
            (folder / name).write_bytes(data)
        names = [(build, "<build>"), (TESTS.parent, "<sources>"), (folder, "<here>")]
        self.replaced = [(re.escape(str(path)), name) for path, name in names] + PLACEHOLDERS
        kept = {name: text for name, text in os.environ.items()
                if not name.startswith("LADDER_") and name not in ("COLUMNS", "MAKEFLAGS")}
        # Without a GPU, a Python of the project's own or colours: the same on every machine.
        self.environment = kept | {"HOME": str(folder), "LADDER": str(TESTS.parent), "NO_COLOR": "1", "LC_ALL": "C.UTF-8",
                                   "CUDA_VISIBLE_DEVICES": "", "PATH": f"{build}:{os.environ['PATH']}"}

    def neutral(self, text):
        for pattern, name in self.replaced:
            text = re.sub(pattern, name, text, flags=re.MULTILINE)
        return text

    def run(self, command, columns):
        """The section of a command, on a terminal of so many columns if they are given."""
        how = {"cwd": self.folder, "env": self.environment, "stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        if columns:
            master, slave = pty.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            out = []
            reader = threading.Thread(target=read_all, args=(master, out))
            reader.start()
            result = subprocess.run(["sh", "-c", command], stdout=slave, **how)
            os.close(slave)
            reader.join()
            os.close(master)
            result.stdout = b"".join(out).replace(b"\r\n", b"\n")
        else:
            result = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, **how)
        lines = [f"[{columns}] $ {command}" if columns else f"$ {command}"]
        for mark, text in (("  ", result.stdout), ("! ", result.stderr)):
            lines += [(mark + line).rstrip() for line in self.neutral(text.decode(errors="replace")).splitlines()]
        if result.returncode != 0:
            lines.append(f"= {result.returncode}")
        return lines


def read_all(file, parts):
    """Reads what is written to a terminal until it is closed."""
    try:
        while part := os.read(file, 1 << 16):
            parts.append(part)
    except OSError:  # how Linux says so
        pass


def said_now(text, build):
    """The transcript with the same comments and commands, and what the commands say now."""
    with tempfile.TemporaryDirectory() as folder:
        session = Session(build.resolve(), Path(folder).resolve())
        lines = []
        for line in text.splitlines():
            if line.startswith("#"):
                lines += ["", line] if lines and not lines[-1].startswith("#") else [line]
                was_short = False
            elif prompt := PROMPT.match(line):
                section = session.run(prompt[2], int(prompt[1] or 0))
                short = len(section) <= SHORT
                if not (short and was_short):
                    lines.append("")
                lines += section
                was_short = short
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--record", type=Path, metavar="FILE")
    what.add_argument("--compare", type=Path, metavar="FILE", default=TESTS / "transcript.txt")
    arguments = parser.parse_args()
    if not shutil.which("lab", path=arguments.build.resolve()):
        parser.error(f"there is no lab in {arguments.build}")
    if arguments.record:
        listed = arguments.record if arguments.record.exists() else TESTS / "transcript.txt"
        arguments.record.write_text(said_now(listed.read_text(), arguments.build))
        return 0
    before = arguments.compare.read_text()
    after = said_now(before, arguments.build)
    changes = difflib.unified_diff(before.splitlines(), after.splitlines(), str(arguments.compare), "now", lineterm="")
    print("\n".join(changes) or "lab says what it said")
    return before != after


if __name__ == "__main__":
    sys.exit(main())
