#!/usr/bin/env bash
# Executes every notebook from a clean kernel and compares its text with what is committed. Pictures are not committed:
# BUILD/notebooks has the notebooks with them, for the site.
# Usage: notebooks.sh BUILD [--check | --update | --pictures]: BUILD has lab; --update writes the new text instead of
# comparing it; --pictures executes only those whose pictures are missing or older than what they show.
# Exit codes: 0 ok, 1 a notebook differs or fails, 2 bad usage, 3 there is no Python that has Jupyter.
set -uo pipefail

mode=${2:---check}
case "$#:$mode" in
    [12]:--check | 2:--update | 2:--pictures) ;;
    *)
        echo 'usage: notebooks.sh BUILD [--check | --update | --pictures]' >&2
        exit 2
        ;;
esac
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

exec "$python" - "$root/notebooks" "$LADDER_LAB" "$mode" << 'PYTHON'
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
    notebook.metadata["language_info"] = {"name": "python"}
    write(notebook, PICTURES / file.name)
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        output.get("data", {}).pop("image/png", None)
    if update:
        write(notebook, file)
        return []
    return list(difflib.unified_diff(text(committed), text(notebook), "committed", "now", lineterm="", n=0))


def write(notebook, file):
    partial = file.with_suffix(".partial")
    partial.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    partial.replace(file)


def has_pictures(file):
    made = PICTURES / file.name
    shown = [file, file.parent / "ladder.py", LAB, *file.parent.glob("../docs/results/*.json")]
    return made.exists() and made.stat().st_mtime > max(path.stat().st_mtime for path in shown)


# It clones, installs and builds a machine anew, and what it prints is that machine's: its code is only compiled here.
ELSEWHERE = "colab.ipynb"


def only_compile(file):
    for number, cell in enumerate(nbformat.read(file, as_version=4).cells):
        if cell.cell_type == "code":
            compile(cell.source, f"{file.name}, cell {number}", "exec")
            if cell.outputs:
                return [f"cell {number}: has outputs, which nothing compares"]
    return []


folder, LAB, mode = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
update = mode == "--update"
PICTURES = LAB.parent / "notebooks"
PICTURES.mkdir(exist_ok=True)
failed = 0
for file in sorted(folder.glob("*.ipynb")):
    if mode == "--pictures" and (file.name == ELSEWHERE or has_pictures(file)):
        continue
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
