"""Where the package's sources are, and the folder in which it keeps what it compiles."""

import fcntl
import hashlib
import itertools
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import time
from pathlib import Path

from . import _core

PACKAGE = Path(_core.__file__).absolute().parent  # `pip install -e` leaves the files in Python in their source folder
KEPT_DAYS = 30  # since the last use


def _program(command):
    """Its first words: the compiler, which may be in a program such as ccache."""
    return list(itertools.takewhile(lambda word: not word.startswith("-"), command))


def _compiler(built_with, variable, names):
    """The program that `variable` names, in one word or several, or the one that this build has noted, or else the first
    of `names` here."""
    if os.environ.get(variable, "").strip():
        return shlex.split(os.environ[variable])
    if shutil.which(built_with[0]):
        return built_with
    return next(([path] for path in map(shutil.which, names) if path), built_with)


def _family(compiler):
    """Whose options it takes."""
    try:
        said = subprocess.run([*compiler, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    except OSError:
        return _core.built_by  # what it is is said when it is needed
    return "Clang" if b"clang" in said else "GNU"


def _recipes(sources):
    """kernels.json as it is to be on this machine: a kernel finds its headers in `sources`, and simt/ and the registry in
    the package's library."""
    built = json.loads((PACKAGE / f"kernels-{_core.built_by}.json").read_text())
    link = next(recipe["link"] for recipe in built.values() if isinstance(recipe, dict))
    compiler = _compiler(_program(link), "CXX", ["g++", "c++", "clang++"])
    family = _core.built_by if compiler == _program(link) else _family(compiler)
    recipes = json.loads((PACKAGE / f"kernels-{family}.json").read_text())
    library = str(PACKAGE / "libflash_ladder.so")
    for name, recipe in recipes.items():
        if not isinstance(recipe, dict):
            continue
        compile, link = recipe["compile"], recipe["link"]
        program = compiler
        if name.startswith("gpu"):
            program = _compiler(_program(compile), "CUDACXX", ["nvcc", "/usr/local/cuda/bin/nvcc"])
        compile[:len(_program(compile))] = program
        link[:len(_program(link))] = compiler
        recipe["compile"] = [word.replace(f"-I{_core.built_from}", f"-I{sources}") for word in compile]
        recipe["link"] = [*link, library]
        # Where few kernels are compiled, precompiling their header takes longer than it saves, and 29 MB.
        recipe.pop("headers", None)
    recipes.pop("strict", None)  # warnings are errors where the ladder is tested
    recipes["keep_objects"] = False
    return json.dumps(recipes, indent=2)


def _start():
    """Tells the C++ side where things are. Nothing is compiled or written before it is needed but kernels.json. Returns
    the sources, and the folder that has kernels.json, and will have what is compiled."""
    installed = PACKAGE / "sources"
    sources = installed if installed.exists() else Path(_core.built_from)
    recipes = _recipes(sources)
    try:
        cache = os.environ.get("FLASH_LADDER_CACHE")
        if not cache:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flash_ladder"
        cache = Path(cache).absolute()
        build = cache / hashlib.sha256(recipes.encode()).hexdigest()[:12]
        for folder in cache, build:
            _make_own(folder)
        file = build / "kernels.json"
        if not file.exists() or file.read_text(errors="replace") != recipes:
            _write(file, lambda fresh: fresh.write_text(recipes))
        _prune(cache, build)
    except (OSError, RuntimeError) as error:  # the latter of Path.home()
        raise _core.CannotRun(f"no place for compiled kernels: {error}. FLASH_LADDER_CACHE names another folder") from None
    _core.start(str(sources), str(build))
    return sources, build


def _make_own(folder):
    """A folder whose libraries nobody else has put there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.stat()
    if state.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user, whose code would run here")
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others may write to {folder}, and their code would run here; chmod go-w changes that")


def _prune(cache, build):
    """Notes that this version's folder is in use, and removes those that have not been for long."""
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    try:
        os.utime(build / "kernels.json")
        for file in cache.glob("*/kernels.json"):
            if re.fullmatch("[0-9a-f]{12}", file.parent.name) and file.stat().st_mtime < oldest:
                shutil.rmtree(file.parent, ignore_errors=True)
    except OSError:  # a cache that may only be read, or one that another process prunes
        pass


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
    compiler = next(_program(recipe["link"]) for recipe in recipes.values() if isinstance(recipe, dict))
    # Where the compiler links libstdc++ statically, this names the one that the package's library and PyTorch have.
    command = [*compiler, "-std=c++20", "-O1", "-fPIC", "-shared", f"-I{SOURCES}", str(source),
               "-Wl,-Bsymbolic-functions", "-l:libstdc++.so.6", str(library), f"-Wl,-rpath,{PACKAGE}", *flags]
    state = library.stat()
    key = "\n".join([*command, made_for, source.read_text(), f"{state.st_mtime_ns} {state.st_size}"])
    product = BUILD / f"{source.stem}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.so"
    made = product.with_suffix(".made")  # what is in it, by which one that was damaged is known

    def compile_to(path):
        try:
            done = subprocess.run([*command, "-o", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except OSError as error:
            raise _core.CannotRun(f"{source.name} does not compile: {error}") from None
        if done.returncode != 0:
            raise _core.CannotRun(f"{source.name} does not compile:\n{' '.join(command)}\n{done.stdout[-4000:]}")

    contents = lambda: hashlib.sha256(product.read_bytes()).hexdigest()
    is_made = lambda: product.exists() and made.exists() and made.read_text(errors="replace") == contents()
    if is_made():
        return product
    with open(BUILD / f"{source.stem}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of a training's processes, which start at once, one compiles
        try:
            if not is_made():
                _write(product, compile_to)
                _write(made, lambda fresh: fresh.write_text(contents()))
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # also if a child of fork() has the file, too
    return product
