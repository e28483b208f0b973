"""What lessons predicted, which is data beside them, and what came of it."""

import json
import re

from blocks import Failure, block
from markdown import table, times
from quantities import find
from records import DRIFT, ROOT, machine_label

KINDS = ("derived", "from a trial", "fitted afterwards")
NEEDED, OPTIONAL = ("problem", "quantity", "value", "gpu", "date", "kind"), ("from", "parent", "recorded", "not_measured")


def of_stage(stage):
    """The rows of its predictions.json, checked."""
    path = ROOT / "stages" / stage.folder / "predictions.json"
    name = f"{stage.folder}/predictions.json"
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failure(f"cannot read {name}: {error}") from error
    for row in rows:
        if wrong := [*(f"no '{key}'" for key in NEEDED if key not in row),
                     *(f"a '{key}'" for key in row if key not in NEEDED + OPTIONAL)]:
            raise Failure(f"{name}: a row has {wrong[0]}")
        if row["kind"] not in KINDS:
            raise Failure(f"{name}: '{row['kind']}' is none of {', '.join(KINDS)}")
        if row["kind"] != "derived" and not row.get("from"):
            raise Failure(f"{name}: what is {row['kind']} says of what, in 'from'")
    return rows


def bounds(row):
    """The smallest and the largest value that it allows; None for no bound."""
    return tuple(row["value"]) if isinstance(row["value"], list) else (row["value"], row["value"])


def asked_of(row):
    """The row in the words of quantities: "recorded", if what it predicts has no such name."""
    if "recorded" in row:
        return row["recorded"]
    quantity = row["quantity"].replace("over parent", f"over {row['parent']:02}") if "parent" in row else row["quantity"]
    return f"{quantity}, {row['problem']}" if row["problem"] else quantity


def predicted(row):
    """ "1.85x", "1.05x to 1.41x", "at most 1.55x" """
    def text(value):
        if isinstance(value, str):
            return value
        quantity = row["quantity"]
        if " over " in f" {quantity}":
            return f"x{value:g}" if quantity.startswith("counter ") else times(value)
        unit = f" {quantity}" if quantity in ("ms", "us", "TFLOP/s", "GB/s") else ""
        return f"{value:,}{'%' if quantity == 'error' else unit}"

    low, high = bounds(row)
    if low is None or high is None:
        return f"at most {text(high)}" if low is None else f"at least {text(low)}"
    return text(low) if low == high else f"{text(low)} to {text(high)}"


def first_said(sources, words):
    """What a lesson predicted first, for a span: "predicted over parent of 01, train 2k", and of which kind if that must
    be said: ", from a trial"."""
    found = re.fullmatch(r"predicted (.+) of (\d\d), (.+?)(?:, (from a trial|fitted afterwards))?", words)
    rows = of_stage(sources.stage(int(found[2]))) if found else []
    row = next((row for row in rows if found and (row["quantity"], row["problem"]) == (found[1], found[3])
                and row["kind"] == (found[4] or row["kind"])), None)
    return predicted(row) if row else None


def quantity_of(stage, row):
    """ "over 04" """
    parent = row.get("parent", stage.parent)
    return row["quantity"].replace("over parent", f"over {parent:02}")


def verdict(row, values):
    """ "as predicted", or how much more or less"""
    low, high = bounds(row)
    off = [value / low - 1 if low is not None and value < low else value / high - 1 if high is not None and value > high
           else 0 for value in values]
    more, less = ("longer", "shorter") if row["quantity"] in ("ms", "us") else ("more", "less")

    def word(each):
        return "as predicted" if round(abs(each), 2) <= DRIFT else f"{abs(each):.0%} {more if each > 0 else less}"

    ends = dict.fromkeys(word(each) for each in (min(off), max(off)))
    return " to ".join(ends)


def short_gpu(name):
    return name.split(",")[0].split(" ")[1] if " " in name else name


def measured(sources, stage, row):
    """What was measured of it, the verdict, and the recordings that say so; no verdict, and why, where nothing was."""
    if row.get("not_measured"):
        return row["not_measured"], "", []
    words = asked_of(row)
    on_its_gpu = row["gpu"] and " / " not in words and f"{words}, on {row['gpu']}"
    found = on_its_gpu and find(sources, stage, on_its_gpu) or find(sources, stage, words)
    if not found:
        return "", "", []
    gpus = [label for label in map(machine_label, found.recordings) if not label.startswith(row["gpu"])]
    other = f" ({short_gpu(gpus[0])})" if gpus else ""
    return f"{found}{other}", verdict(row, found.values), found.recordings


@block("prediction")
def prediction_block(sources, page, _):
    """What the lesson predicted, as it was first written, by day."""
    if not page.stage:
        return None
    written = {}
    for row in of_stage(page.stage):
        written.setdefault(row["date"], []).append(row)
    return "\n".join(predicted_on(page.stage, date, rows) for date, rows in sorted(written.items()))


def predicted_on(stage, date, rows):
    gpus = list(dict.fromkeys(filter(None, (row["gpu"] for row in rows))))
    has_from, several = any("from" in row for row in rows), len(gpus) > 1
    columns = ["problem", "quantity", ">predicted", "kind", *(["from"] if has_from else []), *(["GPU"] if several else [])]
    lines = [[row["problem"], quantity_of(stage, row), predicted(row), row["kind"],
              *([row.get("from", "")] if has_from else []), *([short_gpu(row["gpu"])] if several else [])] for row in rows]
    return f"Written {date}{f', for an {gpus[0]}' if len(gpus) == 1 else ''}:\n\n{table(columns, lines)}"


def named(whats, most=6):
    return "; ".join(whats) if len(whats) <= most else f"{len(whats)} of the predictions above"


@block("verdict")
def verdict_block(sources, page, _):
    """Predicted, measured, and how the two compare."""
    if not page.stage:
        return None
    rows, made, missing = [], [], {}
    for row in of_stage(page.stage):
        shown, judged, recordings = measured(sources, page.stage, row)
        made += [sources.label(results, sources.with_parents([page.stage])).removeprefix("Recorded on ")
                 for results in recordings]
        if judged:
            rows.append([row["problem"], quantity_of(page.stage, row), predicted(row), row["kind"], shown, judged])
        else:
            what = ": ".join(filter(None, (row["problem"], quantity_of(page.stage, row))))
            missing.setdefault(f" ({shown})" if shown else "", {})[what] = None
    columns = ["problem", "quantity", ">predicted", "kind", ">measured", "verdict"]
    shown = f"{table(columns, rows)}" if rows else ""
    head = f"Recorded on {'; '.join(dict.fromkeys(made))}:\n\n" if made else ""
    not_measured = "\n".join(f"Not measured{why}: {named(whats)}.\n" for why, whats in missing.items())
    return head + shown + ("\n" if shown and not_measured else "") + not_measured
