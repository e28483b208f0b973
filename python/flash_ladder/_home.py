"""Where the package's sources are, and the folder in which it keeps what it compiles."""

import hashlib
import json
import os
import shutil
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


def start():
    """Tells the C++ side where things are. Nothing is compiled or written before it is needed but kernels.json. Returns
    the folder that has it, and will have what is compiled."""
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
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.write_text(recipes)
        fresh.replace(file)  # whole or not at all
    _core.start(str(sources), str(build))
    return build


BUILD = start()
_versions = {}  # of the kernels of one's own: when each was written, and under which path it was loaded


def current(word):
    """The path by which a kernel of one's own is loaded as it is now. A process loads a path once; what has changed
    since then is loaded from a copy of its folder."""
    folder = Path(word) if Path(word).is_dir() else Path(word).parent
    kernel = folder / "kernel.cu" if Path(word).is_dir() else Path(word)
    try:
        state = kernel.stat()
    except OSError:
        return word  # whoever loads it says what is wrong
    written = state.st_mtime_ns, state.st_size
    known, path = _versions.setdefault(word, (written, word))
    if known != written:
        text = hashlib.sha256(kernel.read_bytes()).hexdigest()[:12]
        copy = BUILD / "own" / text / folder.absolute().name
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        path = str(copy / kernel.name)
        _versions[word] = written, path
    return path
