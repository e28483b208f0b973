"""scikit-build-core's hooks for pip and build, but that an sdist also holds what lies outside of this folder: the sources
that the package is built of, and that kernels are compiled from."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from scikit_build_core import build
from scikit_build_core.build import *  # the hooks that are not changed here

HERE = Path(__file__).resolve().parent
SOURCES = ["CHANGELOG.md", "CMakeLists.txt", "LICENSE", "explorer", "harness", "python", "reference", "simt", "stages"]


def build_sdist(folder, settings=None):
    folder = os.path.abspath(folder)
    with tempfile.TemporaryDirectory() as parts:
        for file in "pyproject.toml", "CHANGELOG.md", "LICENSE", "README.md", "backend.py":
            shutil.copy(HERE / file, parts)
        unpacked = HERE / "sources"  # where this is an sdist itself
        root = unpacked if unpacked.exists() else HERE.parent
        for name in SOURCES:
            _copy(root / name, Path(parts) / "sources" / name)
        with _in_folder(parts):
            return build.build_sdist(folder, settings)


def _copy(source, destination):
    if source.is_dir():
        shutil.copytree(source, destination, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        destination.parent.mkdir(exist_ok=True)
        shutil.copy(source, destination)


@contextlib.contextmanager
def _in_folder(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
