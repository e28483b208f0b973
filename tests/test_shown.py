#!/usr/bin/env python3
"""Tests what `lab test` shows of its steps, in a log and in a terminal, with a CTest that is a stub."""

import os
import pty
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CTEST = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in --output-junit) report=$2 ;; esac; shift; done
echo '1/3 Test #1: mutants: one ......   Passed    0.01 sec'
sleep 2.5
echo '2/3 Test #2: mutants: two ......***Failed    0.01 sec'
echo '3/3 Test #3: mutants: three ....   Passed    0.01 sec'
echo '<testsuite tests="3" failures="1" disabled="0" skipped="0">' > "$report"
"""


class ShownTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name)
        (self.build / "CMakeCache.txt").write_text("LADDER_CPU:BOOL=ON\n")
        (self.build / "Testing/Temporary").mkdir(parents=True)
        (self.build / "Testing/Temporary/LastTest.log").touch()
        (self.build / "ctest").write_text(CTEST)
        (self.build / "ctest").chmod(0o755)
        self.command = [ROOT / "tests/all.sh", folder.name, "", "mutants"]
        self.env = os.environ | {"PATH": f"{folder.name}:{os.environ['PATH']}"}

    def assert_told(self, text):
        self.assertRegex(text, r"mutants +2 passed, 1 failed, 0 skipped \(\d+ s, \d+ s of processors\)\n"
                               r" +2/3 Test #2: mutants: two .*Failed .*\n +all of it is in .*/mutants.log\n")
        self.assertRegex(text, r"\n2 passed, 1 failed, 0 skipped\n$")

    def test_a_log_has_a_line_for_each_step(self):
        said = subprocess.run(self.command, env=self.env, capture_output=True, text=True)
        self.assertEqual((said.returncode, said.stderr), (1, ""))
        self.assertTrue(said.stdout.startswith("mutants "), said.stdout)
        self.assertNotIn("1/3", said.stdout)
        self.assert_told(said.stdout)

    def test_a_terminal_shows_how_far_a_step_is(self):
        terminal, end = pty.openpty()
        with subprocess.Popen(self.command, env=self.env, stdout=end, stderr=end) as running:
            os.close(end)
            said = b""
            try:
                while part := os.read(terminal, 4096):
                    said += part
            except OSError:  # the other end is closed
                pass
        self.assertEqual(running.returncode, 1)
        text = said.decode().replace("\r\n", "\n")
        shown = [line for line in text.split("\r\033[K") if line]
        self.assertEqual(shown[0].rstrip(), "mutants")
        self.assertRegex(shown[1], r"^mutants +1/3 Test #1: mutants?")
        self.assertLess(max(map(len, shown[:-1])), 80)  # no line of a terminal of 80 columns is full
        self.assert_told(shown[-1])


if __name__ == "__main__":
    unittest.main()
