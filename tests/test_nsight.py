#!/usr/bin/env python3
"""Tests what `lab profile` asks of Nsight Compute, by an ncu of a few lines of shell."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "harness/time/nsight.py"
sys.path.insert(0, str(PROGRAM.parent))
sys.dont_write_bytecode = True

from nsight import base_name  # noqa: E402

PRELUDE = """#!/bin/sh
here=$(dirname "$0")
if [ "$1" = --version ]; then echo 'Version 2025.3.1.0 (build 1)'; exit; fi
while [ $# -gt 0 ]; do
    case $1 in --json) json=$2 ;; --metrics) metrics=$2 ;; esac
    shift
done
"""
HAPPY = 'cp "$here/there.json" "$json"; cat "$here/raw.csv"\n'
DONE = 'cp "$here/there.json" "$json"; '
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
# Four launches, with what else is in Nsight Compute's output
RAW = f'''==PROF== Connected to process 42 (/work/build/lab)
stage  kernel
"ID","Process ID","Kernel Name","gpu__time_duration.sum","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",\
"{STALLED.format("barrier")}","{STALLED.format("selected")}","{STALLED.format("wait")}","{CONFLICTS}.sum"
"","","","ns","%","inst","inst","inst",""
"0","42","void <unnamed>::attention<__nv_bfloat16, 128>(ladder::Problem)","3,278,016","11.25","6","1.00","3","0"
"1","42","void <unnamed>::attention<__nv_bfloat16, 128>(ladder::Problem)","1,041,000","34.5","1","1.00","2","n/a"
"2","42","attention","200,000","n/a","1","1","2","12"
"3","42","merge","4,000","0","(!) nan","","1e400","0"
'''


class NsightTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        kernel = {"kernel": "kernel", "registers": 168, "metrics": {}}
        rows = [{"kernels": [kernel] * count} for count in (0, 1, 1, 2)]
        (self.folder / "there.json").write_text(json.dumps({"profiler": "", "rows": rows}))
        (self.folder / "raw.csv").write_text(RAW)

    def asked(self, body, limit=60, bytes=False, input_ends=False):
        """The answer, with an ncu of that body."""
        ncu = self.folder / "ncu"
        ncu.write_text(PRELUDE + body)
        ncu.chmod(0o755)
        (self.folder / "profile.json").unlink(missing_ok=True)
        request = {"lab": ["lab", "profile"], "file": str(self.folder / "profile.json"), "limit": limit, "bytes": bytes}
        path = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        with subprocess.Popen([sys.executable, PROGRAM], env=path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as program:
            program.stdin.write(json.dumps(request) + "\n")
            program.stdin.flush()
            if input_ends:
                program.stdin.close()
            return json.loads(program.stdout.readline())

    def kernels(self):
        profile = json.loads((self.folder / "profile.json").read_text())
        self.assertEqual(profile["profiler"], "Nsight Compute 2025.3.1.0")
        return [kernel for row in profile["rows"] for kernel in row["kernels"]]

    def test_metrics_join_the_launches_in_their_order(self):
        self.assertEqual(self.asked(HAPPY), {})
        sliced_k, split_q, attention, merge = self.kernels()
        self.assertEqual((sliced_k["kernel"], sliced_k["registers"], attention["kernel"]), ("attention", 168, "attention"))
        self.assertEqual(sliced_k["metrics"], {"duration_ns": 3278016, "tensor_pipe_pct": 11.25, "stall_barrier": 6,
                                               "stall_selected": 1, "stall_wait": 3, "bank_conflicts": 0})
        self.assertEqual(split_q["metrics"]["duration_ns"], 1041000)
        self.assertNotIn("bank_conflicts", split_q["metrics"])  # n/a
        # What is no number, an empty cell, or beyond every number is not there.
        self.assertEqual((merge["kernel"], merge["metrics"]),
                         ("merge", {"duration_ns": 4000, "tensor_pipe_pct": 0, "bank_conflicts": 0}))

    def test_a_kernels_name_without_its_types(self):
        for name in ("attention", "void (anonymous namespace)::attention<__nv_bfloat16, (int)128>(ladder::Problem)",
                     "attention(ladder::Problem)", "void ladder::gpu::attention<ladder::Shared<int (*)(int)>>()"):
            self.assertEqual(base_name(name), "attention")

    def test_bytes_alone_take_three_metrics_and_leave_the_cache_as_it_is(self):
        looks = "case $metrics in *stall*|*l2_*|*lts__*) exit 9 ;; *dram__bytes_write.sum*) ;; *) exit 9 ;; esac\n"
        self.assertEqual(self.asked(looks + HAPPY, bytes=True), {})
        self.assertIn("exit code 9", self.asked(looks + HAPPY)["error"])

    def test_metrics_that_ncu_refuses_are_left_out(self):
        self.assertEqual(self.asked(f"""echo x >> "$here/calls"
            refuse() {{ case $metrics in *$1*) echo "==ERROR== Failed to find metric $2"; exit 1 ;; esac; }}
            refuse stalled_gmma smsp__average_warps_issue_stalled_gmma_per_issue_active
            refuse conflicts_pipe_lsu_mem_shared.sum {CONFLICTS}.sum
            case $metrics in *mem_shared_op_ld.sum*) ;; *) exit 9 ;; esac
            {HAPPY}"""), {})
        self.assertEqual(self.kernels()[0]["metrics"]["tensor_pipe_pct"], 11.25)
        self.assertEqual((self.folder / "calls").read_text(), "x\nx\nx\n")

    def test_what_keeps_it_from_measuring_is_said_in_one_line(self):
        no_right = self.asked(DONE + "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission.'\n")
        self.assertEqual(no_right["code"], 3)
        for way in ("NVreg_RestrictProfilingToAdminUsers=0", "--cap-add=SYS_ADMIN", "the provider", "lab count"):
            self.assertIn(way, no_right["error"])
        code = "echo '==ERROR== The application returned an error code ({}).'; exit 1\n"
        for body, why, exit_code in (
                ("echo '==ERROR== Failed to initialize the profiler: LibraryNotLoaded' >&2; exit 1\n",
                 "Nsight Compute: Failed to initialize the profiler: LibraryNotLoaded", 3),
                ("exit 5\n", "Nsight Compute ended with exit code 5", 3),
                ("echo 'lab: 04_split_q: run: illegal address' >&2\n" + code.format(1), "04_split_q: run: illegal address", 1),
                ("echo 'lab: Q needs 80 GiB' >&2\n" + code.format(3), "Q needs 80 GiB", 3),
                (DONE + "echo '\"ID\",\"Kernel Name\"'; echo '\"0\",\"a\",\"b\"'\n",
                 "Nsight Compute's table has a row of 3 cells under 2 titles", 1),
                (DONE + 'head -n 5 "$here/raw.csv"\n', "Nsight Compute reports 1 launch; lab made 4", 1),
                ("exit 0\n", "Nsight Compute ran nothing", 1)):
            self.assertEqual(self.asked(body), {"error": why, "code": exit_code})

    def test_a_program_that_hangs_is_ended_with_all_that_it_started(self):
        hang = DONE + "(trap '' TERM; sleep 60; :) & echo $! > \"$here/pid\"; sleep 60\n"
        for limit, input_ends in ((1, False), (60, True)):  # the time is over, or lab has ended
            began = time.monotonic()
            said = self.asked(hang, limit, input_ends=input_ends)
            if not input_ends:
                self.assertIn("did not finish in 1 s", said["error"])
            other = Path("/proc", (self.folder / "pid").read_text().strip(), "cmdline")
            while other.exists() and other.read_bytes() and time.monotonic() < began + 20:
                time.sleep(0.05)
            self.assertLess(time.monotonic(), began + 20)


if __name__ == "__main__":
    unittest.main()
