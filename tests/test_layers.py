#!/usr/bin/env python3
"""The layers of harness/ and of course/ are in one order: a layer includes only itself and those before it. Tests of simt/
say so, since a build for GPUs alone has it not.

    test_layers.py [ROOT]    prints what breaks the rules; exit code 1 if anything does
"""

import re
import sys
from pathlib import Path

LAYERS = [Path("harness", layer) for layer in
         ("base", "ladder", "problem", "features", "cases", "device", "verify", "count", "trace", "time", "report", "commands")]
LAYERS += [Path("course", "fence"), Path("course"), Path("course", "commands")]
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def included_by(root):
    """Each source file with the files of the project that it includes, all relative to the root."""
    files = [path for folder in ("harness", "course", "simt", "reference", "stages")
             for path in sorted((root / folder).rglob("*")) if path.suffix in SOURCES]
    result = {}
    for file in files:
        named = [[root / name, file.parent / name] for name in INCLUDE.findall(file.read_text())]
        found = [next((path for path in paths if path.exists()), None) for paths in named]
        result[file.relative_to(root)] = [path.resolve().relative_to(root) for path in found if path]
    return result


def allowed(file, other):
    """Whether a file may include the other one."""
    top, target = file.parts[0], other.parts[0]
    if file.parent in LAYERS:
        if other.parent not in LAYERS:
            return target in ("stages", "simt", "reference")
        return LAYERS.index(other.parent) <= LAYERS.index(file.parent)
    if top == "stages":
        if other.as_posix() in ("simt/cuda.h", "simt/hopper.h"):
            return file.name in ("device.cuh", "hopper.cuh")
        # A stage's claims are about what harness/count counts; its kernel and the shared headers know nothing of it.
        return target == "stages" or (file.stem == "claims" and target in ("harness", "simt"))
    return target in {"simt": ("simt", "stages"), "reference": ("reference", "stages")}[top]


def cycle(includes):
    """The files of one cycle, the first one at both ends; empty if there is none."""
    done, path = set(), []

    def visit(file):
        if file in path:
            return path[path.index(file):] + [file]
        if file in done:
            return []
        path.append(file)
        found = next(filter(None, map(visit, includes.get(file, []))), [])
        path.pop()
        done.add(file)
        return found

    return next(filter(None, map(visit, includes)), [])


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    includes = included_by(root)
    problems = [f"{file} is in no layer" for file in includes if file.parts[0] in ("harness", "course")
                and file.parent not in LAYERS]
    if not includes:
        problems.append(f"{root} has no sources")
    if not problems:
        problems = [f"{file} includes {other}" for file, others in includes.items() for other in others
                    if not allowed(file, other)]
        if around := cycle(includes):
            problems.append("a cycle: " + " -> ".join(map(str, around)))
        for test in sorted((root / "tests").glob("test_*.cpp")):
            text = test.read_text()
            if any(name.startswith("simt/") for name in INCLUDE.findall(text)) and "ifdef LADDER_HAS_CPU" not in text:
                problems.append(f"{test.relative_to(root)} includes simt/ where LADDER_HAS_CPU is not asked for")
    print("\n".join(problems) or f"{len(includes)} files keep the order")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
