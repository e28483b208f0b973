"""What products of 8 bits lose, as the CPU computes them bit for bit."""

from blocks import block, numbers
from markdown import table

ROWS, D = 64, 64  # as few as show it
KEYS = 512, 2048, 8192, 32768
INPUTS = {"normal": "V from N(0, 1)", "same_sign": "V from N(4, 1)"}


@block("lost")
def lost(sources, _, words):
    """The relative L2 of O of these stages against the number of keys."""
    stages = [sources.stage(number) for number in numbers(words)]
    rows = []
    for keys in KEYS:
        for name, inputs in INPUTS.items():
            answer = sources.ask("verify", *(stage.folder for stage in stages), "--backend", "cpu", "--input", name,
                                 "--shape", f"1,1,1,{ROWS},{keys},{D}")
            errors = [row[error] for row in answer["stages"] for error in ("relative_l2", "unquantized_l2")]
            rows.append([f"{keys:,}", inputs, *(f"{error:.2%}" for error in errors)])
    columns = [f">{stage.number}, {what}" for stage in stages for what in ("of rounded inputs", "of 16-bit inputs")]
    return (f"Computed by the CPU back-end, {ROWS} rows, d = {D}, relative L2 of O against attention in double precision:\n\n"
            + table([">keys", "inputs", *columns], rows))
