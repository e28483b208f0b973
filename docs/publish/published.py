"""What papers and articles report of attention kernels, beside what was recorded here. The reports are published.json:
by section of docs/claimed_and_measured.md what is reported, the range that it claims, and how the same is had here."""

import json
from pathlib import Path

from blocks import NOT_RECORDED, Failure, block
from markdown import table
from profiles import hbm_bytes, trained
from records import by_problem, counts_bytes, libraries, ms_of


def number(value):
    """A number, or a ratio of two."""
    return value[0] / value[1] if isinstance(value, list) else value


def verdict(published, here):
    """How the measured range lies to the published one. Within a tenth is the same: other GPUs, other clocks."""
    low, high = 0.9 * published[0], 1.1 * published[1]
    if here[1] < low:
        return "less"
    if here[0] > high:
        return "more"
    if here[0] >= low:
        return "same" if here[1] <= high else "same to more"
    return "less to same" if here[1] <= high else "less to more"


def times_text(value):
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}x"


def percent_text(value):
    return f"{100 * value:.0f}%"


class Measures:
    """How a reported quantity is had from the recordings: each returns the values here, and how one is written."""

    def __init__(self, sources, facts):
        self.sources, self.facts = sources, facts

    def problems(self, recording=None):
        """Those of many query rows."""
        results = self.sources.need(recording) if recording else self.sources.recorded
        return [problem for problem in by_problem(results) if not counts_bytes(problem.first)]

    @staticmethod
    def row(problem, who):
        return problem.row(who) if isinstance(who, int) else problem.peer(who)

    def ms(self, problem, who):
        return ms_of(self.row(problem, who))

    def speedup(self, fast, slow, recording=None):
        pairs = [(self.ms(problem, fast), self.ms(problem, slow)) for problem in self.problems(recording)]
        return [slow_ms / fast_ms for fast_ms, slow_ms in pairs if fast_ms and slow_ms], times_text

    def mask(self, who):
        """The time without a mask over that with one, of each problem that was timed with both."""
        pairs = [(self.ms(whole, who), self.ms(masked, who)) for masked in self.problems() if masked.first.causal
                 for whole in self.problems() if not whole.first.causal and whole.shape == masked.shape]
        return [whole / masked for whole, masked in pairs if whole and masked], times_text

    def share(self, who, recording=None, best=False):
        """Of the tensor cores' peak."""
        rows = [self.row(problem, who) for problem in self.problems(recording)]
        shares = [row.rate / self.facts["Hopper_bf16"] for row in rows if row and row.timing]
        return ([max(shares, default=None)] if best and shares else shares), percent_text

    def decoding(self, pairs):
        """Ratios of times of one query row, each of two (stage, B, N)."""
        def ms(stage, batch, keys):
            for problem in by_problem(self.sources.recorded):
                s = problem.shape
                if (s.Nq, s.B, s.Nk) == (1, batch, keys) and self.ms(problem, stage):
                    return self.ms(problem, stage)
            raise Failure(f"stage {stage:02} was not timed with B = {batch}, {keys} keys", 3)
        return [ms(*slow) / ms(*fast) for slow, fast in pairs], times_text

    def traffic(self, more, less):
        moved = [hbm_bytes(trained(self.sources.profiled, stage)) for stage in (more, less)]
        return [moved[0] / moved[1]], times_text

    def peaks(self):
        """Operations in tensor cores over those outside them."""
        return [self.facts["Hopper_bf16"] / self.facts["Hopper_fp32"]], times_text

    def warps(self, registers, of, stages):
        """Warps of one block each that 65,536 registers hold, where a thread gets them in eights; beside them what the
        profile says of stages."""
        shares = [65536 // ((each + 7) // 8 * 8 * 32) / of for each in registers]
        texts = []
        for stage in stages:
            kernel = trained(self.sources.profiled, stage).kernels[0]
            texts.append(f"{stage:02} has {kernel.registers} registers and {kernel.warps_per_sm} of 64 warps "
                         f"({percent_text(kernel.warps_per_sm / 64)})")
        return shares, (f"{', '.join(map(percent_text, shares))} of {of} warps, by arithmetic; {'; '.join(texts)}")

    def memory(self, N, GB):
        """Of S and P, for each head."""
        head = 6 * N * N / 2**30
        return f"same, if there are {GB / head:.3g} heads", f"{head:.0f} GiB of S and P for each head (00), 0 (05)"


def here_and_verdict(report, measures):
    """What is written of a report's quantity here, and how it compares."""
    how = dict(report["here"])
    try:
        values, text = getattr(measures, how.pop("measure"))(**how)
        if isinstance(values, str):
            return text, values
        if not values:
            raise Failure("no recording has it", 3)
    except Failure as failure:
        raise Failure(f"{report['what']}: {failure}", failure.code) from failure
    here = min(values), max(values)
    claimed = [number(value) for value in report["claimed"]]
    if isinstance(text, str):
        return text, verdict(claimed, here)
    low, high = map(text, here)
    return f"{low if low == high else f'{low} to {high}'} ({report['who']})", verdict(claimed, here)


def published_table(sources):
    data = json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))
    measures, rows = Measures(sources, data["data sheets"]), []
    for section, reports in data["sections"].items():
        for report in reports:
            here, compared = here_and_verdict(report, measures)
            source, _, place = report["where"].partition(", ")
            where = ", ".join(filter(None, [data["sources"].get(source, source), place]))
            rows.append([report["what"], report["published"], here, compared, f"[why](#{section})", where])
    return table(["what", "published", "here", "verdict", "why", "where it stands"], rows)


@block("published")
def published(sources, *_):
    results = sources.recorded
    if not results or not sources.profiled:
        return NOT_RECORDED
    return f"{sources.label(results)}; {libraries(results)}:\n\n{published_table(sources)}"
