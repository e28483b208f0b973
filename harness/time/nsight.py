"""Nsight Compute: which of its metrics `lab profile` asks for, how it is run, and how its output is read.

    nsight.py < REQUEST

`lab profile` runs it (harness/time/profile.cpp) and says as JSON: "lab", its own command, which with --occupancy --json
writes a profile without metrics; "file", where that goes and gets its metrics; "limit", the seconds that this may take;
"bytes", whether only HBM's are counted, each kernel once, after those that the stage launched before it. The answer is
JSON too: "error", why there are no metrics, and "code", lab's exit code.
"""

import csv
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

SHARED = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
OF_PEAK = "avg.pct_of_peak_sustained_elapsed"
# Nsight Compute's names of each; the first that this GPU knows is taken. Percentages of a pipe are of what all
# multiprocessors together could do in the time.
METRICS = {
    "duration_ns": ["gpu__time_duration.sum"], "sm_busy_pct": [f"sm__cycles_active.{OF_PEAK}"],
    "tensor_pipe_pct": [f"sm__pipe_tensor_cycles_active.{OF_PEAK}", f"sm__pipe_tensor_op_hmma_cycles_active.{OF_PEAK}",
                        f"sm__inst_executed_pipe_tensor.{OF_PEAK}"],
    **{f"{pipe}_pipe_pct": [f"sm__inst_executed_pipe_{pipe}.{OF_PEAK}"] for pipe in ("xu", "fma", "alu")},
    "issue_pct": ["smsp__issue_active.avg.pct_of_peak_sustained_active"], "instructions": ["smsp__inst_executed.sum"],
    "warps_active": ["sm__warps_active.avg.per_cycle_active"], "hbm_read_bytes": ["dram__bytes_read.sum"],
    "hbm_write_bytes": ["dram__bytes_write.sum"],
    "hbm_pct": [f"dram__throughput.{OF_PEAK}", f"gpu__dram_throughput.{OF_PEAK}"], "l2_bytes": ["lts__t_bytes.sum"],
    "l2_hit_pct": ["lts__t_sector_hit_rate.pct"],
    "shared_pipe_pct": [f"l1tex__data_pipe_lsu_wavefronts_mem_shared.{OF_PEAK}"],
    "shared_wavefronts": ["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"], "bank_conflicts": [f"{SHARED}.sum"],
    "bank_conflicts_load": [f"{SHARED}_op_ld.sum"], "bank_conflicts_store": [f"{SHARED}_op_st.sum"],
    "bank_conflicts_ldmatrix": ["smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum"]}
# Why warps waited, in cycles per issued instruction, so that the sum, with "selected", the cycle in which it is issued, is
# how long an instruction takes.
STALLS = ("not_selected", "barrier", "long_scoreboard", "short_scoreboard", "math_pipe_throttle", "mio_throttle",
          "lg_throttle", "wait", "no_instruction", "branch_resolving", "dispatch_stall", "imc_miss", "drain", "membar",
          "sleeping", "tex_throttle", "misc", "gmma")
METRICS |= {f"stall_{why}": [f"smsp__average_warps_issue_stalled_{why}_per_issue_active.ratio"] for why in ("selected", *STALLS)}
# These fit one pass. More would have ncu save and restore a stage's whole workspace.
OF_BYTES = "duration_ns", "hbm_read_bytes", "hbm_write_bytes"


class Failure(Exception):
    """Why there are no metrics, and the exit code that says of which kind that is."""

    def __init__(self, why, code=3):
        super().__init__(why)
        self.code = code


def find_ncu():
    newest_first = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    for candidate in ("ncu", "/usr/local/cuda/bin/ncu", *map(str, newest_first)):
        if found := shutil.which(candidate):
            return found
    raise Failure("there is no ncu (Nsight Compute): it comes with the CUDA toolkit, package cuda-nsight-compute-<version>, "
                  "or nsight-compute of Debian and Ubuntu; --occupancy works without it")


