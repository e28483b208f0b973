"""The kernels of examples/triton compared with the stages: rates, the causal skip, registers and occupancy."""

from blocks import NOT_RECORDED, block
from markdown import rounded, table, times, titled
from records import by_problem, counts_bytes, libraries, ms_of, rate_at, ratio, right_ms

RECORDS = ("h200-triton", "h100-triton")


def name_of(row):
    return row.get("kernel") or row.folder


def rate(row):
    """TFLOP/s, or GB/s of Q, K, V and O in 16 bits where one query row reads all keys."""
    if row is None or ms_of(row) is None:
        return "-"
    if not row.verified:
        return "WRONG"
    return rounded(rate_at(row, ms_of(row)), 100)


def contender(problem, name):
    return next((row for row in problem.rows if name_of(row) == name), None)


def rates(problems, title):
    names = dict.fromkeys(name_of(row) for problem in problems for row in problem.rows)
    rows = [[name, *(rate(contender(problem, name)) for problem in problems)] for name in names]
    return title, table(["kernel", *(f">{problem.short_name}" for problem in problems)], rows)


def skips(problems):
    """What the causal skip is worth to both, where there is a mask."""
    rows = []
    for problem in problems:
        pairs = ("04_split_q", "05_causal_skip"), ("Triton 04", "Triton 05")
        gains = [ratio(*(right_ms(contender(problem, name)) for name in pair)) for pair in pairs]
        if problem.first.causal and any(gains):
            rows.append([problem.full_name, *map(times, gains)])
    return "The causal skip", table(["problem", ">05 over 04", ">Triton 05 over Triton 04"], rows)


def resources(sources, record):
    """Each kernel once for each head dimension, with and without a mask; and those of the timed stages, as they were
    profiled."""
    rows = {}
    for row in record.rows:
        for kernel, numbers in row.get("compiled", {}).items():
            mask = "causal" if row.causal else "none"
            rows.setdefault((name_of(row), kernel, row.shape.d, mask), (numbers, 4 * numbers.spilled_words))
    profiled = sources.profiled
    for row in profiled.rows if profiled else ():
        if profiled.kernels.get(row.folder) == record.kernels.get(row.folder, ""):
            for numbers in row.kernels:
                rows.setdefault((row.folder, numbers.kernel, row.shape.d, "any"), (numbers, numbers.local_bytes))
    shown = [[name, kernel, str(d), mask, str(numbers.registers), str(spilled), f"{numbers.shared_bytes:,}",
              str(numbers.threads), str(numbers.blocks_per_sm), str(numbers.warps_per_sm), numbers.limited_by]
             for (name, kernel, d, mask), (numbers, spilled) in sorted(rows.items(), key=lambda row: row[0])]
    return "Registers and occupancy; those of the stages as profiled", table(
        ["kernel", "function", ">d", "mask", ">registers", ">spilled bytes", ">shared bytes", ">threads",
         ">blocks per SM", ">warps per SM", "limited by"], shown)


@block("triton")
def triton(sources, *_):
    """Of each GPU that has a recording: examples/triton/time_triton.py --json makes it."""
    shown = []
    for record in filter(None, (sources.record(name, "triton") for name in RECORDS)):
        problems = by_problem(record)
        queries = [problem for problem in problems if not counts_bytes(problem.first)]
        decoding = [problem for problem in problems if counts_bytes(problem.first)]
        tables = [*(rates(some, unit) for some, unit in ((queries, "TFLOP/s"), (decoding, "GB/s")) if some),
                  skips(queries), resources(sources, record)]
        judged = "; ".join(f"{name} passed {said.passed} of {said.cases} cases" for name, said in record.judged.items())
        shown.append(f"{sources.label(record)}; {libraries(record)}{f'. Verified: {judged}' if judged else ''}:\n"
                     + "".join(titled(*each) for each in tables))
    return "\n".join(shown) or NOT_RECORDED
