"""What is distributed: a distribution of the package's sources holds all that the package is built of, wherever it is
unpacked, and a wheel its licence and version."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from conftest import BUILD

pytest.importorskip("scikit_build_core")
PROJECT = Path(__file__).resolve().parents[2] / "python"


def call_backend(call):
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", f"import backend; backend.{call}"], cwd=PROJECT, env=environment, check=True)


def test_a_wheel_has_its_licence_and_version(tmp_path):
    call_backend(f"prepare_metadata_for_build_wheel({str(tmp_path)!r})")
    folder, = tmp_path.glob("flash_ladder-*.dist-info")
    said = (folder / "METADATA").read_text(encoding="utf-8")
    newest = re.search("^## (.*)$", (PROJECT.parent / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[1]
    assert {"License: MIT", f"Version: {newest}"} <= set(said.splitlines())
    assert (folder / "licenses" / "LICENSE").read_text() == (PROJECT.parent / "LICENSE").read_text()


def test_an_sdist_is_whole(tmp_path):
    """CMake finds every source in it, and every header that one of them names is there: that takes no compiler's time."""
    if not shutil.which("cmake"):
        pytest.skip("there is no cmake")
    call_backend(f"build_sdist({str(tmp_path)!r})")
    file, = tmp_path.glob("flash_ladder-*.tar.gz")
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path / "unpacked")
    sources = next((tmp_path / "unpacked").iterdir()) / "sources"
    kernels = lambda root: {str(path.relative_to(root)) for path in root.glob("stages/*/kernel.cu")}
    assert kernels(sources) == kernels(PROJECT.parent)
    subprocess.run(["cmake", "-S", sources, "-B", tmp_path / "build", "-DLADDER_PYTHON=ON", "-DLADDER_LAB=OFF",
                    f"-DPython_EXECUTABLE={sys.executable}"], check=True, stdout=subprocess.DEVNULL)
    named = 0
    for file in [path for kind in ("cpp", "cu", "cuh", "h") for path in sources.rglob(f"*.{kind}")]:
        for header in re.findall(r'^ *# *include "([^"]+)"', file.read_text(), re.MULTILINE):
            named += 1
            made = header == "built_of.h" and (sources / "harness/built_of.cmake").exists()
            assert made or (sources / header).exists() or (file.parent / header).exists(), f"{file} includes {header}"
    assert named > 100


def test_an_installed_package_has_all_that_its_operators_include(tmp_path):
    """PyTorch's operators are compiled where the package is installed."""
    if not BUILD or not shutil.which("cmake"):
        pytest.skip("there is no build to install, or no cmake")
    subprocess.run(["cmake", "--install", BUILD, "--component", "python", "--prefix", tmp_path], check=True,
                   stdout=subprocess.DEVNULL)
    sources = tmp_path / "flash_ladder" / "sources"
    found, left = set(), ["python/src/torch.cpp"]
    while left:
        found.add(header := left.pop())
        named = re.findall(r'^ *# *include "([^"]+)"', (sources / header).read_text(), re.MULTILINE)
        left += set(named) - found
    assert "harness/features/given.h" in found
