#!/usr/bin/env python3
"""Shows that kernels were renamed or moved, and not changed: nvcc makes the same PTX of them as of those of a commit.

    same_machine_code.py COMMIT [--record] [STAGE]...

A recording keeps a fingerprint of each kernel's text, so that one that was measured is known from one that was changed
afterwards. --record puts the new fingerprints of kernels that are the same in PTX into docs/results/*.json; a kernel that
differs keeps its old one, and is to be measured anew. Exit code 1 if one differs, 3 without nvcc.
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from multiprocessing.pool import ThreadPool
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = ["-std=c++20", "-arch=sm_90a", "-O3", "-DNDEBUG", "-DLADDER_BACKEND=gpu", "-ptx", "-w"]


def fingerprint(source):
    """kernel_fingerprint() of harness/time/results.cpp."""
    code = re.sub(r"//[^\n]*", "", source[:source.rindex("LADDER_STAGE(")])
    value = 0xcbf29ce484222325  # FNV-1a
    for c in re.sub(r"[ \t\n\v\f\r]", "", code).encode():
        value = (value ^ c) * 0x100000001b3 % 2**64
    return f"{value:016x}"


def functions(root, stage, nvcc, out):
    """PTX by function; what nvcc makes of a file's name, and of a namespace without one, is left out."""
    subprocess.run([nvcc, *OPTIONS, f"-I{root}", "-o", out, root / "stages" / stage / "kernel.cu"], check=True)
    text = out.read_text()
    for length in set(re.findall(r"(\d+)_GLOBAL__N__", text)):
        text = re.sub(rf"{length}_GLOBAL__N__.{{{int(length) - 12}}}", "_unnamed_", text)
    text = re.sub(r"//[^\n]*", "", text)
    return sorted(re.split(r"\n(?=\.(?:visible|weak|func|entry|global|const|extern))", text))


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
        for kernel in sorted((ROOT / "stages").glob("*/kernel.cu")):
            stage = kernel.parent.name
            old = before / "stages" / stage / "kernel.cu"
            if given.stages and str(int(stage[:2])) not in given.stages or not old.exists():
                continue
            marks[stage] = (fingerprint(old.read_text()), fingerprint(kernel.read_text()))

        def same(stage):
            if marks[stage][0] == marks[stage][1] and not given.stages:
                return True
            made = [functions(root, stage, nvcc, before / f"{stage}.{n}.ptx") for n, root in enumerate((before, ROOT))]
            print(f"{stage:28}{'the same' if made[0] == made[1] else 'differs'}, {len(made[0])} functions", flush=True)
            return made[0] == made[1]

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
