#!/usr/bin/env python3
"""Shows that kernels were renamed or moved, and not changed: nvcc makes the same machine code of them as of those of a
commit.

    same_machine_code.py COMMIT [--record] [STAGE]...

A recording keeps a fingerprint of each kernel's text, so that one that was measured is known from one that was changed
afterwards. --record puts the new fingerprints of kernels that are the same into docs/results/*.json; a kernel that differs
keeps its old one, and is to be measured anew. Exit code 1 if one differs, 3 without nvcc.
"""

import argparse
import io
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from multiprocessing.pool import ThreadPool
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs/publish"))
from sources import Sources  # noqa: E402

OPTIONS = ["-std=c++20", "-arch=sm_90a", "-O3", "-DNDEBUG", "-DLADDER_BACKEND=gpu", "-cubin", "-w"]


def machine_code(root, stage, nvcc, out):
    """The contents of the sections of code and of constants, without the names of functions. Bank 0 holds no constants but
    room for parameters, which grows with Problem."""
    subprocess.run([nvcc, *OPTIONS, f"-I{root}", "-o", out, root / "stages" / stage / "kernel.cu"], check=True)
    elf = out.read_bytes()
    table, (size, number, names) = struct.unpack_from("<Q", elf, 0x28)[0], struct.unpack_from("<HHH", elf, 0x3A)
    sections = [struct.unpack_from("<II16xQQ", elf, table + size * n) for n in range(number)]
    found = []
    for name, _, offset, length in sections:
        start = sections[names][2] + name
        kind = elf[start:elf.index(0, start)]
        if kind.startswith((b".text.", b".nv.constant")) and not kind.startswith(b".nv.constant0"):
            found.append(elf[offset:offset + length])
    return Counter(found)


def fingerprints(root):
    """By stage, those of the kernels below this root."""
    os.environ["LADDER_STAGES"] = str(root / "stages")
    return {stage.folder: stage.fingerprint for stage in Sources(ROOT / "lab").stages.values()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("stages", nargs="*", help="numbers (default: all whose text differs)")
    parser.add_argument("--record", action="store_true", help="new fingerprints in docs/results")
    given = parser.parse_args()
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not nvcc:
        sys.exit(3)
    archive = subprocess.run(["git", "-C", ROOT, "archive", given.commit, "stages"], check=True, capture_output=True)
    with tempfile.TemporaryDirectory(prefix="ladder-before-") as folder:
        before = Path(folder)
        tarfile.open(fileobj=io.BytesIO(archive.stdout)).extractall(before)
        marks = {}
        old, new = fingerprints(before), fingerprints(ROOT)
        for stage in sorted(old.keys() & new.keys()):
            if not given.stages or str(int(stage[:2])) in given.stages:
                marks[stage] = (old[stage], new[stage])

        def same(stage):
            if marks[stage][0] == marks[stage][1] and not given.stages:
                return True
            made = [machine_code(root, stage, nvcc, before / f"{stage}.{n}.cubin") for n, root in enumerate((before, ROOT))]
            is_same, more = made[0] <= made[1], (made[1] - made[0]).total()  # a stage may get further kernels
            print(f"{stage:28}{'the same' if is_same else 'differs'}, {made[0].total()} sections"
                  f"{f', and {more} more' if is_same and more else ''}", flush=True)
            return is_same

        with ThreadPool(2) as pool:
            equal = dict(zip(marks, pool.map(same, marks, chunksize=1)))
    if given.record:
        for record in sorted((ROOT / "docs/results").glob("*.json")):
            text = record.read_text()
            for stage, (old, new) in marks.items():
                if equal[stage]:
                    text = text.replace(f'"{old}"', f'"{new}"')
            record.write_text(text)
    return 0 if all(equal.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
