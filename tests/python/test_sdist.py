"""A distribution of the package's sources: it holds all that the package is built of, wherever it is unpacked."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("scikit_build_core")
PROJECT = Path(__file__).resolve().parents[2] / "python"


def test_an_sdist_is_whole(tmp_path):
    """CMake finds every source in it, and every header that one of them names is there: that takes no compiler's time."""
    if not shutil.which("cmake"):
        pytest.skip("there is no cmake")
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", f"import backend; backend.build_sdist({str(tmp_path)!r})"], cwd=PROJECT,
                   env=environment, check=True)
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
            assert (sources / header).exists() or (file.parent / header).exists(), f"{file} includes {header}"
    assert named > 100
