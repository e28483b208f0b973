"""All stages on an emulated aarch64 machine: what tests/aarch64.sh recorded."""

from blocks import NOT_RECORDED, block
from markdown import table
from records import label

STEPS = {"verify": "quick cases", "checked": "quick cases, race-checked, in all orders",
         "mutants": "kernels known to be wrong, rejected for their reasons"}


@block("aarch64")
def aarch64(sources, *_):
    record = sources.record("aarch64", "aarch64")
    if not record:
        return NOT_RECORDED
    rows = []
    for step in record.steps:
        passed = (f"{step.rejected} of {step.mutants}" if step.step == "mutants"
                  else f"{step.cases_passed} of {step.cases}")
        rows.append([STEPS[step.step], passed, "" if step.step == "mutants" else f"{step.races}", f"{step.seconds}"])
    shown = table(["step", ">passed", ">races", ">seconds"], rows)
    return f"{label(record)}, compiled by {record.compiler}:\n\n{shown}"
