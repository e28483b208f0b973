"""Where the package's sources are, and the folder in which it keeps what it compiles."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from . import _core

PACKAGE = Path(__file__).absolute().parent


def _compiler(built_with, variable, names):
    """The program that `variable` names, or the one that this build has noted, or else the first of `names` here."""
    if os.environ.get(variable):
        return os.environ[variable]
    if Path(built_with).exists():
        return built_with
    return next(filter(None, map(shutil.which, names)), built_with)


def _recipes(sources):
    """kernels.json of this build, as it is to be on this machine: a kernel finds its headers in `sources`, and simt/
    and the registry in the package's library."""
    recipes = json.loads((PACKAGE / "kernels.json").read_text())
    library = str(PACKAGE / "libflash_ladder.so")
    for name, recipe in recipes.items():
        if not isinstance(recipe, dict):
            continue
        gpu = name.startswith("gpu")
        recipe["compile"] = [word.replace(f"-I{_core.built_from}", f"-I{sources}") for word in recipe["compile"]]
        recipe["compile"][0] = _compiler(recipe["compile"][0], "CUDACXX" if gpu else "CXX",
                                         ["nvcc", "/usr/local/cuda/bin/nvcc"] if gpu else ["g++", "c++"])
        recipe["link"][0] = _compiler(recipe["link"][0], "CXX", ["g++", "c++"])
        recipe["link"].append(library)
    return json.dumps(recipes, indent=2)


def _start():
    """Tells the C++ side where things are. Nothing is compiled or written before it is needed but kernels.json. Returns
    the sources, and the folder that has kernels.json, and will have what is compiled."""
    installed = PACKAGE / "sources"
    sources = installed if installed.exists() else Path(_core.built_from)
    recipes = _recipes(sources)
    cache = os.environ.get("FLASH_LADDER_CACHE")
    if not cache:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flash_ladder"
    build = Path(cache).absolute() / hashlib.sha256(recipes.encode()).hexdigest()[:12]
    file = build / "kernels.json"
    if not file.exists():
        build.mkdir(parents=True, exist_ok=True)
        _write(file, lambda fresh: fresh.write_text(recipes))
    _core.start(str(sources), str(build))
    return sources, build


def _write(file, write):
    """What write(path) writes, in this place whole or not at all."""
    fresh = file.with_suffix(f".{os.getpid()}")
    write(fresh)
    fresh.replace(file)


SOURCES, BUILD = _start()


def compiled(source, flags, made_for):
    """The shared library that the C++ compiler makes of a source of python/src with these flags. It is kept beside the
    kernels; a change of source, flags, the package's library or `made_for`, the version of what it is compiled against,
    makes another. CannotRun if it does not compile."""
    source, library = SOURCES / "python" / "src" / source, PACKAGE / "libflash_ladder.so"
    recipes = json.loads((BUILD / "kernels.json").read_text())
    compiler = next(recipe["link"][0] for recipe in recipes.values() if isinstance(recipe, dict))
    # libstdc++ before the package's library, which has one of its own where the compiler links it statically: streams
    # that are half of one and half of the other print no numbers, or crash.
    command = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", f"-I{SOURCES}", str(source), "-l:libstdc++.so.6",
               str(library), f"-Wl,-rpath,{PACKAGE}", *flags]
    state = library.stat()
    key = "\n".join([*command, made_for, source.read_text(), f"{state.st_mtime_ns} {state.st_size}"])
    product = BUILD / f"{source.stem}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.so"

    def compile_to(path):
        done = subprocess.run([*command, "-o", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise _core.CannotRun(f"{source.name} does not compile:\n{' '.join(command)}\n{done.stdout[-4000:]}")

    if product.exists():
        return product
    with open(BUILD / f"{source.stem}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of a training's processes, which start at once, one compiles
        if not product.exists():
            _write(product, compile_to)
    return product
