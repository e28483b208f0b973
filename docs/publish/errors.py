"""Errors of every stage, as verified on a GPU."""

from blocks import NOT_RECORDED, block
from markdown import table, titled


def worst(errors, stage, dtype):
    """The largest error of O, standard attention's on the same case, and the largest relative L2, as text."""
    own = [error for error in errors if error.stage == stage and error.dtype == dtype]
    if not own:
        return [""] * 3
    largest = max(own, key=lambda error: error.max_error)
    values = largest.max_error, largest.standard_max_error, max(error.relative_l2 for error in own)
    return [f"{value:.1e}" for value in values]


def errors_table(errors):
    columns = ["stage", *(f">{dtype}: {what}" for dtype in ("fp16", "bf16")
                          for what in ("largest error", "standard attention's", "relative L2"))]
    return table(columns, [[stage, *worst(errors, stage, "fp16"), *worst(errors, stage, "bf16")]
                           for stage in dict.fromkeys(error.stage for error in errors)])


@block("errors")
def errors_block(sources, *_):
    record = sources.record("h200-verify", "verification")
    if not record:
        return NOT_RECORDED
    normal = [error for error in record.errors if error.input == "normal"]
    tables = {"Inputs from N(0, 1)": normal, "All inputs, those made to be difficult included": record.errors}
    return f"{sources.label(record)}:\n" + "".join(titled(title, errors_table(errors)) for title, errors in tables.items())