def run(command, limit):
    """Its exit code, None if the time was over, and what it wrote. It and all that it started are ended once the time is
    over, or lab is."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                              env={**os.environ, "LC_ALL": "C"}) as program:  # numbers with a decimal point
            def lab_has_ended():
                sys.stdin.read()
                if program.poll() is None:
                    os.killpg(program.pid, signal.SIGKILL)

            threading.Thread(target=lab_has_ended, daemon=True).start()
            try:
                status = program.wait(limit)
            except BaseException as error:
                os.killpg(program.pid, signal.SIGTERM)
                try:
                    program.wait(5)
                finally:
                    os.killpg(program.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                status = None
        for file in (out, err):
            file.seek(0)
        return status, out.read(), err.read()


def line_after(prefix, text):
    """What follows the prefix on the first line that starts with it; empty if none does."""
    return next((line.removeprefix(prefix) for line in text.splitlines() if line.startswith(prefix)), "")


def launches_in(text):
    """The launches in `ncu --csv --page raw`, each with its cells by title; what else is in the text is passed over."""
    launches, titles = [], None
    for line in text.splitlines():
        if line.startswith('"ID",'):
            titles = next(csv.reader([line]))
        elif titles and line.startswith('"'):
            cells = next(csv.reader([line]))
            if len(cells) != len(titles):
                raise Failure(f"Nsight Compute's table has a row of {len(cells)} cells under {len(titles)} titles", 1)
            if cells[0]:  # the row of units has none
                launches.append(dict(zip(titles, cells)))
    return launches


def number(text):
    """Of "1,234.5"; None for "n/a" and other words."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def base_name(kernel):
    """See kernel_base_name() of harness/device/stopwatch.h."""
    return re.split("[<(]", re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", kernel))[0].split("::")[-1].split(" ")[-1]


def is_refused(name, text):
    """Whether an error names the metric, with its suffix or without."""
    named = re.compile(r"==(ERROR|WARNING)==.*" + re.escape(name.partition(".")[0]) + r"(?!\w)")
    return any(named.match(line) for line in text.splitlines())


def why_not(status, out, err, limit, otherwise):
    """What the outcome of such a run says of why there is none."""
    text = f"{out}\n{err}"
    if status is None:
        return Failure(f"Nsight Compute did not finish in {limit} s; name fewer stages, or a smaller --shape")
    if "ERR_NVGPUCTRPERM" in text:
        return Failure("the driver keeps the GPU's counters from this user (ERR_NVGPUCTRPERM). On your own machine load it "
                       "with NVreg_RestrictProfilingToAdminUsers=0, or run as root; start a container with "
                       "--cap-add=SYS_ADMIN; in a rented one, root or not, only the provider can allow it. lab count and lab "
                       "profile --occupancy work without")
    if said := line_after("lab: ", err):
        return Failure(said, 3 if status == 3 or "error code (3)" in text else 1)
    if error := line_after("==ERROR== ", text):
        return Failure(f"Nsight Compute: {error}")
    return Failure(f"Nsight Compute ended with exit code {status}") if status else Failure(otherwise, 1)


def add_metrics(profile, launches):
    """The launches of the profile and Nsight Compute's are the same, in the same order."""
    kernels = [kernel for row in profile["rows"] for kernel in row["kernels"]]
    for kernel, launch in zip(kernels, launches):
        values = {key: next((number(launch[name]) for name in names if number(launch.get(name, "")) is not None), None)
                  for key, names in METRICS.items()}
        kernel |= {"kernel": base_name(launch["Kernel Name"]),
                   "metrics": {key: value for key, value in values.items() if value is not None}}
    return len(kernels)


def profile_with_nsight(lab, file, limit, bytes):
    """Adds the metrics to the profile that lab writes into the file."""
    ncu, file = find_ncu(), Path(file)
    names = [name for key, names in METRICS.items() if not bytes or key in OF_BYTES for name in names]
    while True:
        # Profiled is what runs between cudaProfilerStart and cudaProfilerStop.
        ran = run([ncu, *"--csv --page raw --print-units base --clock-control none --profile-from-start off "
                   "--target-processes application-only --cache-control".split(), "none" if bytes else "all", "--metrics",
                   ",".join(names), *lab, "--occupancy", "--json", str(file)], limit)
        launches = launches_in(ran[1])
        # Some versions pass over a name that they do not know, some refuse them all.
        known = [name for name in names if launches or not is_refused(name, "\n".join(ran[1:]))]
        if known == names:
            break
        names = known
    if not file.exists():
        raise why_not(*ran, limit, "Nsight Compute ran nothing")
    try:
        profile = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return  # lab says what is wrong with its file
    if (launched := add_metrics(profile, launches)) != len(launches):
        reports = f"{len(launches)} launch{'' if len(launches) == 1 else 'es'}"
        raise why_not(*ran, limit, f"Nsight Compute reports {reports}; lab made {launched}")
    version = line_after("Version ", subprocess.run([ncu, "--version"], capture_output=True, text=True).stdout)
    profile["profiler"] = f"Nsight Compute {version.split(' ')[0] or 'of an unknown version'}"
    file.write_text(json.dumps(profile), encoding="utf-8")


def main():
    try:
        profile_with_nsight(**json.loads(sys.stdin.readline()))
        print("{}")
    except Failure as failure:
        print(json.dumps({"error": str(failure), "code": failure.code}))


if __name__ == "__main__":
    main()
