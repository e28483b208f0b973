"""What products of 8 bits lose, as the CPU computes them bit for bit."""

from functools import cache

from blocks import block, numbers, pictures
from markdown import folded, in_words, table
from pictures import centered, chart

D, HEADS = 64, 4
# What each kind is called, and the rows of a head that show it: with outliers few of them decide.
INPUTS = {"normal": ("N(0, 1)", 128), "outliers": ("outliers", 512), "same_sign": ("V from N(4, 1)", 128),
          "biased": ("K with a bias", 128), "smoothed": ("the same, smoothed", 128)}  # of pages that name these
DRAWN = ("normal", "outliers", "same_sign")
CLIMB, CLIMBED_KEYS = (36, 70, 71, 72, 73), (512, 1024, 2048, 4096, 8192)


@cache
def errors(sources, stages, keys, inputs, shape):
    """Of each stage's O the relative L2: of rounded inputs, and of the inputs as they are."""
    heads, rows = shape
    answer = sources.ask("verify", *stages, "--backend", "cpu", "--input", inputs,
                         "--shape", f"1,{heads},{heads},{rows},{keys},{D}")
    return [(row["relative_l2"], row["unquantized_l2"] or row["relative_l2"]) for row in answer["stages"]]


def folders(sources, stages):
    return tuple(sources.stage(number).folder for number in stages)


def in_sight(page, columns, rows):
    """All of them; in a lesson those of the most keys, and the others in a fold."""
    if not page.stage:
        return table(columns, rows)
    most = max((row[0] for row in rows), key=lambda keys: int(keys.replace(",", "")))
    return table(columns, [row for row in rows if row[0] == most]) + folded("With other numbers of keys", table(columns, rows))


@block("lost")
def lost(sources, page, words):
    """Both errors of these stages against the number of keys."""
    stages, rows = numbers(words), []
    for keys in (512, 2048, 8192, 32768):
        for name, inputs in (("normal", "V from N(0, 1)"), ("same_sign", "V from N(4, 1)")):
            found = errors(sources, folders(sources, stages), keys, name, (1, 64))
            rows.append([f"{keys:,}", inputs, *(f"{error:.2%}" for both in found for error in both)])
    columns = [f">{stage}, {what}" for stage in stages for what in ("of rounded inputs", "of 16-bit inputs")]
    return ("Computed by the CPU back-end, 64 rows, d = 64, relative L2 of O against attention in double precision:\n\n"
            + in_sight(page, [">keys", "inputs", *columns], rows))


def of_16_bit_inputs(sources, stages, keys, inputs):
    asked = CLIMB if set(stages) <= set(CLIMB) else stages  # those of the plot are asked for once
    found = errors(sources, folders(sources, asked), keys, inputs, (HEADS, INPUTS[inputs][1]))
    return [error for stage, (_, error) in zip(asked, found) if stage in stages]


@pictures
def won_pictures(sources):
    """The errors of all stages with products of 8 bits, and of the one that they start from."""
    if not sources.of_8_bits.issuperset(CLIMB[1:]):
        return []
    panels = []
    for name in DRAWN:
        by_keys = [of_16_bit_inputs(sources, CLIMB, keys, name) for keys in CLIMBED_KEYS]
        panels.append((INPUTS[name][0], [[round(100 * error, 2) for error in line] for line in zip(*by_keys)]))
    return [chart("fp8-errors", "Error of O against the number of keys N: relative L2 in percent",
                  f"{HEADS} heads of {D}, fp16 inputs of three kinds; as the CPU back-end computes it", list(CLIMBED_KEYS),
                  [(in_words(folder), folder[:2] != "36") for folder in folders(sources, CLIMB)], panels)]


@block("won")
def won(sources, page, words):
    """The error of 16-bit inputs of these stages against the number of keys, of the kinds that are drawn and of those that
    are named; on a part's page the plot as well."""
    named = [word for word in words if word in INPUTS]
    stages = tuple(numbers([word for word in words if word not in named]))
    rows = [[f"{keys:,}", INPUTS[name][0], *(f"{error:.2%}" for error in of_16_bit_inputs(sources, stages, keys, name))]
            for name in (*DRAWN, *named) for keys in CLIMBED_KEYS if page.stage is None or keys in (512, 2048, 8192)]
    shown = "" if page.stage else f"{centered(won_pictures(sources), page)}\n"
    return (f"{shown}Computed by the CPU back-end, {HEADS} heads of {D}, relative L2 of O against attention of the 16-bit "
            "inputs in double precision:\n\n" + in_sight(page, [">keys", "inputs", *(f">{stage}" for stage in stages)], rows))
