"""FlashAttention-1 and FlashAttention-2's algorithm against standard attention: time, bytes requested and moved,
workspace, and the papers' formulas, by sequence length."""

from types import SimpleNamespace

from blocks import NOT_RECORDED, block, pictures
from markdown import human_bytes, short_size, table, times
from pictures import centered, chart
from profiles import hbm_bytes, profiled_label
from records import by_problem, key_of, ratio, right_ms

COMPARED = (0, 1, 5)  # standard attention, FlashAttention-1, and 05, which holds O on the chip


def standard_accesses(n, d):
    """Accesses to HBM in elements, of one head, as FlashAttention's theorem 2 counts them with all constants 1."""
    return n * d + n * n


def flash_attention_accesses(n, d, sram):
    return n * n * d * d / sram


def sram_of(d, keys):
    """The M for which algorithm 1 of that paper takes key tiles of so many: 4 d Bc."""
    return 4 * d * keys


def quadratic(counted, n):
    """At a multiple of 64 what three tiles of 64 gave: all tiles are whole, so it is the same quadratic in N."""
    first, second, third = counted
    t = n / 64 - 1  # Newton's form
    return first + t * (second - first) + t * (t - 1) / 2 * (third - 2 * second + first)


def count_tiles(sources, d, dtype):
    """By stage what its threads request of global memory for one head of d without a mask, and its workspace: each at
    1, 2 and 3 tiles of 64."""
    found = {stage: ([], []) for stage in COMPARED}
    for n in (64, 128, 192):
        _, work = sources.work([sources.stage(s) for s in COMPARED], f"--shape 1,1,1,{n},{n},{d} --dtype {dtype}")
        for counters, (requested, workspace) in zip(work, found.values()):
            requested.append(counters["global_load_bytes"] + counters["global_store_bytes"])
            workspace.append(counters["workspace_bytes"])
    return found


def standard_rows(sources, results, profile):
    """One for each problem: its shape, and what each stage took."""
    moved = {(row.stage, key_of(row)): hbm_bytes(row) for row in profile.rows} if profile else {}
    counted, rows = {}, []
    for problem in by_problem(results):
        s, dtype = problem.shape, problem.first.dtype
        if s.d not in counted:
            counted[s.d] = count_tiles(sources, s.d, dtype)
        stages = {}
        for stage in COMPARED:
            requested, workspace = (s.B * s.H * quadratic(values, s.Nk) for values in counted[s.d][stage])
            stages[stage] = SimpleNamespace(ms=right_ms(problem.row(stage)), requested=requested, workspace=workspace,
                                            moved=moved.get((stage, key_of(problem.first))))
        rows.append(SimpleNamespace(
            shape=s, name=f"d={s.d} N={short_size(s.Nk)}", stages=stages,
            formulas=[2 * s.B * s.H * standard_accesses(s.Nk, s.d),  # bytes of 16-bit elements
                      2 * s.B * s.H * flash_attention_accesses(s.Nk, s.d, sram_of(s.d, 64))]))
    return rows


def times_table(rows):
    columns = ["problem", ">00 ms", ">01 ms", ">05 ms", ">01 over 00", ">05 over 00", ">00 workspace", ">01 workspace"]
    def ms(cell):
        return "-" if cell.ms is None else f"{cell.ms:.3f}"

    return table(columns, [[row.name, *(ms(row.stages[s]) for s in COMPARED),
                            *(times(ratio(row.stages[0].ms, row.stages[s].ms)) or "-" for s in (1, 5)),
                            *(human_bytes(row.stages[s].workspace) for s in (0, 1))] for row in rows])


def over_standard(row):
    """Of 01 over 00: bytes requested, bytes moved, the formulas."""
    naive, flash, formulas = row.stages[0], row.stages[1], row.formulas
    return flash.requested / naive.requested, ratio(flash.moved, naive.moved), formulas[1] / formulas[0]


def bytes_table(rows):
    columns = ["problem", *(f">{s:02} {what}" for s in COMPARED for what in ("requested", "moved")), ">N d + N^2",
               ">N^2 d^2 / M", *(f">01 / 00, {what}" for what in ("requested", "moved", "formulas"))]
    shown = []
    for row in rows:
        counts = [count for s in COMPARED for count in (row.stages[s].requested, row.stages[s].moved)]
        shown.append([row.name, *("-" if count is None else human_bytes(count) for count in (*counts, *row.formulas)),
                      *(times(value) or "-" for value in over_standard(row))])
    return table(columns, shown)


def crossovers(rows):
    """ "d = 64: 01 is faster than 00 at N = 64 and 128.", a line for each head dimension"""
    text = ""
    for d in sorted({row.shape.d for row in rows}):
        faster, slower = [], []
        for row in rows:
            speedup = ratio(row.stages[0].ms, row.stages[1].ms)
            if row.shape.d == d and speedup is not None:
                (faster if speedup > 1 else slower).append(short_size(row.shape.Nk))
        text += (f"- d = {d}: 01 is faster than 00 at {'N = ' + ', '.join(faster) if faster else 'no N'}, and slower "
                 f"at {'N = ' + ', '.join(slower) if slower else 'none'}.\n")
    return text


def ratios_chart(rows, gpu):
    """Ratios to 00."""
    lengths = sorted({row.shape.Nk for row in rows})
    panels = []
    for d in sorted({row.shape.d for row in rows}):
        values = [[None] * len(lengths) for _ in range(5)]
        for row in rows:
            if row.shape.d == d:
                requested, moved, formulas = over_standard(row)
                own = [ratio(row.stages[s].ms, row.stages[0].ms) for s in (1, 5)] + [moved, requested, formulas]
                for line, value in zip(values, own):
                    line[lengths.index(row.shape.Nk)] = value
        panels.append((f"d = {d}", values))
    shape = rows[0].shape
    return chart("standard", f"Time and bytes over those of standard attention (00), {gpu}",
                 f"{shape.B} sequences of N, {shape.H} heads, no mask. Below 1x: less than 00", lengths,
                 [("01, time", True), ("05, time", True), ("01, HBM bytes moved", False),
                  ("01, bytes requested", False), ("01, the paper's formula", False)], panels, are_ratios=True)


def recorded_rows(sources):
    if "standard rows" not in sources.kept:
        sources.kept["standard rows"] = standard_rows(sources, sources.need("h200-standard"),
                                                      sources.record("h200-standard-bytes", "profile"))
    return sources.kept["standard rows"]


@pictures
def standard_pictures(sources):
    results = sources.record("h200-standard")
    return [ratios_chart(recorded_rows(sources), results.hardware.gpu)] if results else []


@block("standard")
def standard(sources, page, _):
    results, profile = sources.record("h200-standard"), sources.record("h200-standard-bytes", "profile")
    if not results:
        return NOT_RECORDED
    rows = recorded_rows(sources)
    moved = profiled_label(sources, profile, None) if profile else "not recorded yet"
    return (f"{sources.label(results)}; bytes moved: {moved}.\n\n{centered(standard_pictures(sources), page)}\n"
            f"{crossovers(rows)}\n{times_table(rows)}\n{bytes_table(rows)}")
