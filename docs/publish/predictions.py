"""What lessons predicted, which is data beside them, and what came of it."""

import json
import re

from blocks import MOST_ROWS, Failure, block
from markdown import folded, table, times
from quantities import find
from records import DRIFT, ROOT, machine_label, since

IN_SIGHT = 5  # rows of a lesson's prediction; the others are folded
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
        is_percent = quantity == "error" and row["problem"] != "L"  # L's is absolute
        return f"{value:,}{'%' if is_percent else unit}"

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


def told(sources, stage):
    """The rows that a lesson shows, each with what was measured, and whether all are among them. Those are the first that
    was predicted of each quantity that was measured, or of each if none was: a later model of it is in the fold."""
    rows, first = [(row, *measured(sources, stage, row)) for row in of_stage(stage)], {}
    for each in rows:
        first.setdefault((each[0]["problem"], quantity_of(stage, each[0])), each)
    found = [each for each in first.values() if each[2]] or list(first.values())
    return rows, found[:IN_SIGHT]


def quantity_column(stage, rows, title):
    """Where all rows are of one quantity, its name goes into the title of the column of values: the columns before that
    one with its title, and the function that gives a row its cells."""
    quantities = list(dict.fromkeys(quantity_of(stage, row) for row in rows))
    if len(quantities) == 1:
        return ["problem", f">{quantities[0]}, {title}"], lambda row: [row["problem"], predicted(row)]
    return ["problem", "quantity", f">{title}"], lambda row: [row["problem"], quantity_of(stage, row), predicted(row)]


def kind_column(rows):
    """None if there is nothing to say: derived is what a prediction should be."""
    return ["kind"] if any(row["kind"] != "derived" for row in rows) else []


@block("prediction")
def prediction_block(sources, page, _):
    """What the lesson predicted of what was measured; in a fold all that it predicted, as it was first written, by day."""
    if not page.stage:
        return None
    rows, shown = told(sources, page.stage)
    written = {}
    for row, *_ in rows:
        written.setdefault(row["date"], []).append(row)
    by_day = "\n".join(predicted_on(page.stage, date, of_day) for date, of_day in sorted(written.items()))
    own = [row for row, *_ in shown]
    (columns, cells), kind, gpus = quantity_column(page.stage, own, "predicted"), kind_column(own), gpus_of(own)
    several = len(gpus) > 1
    lines = [[*cells(row), *([row["kind"]] if kind else []), *([short_gpu(row["gpu"])] if several else [])] for row in own]
    head = f"Predicted for an {gpus[0]}" if len(gpus) == 1 else "Predicted"
    more = len(rows) - len(own)
    others = f", and {more} more" if more else ""
    return (f"{head}:\n\n{table([*columns, *kind, *(['GPU'] if several else [])], lines)}"
            + folded(f"Where each comes from{others}", by_day))


def gpus_of(rows):
    return list(dict.fromkeys(filter(None, (row["gpu"] for row in rows))))


def predicted_on(stage, date, rows):
    gpus = gpus_of(rows)
    has_from, several = any("from" in row for row in rows), len(gpus) > 1
    columns = ["problem", "quantity", ">predicted", "kind", *(["from"] if has_from else []), *(["GPU"] if several else [])]
    lines = [[row["problem"], quantity_of(stage, row), predicted(row), row["kind"],
              *([row.get("from", "")] if has_from else []), *([short_gpu(row["gpu"])] if several else [])] for row in rows]
    return f"Written {date}{f', for an {gpus[0]}' if len(gpus) == 1 else ''}:\n\n{table(columns, lines)}"


def named(whats, most=MOST_ROWS):
    return "; ".join(whats) if len(whats) <= most else f"{len(whats)} of the predictions above"


@block("verdict")
def verdict_block(sources, page, _):
    """Predicted, measured, and how the two compare: of the rows of the prediction that are in sight; the others follow in a
    fold."""
    if not page.stage:
        return None
    rows, shown = told(sources, page.stage)
    judged, made, gpus, changed, missing = [each for each in rows if each[2]], [], [], set(), {}
    compared = sources.with_parents([page.stage])
    for row, found, verdict_of_it, recordings in rows:
        made += [sources.label(results, compared) for results in recordings]
        gpus += [machine_label(results).split(",")[0] for results in recordings]
        changed |= {stage.number for results in recordings for stage in sources.changed_since(results, compared)}
        if not verdict_of_it:
            what = ": ".join(filter(None, (row["problem"], quantity_of(page.stage, row))))
            missing.setdefault(f" ({found})" if found else "", {})[what] = None
    sight = [each for each in shown if each[2]]
    marks = [" and ".join(dict.fromkeys(gpus)), since([sources.stage(number) for number in sorted(changed)])]
    head = f"Recorded on {'; '.join(filter(None, marks))}:\n\n" if made else ""
    text = verdict_table(page.stage, sight) if sight else ""
    later = [each for each in judged if each not in sight]
    not_measured = "\n".join(f"Not measured{why}: {named(whats)}.\n" for why, whats in missing.items())
    if not made:
        return not_measured
    more = [f"{len(later)} more prediction{'s' if len(later) > 1 else ''}"] * bool(later) + ["what was not measured"] * bool(missing)
    labels = "".join(f"- {label}\n" for label in dict.fromkeys(made))
    rest = [labels, *([verdict_table(page.stage, later)] if later else []), *([not_measured] if missing else [])]
    return head + text + folded(" and ".join([", ".join(["When it was recorded", *more[:-1]]), *more[-1:]]), "\n".join(rest))


def verdict_table(stage, judged):
    own = [row for row, *_ in judged]
    (columns, cells), kind = quantity_column(stage, own, "predicted"), kind_column(own)
    lines = [[*cells(row), *([row["kind"]] if kind else []), found, verdict_of_it] for row, found, verdict_of_it, _ in judged]
    return table([*columns, *kind, ">measured", "verdict"], lines)
