"""What each record says of where it comes from, in the words of the other recordings in docs/results."""

import datetime
import os
import platform
import subprocess
from pathlib import Path


def machine_and_commit():
    root = Path(__file__).resolve().parent.parent
    git = ["git", "-C", root]
    commit = os.environ.get("LADDER_COMMIT", "")  # of a copy of the sources
    if not commit:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True).stdout.strip()
        commit += " with changes" if changed else ""
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"date": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": commit,
            "device": f"{os.cpu_count()} cores, {names[0] if names else platform.machine()}"}
