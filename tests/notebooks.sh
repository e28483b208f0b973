#!/usr/bin/env bash
# Executes every notebook from a clean kernel and compares its text with what is committed. Images are not compared.
# Usage: notebooks.sh BUILD [--check | --update]: BUILD has lab; --update writes the new outputs instead of comparing them.
# Exit codes: 0 ok, 1 a notebook differs or fails, 2 bad usage, 3 there is no Python that has Jupyter.
set -uo pipefail

mode=${2:---check}
if [ $# -lt 1 ] || [ $# -gt 2 ] || { [ "$mode" != --check ] && [ "$mode" != --update ]; }; then
    echo 'usage: notebooks.sh BUILD [--check | --update]' >&2
    exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LADDER_LAB=$(readlink -f -- "$1")/lab
if [ ! -x "$LADDER_LAB" ]; then
    echo "notebooks.sh: there is no $1/lab" >&2
    exit 2
fi
if ! python=$("$root/notebooks/find_python.sh"); then
    echo 'notebooks.sh: no Python here has what the notebooks need; ./lab notebooks --check installs it' >&2
    exit 3
fi
export LADDER_LAB PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore PYDEVD_DISABLE_FILE_VALIDATION=1

exec "$python" - "$root/notebooks" "$mode" << 'PYTHON'
import difflib
import re
import sys
import time
from pathlib import Path

import nbclient
import nbformat

# A kernel of this very Python, whatever Jupyter has installed under the name python3.
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager


def join(cell):
    """Text that arrived in pieces becomes one output, so that a file does not depend on the pieces."""
    joined = []
    for output in cell.outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    cell.outputs = joined


def text(notebook):
    lines = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                shown = output.text
            elif "image/png" in output.get("data", {}):
                shown = "(an image)"
            else:
                shown = output.get("data", {}).get("text/plain", "")
            lines += [f"cell {number}: {line}" for line in shown.splitlines()]
    return lines


def execute(file, update):
    committed = nbformat.read(file, as_version=4)
    notebook = nbformat.read(file, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager())
    manager.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}",
                                "--IPKernelApp.log_level=ERROR"]
    client = nbclient.NotebookClient(notebook, km=manager, timeout=600, record_timing=False,
                                     resources={"metadata": {"path": str(file.parent)}})
    client.owns_km = True  # it ends the kernel, too
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            join(cell)
    if update:
        notebook.metadata["language_info"] = {"name": "python"}
        partial = file.with_suffix(".partial")
        partial.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
        partial.replace(file)
        return []
    return list(difflib.unified_diff(text(committed), text(notebook), "committed", "now", lineterm="", n=0))


# It clones, installs and builds a machine anew, and what it prints is that machine's: its code is only compiled here.
ELSEWHERE = "colab.ipynb"


def only_compile(file):
    for number, cell in enumerate(nbformat.read(file, as_version=4).cells):
        if cell.cell_type == "code":
            compile(cell.source, f"{file.name}, cell {number}", "exec")
            if cell.outputs:
                return [f"cell {number}: has outputs, which nothing compares"]
    return []


folder, update = Path(sys.argv[1]), sys.argv[2] == "--update"
failed = 0
for file in sorted(folder.glob("*.ipynb")):
    started = time.monotonic()
    try:
        difference = only_compile(file) if file.name == ELSEWHERE else execute(file, update)
    except SyntaxError as error:
        difference = [str(error)]
    except nbclient.exceptions.CellExecutionError as error:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # no colours
        difference = [line for line in plain.splitlines() if line.strip()][-12:]
    failed += bool(difference)
    outcome = "FAILED" if difference else "written" if update and file.name != ELSEWHERE else "passed"
    print(f"{file.name:32} {outcome} ({time.monotonic() - started:.0f} s)", flush=True)
    for line in difference[:40]:
        print("   ", line)
sys.exit(1 if failed else 0)
PYTHON
