"""What each record of tests/ says of where it comes from."""

import datetime
import os
import platform
import subprocess
from pathlib import Path


def machine_and_commit():
    root = Path(__file__).resolve().parent.parent
    git = ["git", "-C", root]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True).stdout.strip()
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return {"date": datetime.date.today().isoformat(), "commit": commit + ("+changes" if changed else ""),
            "machine": f"{os.cpu_count()} x {names[0] if names else platform.machine()}"}
