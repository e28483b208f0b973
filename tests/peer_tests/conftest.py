"""Runs of the FlashAttention project's tests those that choose.py has chosen, and writes the record that
tests/peer_tests.sh --json asks for. Under pytest-xdist each process does the first, and one of them the second."""

import json
import os
import random
import time
from collections import Counter
from datetime import datetime, timezone

import choose
import pytest
import torch

with open(os.environ["PEER_TESTS_PLAN"]) as plan:
    PLAN = json.load(plan)
COUNTS, CASES = PLAN["counts"], PLAN["cases"]
if worker := os.environ.get("PYTEST_XDIST_WORKER"):  # gw0, gw1 ...: the host's GPUs in turns
    torch.cuda.set_device(int(worker[2:]) % torch.cuda.device_count())
outcomes, began = Counter(), time.monotonic()
seconds = int(os.environ.get("PEER_TESTS_SECONDS") or 0)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    """The chosen cases alone, in place of all: to make half a million tests takes minutes."""
    marks = metafunc.definition.own_markers
    if not any(mark.name == "parametrize" for mark in marks):
        return
    marks[:] = [mark for mark in marks if mark.name != "parametrize"]
    cases = list(choose.cases(metafunc.function))
    chosen = [cases[i] for i in CASES.get(metafunc.function.__name__, [])]
    metafunc.parametrize(list(cases[0]), [list(case.values()) for case in chosen],
                         ids=["-".join(f"{name}={x}" for name, x in case.items()) for case in chosen])


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if item.originalname in CASES]
    random.Random(11).shuffle(items)  # so that those of a limited time are a sample


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol():
    return True if seconds and time.monotonic() - began > seconds else None  # not run, and not reported


def pytest_runtest_logfinish():
    if torch.cuda.is_initialized() and torch.cuda.memory_reserved() > 2**32:
        torch.cuda.empty_cache()  # other processes need it, too


def pytest_runtest_logreport(report):
    if report.failed or report.skipped or report.when == "call":
        outcomes[report.outcome] += 1


def record():
    """What was chosen, and what came of it."""
    ran = sum(outcomes.values())
    return {"collected": COUNTS["collected"], "passed": outcomes["passed"], "failed": outcomes["failed"],
            "skipped": COUNTS["skipped"] + outcomes["skipped"], "each_alone": COUNTS["each_alone"],
            "left_out": {**COUNTS["left_out"], "not drawn": COUNTS["asked"] - ran}}


def pytest_terminal_summary(terminalreporter):
    for line in choose.lines(COUNTS):
        terminalreporter.write_line(line)
    terminalreporter.write_line(f"{outcomes['passed']} passed, {outcomes['failed']} failed, "
                                f"{COUNTS['asked'] - sum(outcomes.values())} were not drawn")


def pytest_sessionfinish(session):
    file = os.environ.get("PEER_TESTS_JSON")
    if not file or hasattr(session.config, "workerinput"):
        return
    results = {"kind": "peer-tests", "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
               "commit": os.environ["LADDER_COMMIT"], "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
               "project": "FlashAttention", "project_commit": os.environ["PEER_COMMIT"], **record(),
               "seconds": round(time.monotonic() - began)}
    with open(file, "w") as out:
        json.dump(results, out, indent=1)
        out.write("\n")
