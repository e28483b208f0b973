#!/usr/bin/env python3
"""Tests examples/triton and what shows its recording.

    test_triton.py                the example's length, and the tables of a recording
    test_triton.py --interpret    its results, by Triton's interpreter; says "SKIPPED: ..." where that cannot run
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples/triton"
STAGES = "04_split_q", "05_causal_skip"  # which it follows
sys.path[:0] = [str(ROOT / "docs/publish"), str(ROOT / "tests")]
sys.dont_write_bytecode = True

# B, H, Hkv, Nq, Nk, d: one row; ragged tiles and groups of heads; rows without keys; one row and many keys
SHAPES = [(1, 1, 1, 1, 1, 64), (2, 4, 2, 70, 90, 64), (1, 2, 2, 130, 65, 64), (1, 3, 1, 1, 500, 128)]


def example_row(name, ms, causal, **changes):
    from sample_records import row_of
    row = row_of("causal", 0, ms, causal=causal, Nq=2048, **changes)
    used = {"registers": 140, "spilled_words": 2, "shared_bytes": 49152, "threads": 128, "blocks_per_sm": 3,
            "warps_per_sm": 12, "limited_by": "registers"}
    return dict(row, **({"kernel": name, "compiled": {"attention": used}} if " " in name else {"folder": name}))


class TritonTest(unittest.TestCase):
    def test_the_kernels_fit_their_page(self):
        lines = (EXAMPLE / "attention.py").read_text(encoding="utf-8").splitlines()
        self.assertLessEqual(len(lines), 150)
        self.assertLessEqual(max(map(len, lines)), 120)

    def test_what_the_page_quotes_is_in_the_sources(self):
        page = (ROOT / "docs/triton.md").read_text(encoding="utf-8")
        kernels = [ROOT / "stages" / stage / "kernel.cu" for stage in STAGES]
        for language, files in (("python", [EXAMPLE / "attention.py"]), ("cpp", kernels)):
            sources = "".join(file.read_text(encoding="utf-8") for file in files)
            listings = [rest.split("```")[0] for rest in page.split(f"```{language}\n")[1:]]
            for line in "".join(listings).splitlines():
                for part in line.partition("  #")[0].split("..."):
                    self.assertIn(part.strip(), sources)

    def test_tables_of_a_recording(self):
        import in_triton
        from sources import Sources
        rows = [example_row(name, ms, True) for name, ms in ((STAGES[0], 2.0), (STAGES[1], 1.0),
                                                             ("Triton 04", 3.0), ("Triton 05", 2.0))]
        rows[2]["verified"] = False
        record = {"kind": "triton", "version": 2, "date": "2026-11-26", "commit": "0123456789", "hardware": {"gpu": "Test GPU"},
                  "libraries": {"Triton": "3.6.0"}, "kernels": {}, "rows": rows,
                  "judged": {"Triton 05": {"cases": 13, "passed": 13}}}
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(in_triton.triton(Sources("", Path(folder))), "Not recorded yet.\n")
            (Path(folder) / "h100-triton.json").write_text(json.dumps(record))
            sources = Sources("", Path(folder))
            sources.stages = {}  # which lab would list: of no kernel here is it asked whether it has changed
            shown = in_triton.triton(sources)
        self.assertIn("Recorded on Test GPU, 2026-11-26, commit 0123456; Triton 3.6.0. Verified: "
                      "Triton 05 passed 13 of 13 cases:\n", shown)
        self.assertIn(f"| {STAGES[1]} | 137 |\n| Triton 04 | WRONG |\n| Triton 05 | 68.7 |\n", shown)
        self.assertIn("causal | 2.00x | |\n", shown)
        self.assertIn("| Triton 05 | attention | 128 | causal | 140 | 8 | 49,152 | 128 | 3 | 12 | registers |\n", shown)


def interpret():
    """Runs 04, 05 and 06 on small problems, and holds them to attention in double precision."""
    import torch
    sys.path.insert(0, str(EXAMPLE))
    from attention import attention, decode
    torch.set_num_threads(1)
    for shape in SHAPES:
        for causal in (False, True):
            B, H, Hkv, Nq, Nk, d = shape
            torch.manual_seed(1)
            q = torch.randn(B, Nq, H, d, dtype=torch.float16).transpose(1, 2)
            k, v = (torch.randn(B, Hkv, Nk, d, dtype=torch.float16) for _ in range(2))
            K, V = (x.double().repeat_interleave(H // Hkv, 1) for x in (k, v))
            S = q.double() @ K.transpose(2, 3) * d**-0.5
            if causal:
                S = S.masked_fill(torch.ones(Nq, Nk, dtype=torch.bool).tril(Nk - Nq).logical_not(), -math.inf)
            L = S.logsumexp(3)
            O = torch.exp(S - L.nan_to_num(neginf=0.0)[..., None]) @ V
            for name, (got, lse) in (("04", attention(q, k, v, causal, skip=False)), ("05", attention(q, k, v, causal)),
                                     ("06", decode(q, k, v, causal, sm_count=8))):
                error = (got.double() - O).norm() / O.norm().clamp(min=1e-30)
                L_error = torch.where(lse == L, 0.0, (lse - L).abs()).max()
                assert error < 1e-3 and L_error < 1e-4, (name, shape, causal, error, L_error)


def main():
    if "--interpret" not in sys.argv:
        unittest.main()
    if os.environ.get("TRITON_INTERPRET") == "1":
        return interpret()
    found = subprocess.run([ROOT / "tests/find_python.sh", "triton", "torch", "numpy"], capture_output=True, text=True,
                           check=False)
    if found.returncode != 0:
        return print("SKIPPED: no Python here has Triton, PyTorch and NumPy")
    python = found.stdout.strip()
    # The interpreter of Triton 3.6 takes arrays of one element for numbers
    if subprocess.run([python, "-W", "ignore", "-c", "import numpy; int(numpy.array([1]))"], capture_output=True,
                      check=False).returncode != 0:
        return print("SKIPPED: the NumPy here is too new for Triton's interpreter")
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.run([python, __file__, "--interpret"], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
