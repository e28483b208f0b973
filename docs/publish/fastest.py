"""The times that stages are chosen by where none is named, and the kernels that were recorded: harness/time/fastest.h reads
them from stages/fastest.json, since a program that was installed has no docs/results. And which of docs/results `lab time`
shows without a GPU."""

import records
from blocks import generated_file
from pictures import line_of

# Of docs/results/GPU-NAME.json. Where two have the same problem, the first one counts.
RECORDINGS = ("draft", "few-rows", "serving", "serving-odd", "prefill-hopper", "gradients", "caches",
              "caches-wide", "ragged", "paged", "prefix", "pages", "paged-rows")


def times_in(results):
    """For each problem, as far as its rows are adjacent, a row of it and the times of the stages that were right."""
    found = []
    for row in results.rows:
        if not row.timing or not row.verified:
            continue
        if not found or records.key_of(found[-1][0]) != records.key_of(row):
            found.append((row, {}))
        found[-1][1][row.folder] = float(f"{row.timing.median_ms:.4g}")
    return found


def kernels_in(recordings):
    """The fingerprints of all kernels that they are of, by stage."""
    found = {}
    for _, record in recordings:
        for folder, fingerprint in record.kernels.items():
            found.setdefault(folder, set()).add(fingerprint)
    return line_of({folder: sorted(fingerprints) for folder, fingerprints in sorted(found.items())})


def shown_in(sources):
    """The files of the recording of the whole ladder, of that which a stage's lesson shows, and of those that hold a regime
    of the whole ladder anew and are named after it."""
    names = {id(results): name for name, results in sources.all_of("timing")}
    shown = {"all": sources.recorded, **{stage.folder: sources.timing_of(stage) for stage in sources.stages.values()},
             **{regime: sources.anew(regime) for regime in sources.regimes}}
    return line_of({of: names[id(results)] for of, results in shown.items() if results})


@generated_file("stages/fastest.json")
def fastest(sources):
    """Each recording of every GPU that has one, the newest first, a line for each problem, all recorded kernels, and
    which recordings are shown."""
    recordings, problems = [], []
    for name in RECORDINGS:
        files = [path for path in sources.folder.glob(f"*-{name}.json") if path.stem.partition("-")[2] == name]
        of_name = [(results.date[:10], path.name, results) for path in files
                   for results in [sources.record(path.stem)]]
        for date, file, results in sorted(of_name, key=lambda each: each[:2], reverse=True):
            times = times_in(results)
            timed = sorted({folder for _, ms in times for folder in ms} & results.kernels.keys())
            recordings += [line_of({"file": file, "gpu": results.hardware.gpu, "date": date,
                                    "kernels": {folder: results.kernels[folder] for folder in timed}})] if times else []
            for row, ms in times:
                s = row.shape
                problems.append(line_of({
                    "recording": len(recordings) - 1, "shape": [s.B, s.H, s.Hkv, s.Nq, s.Nk, s.d],
                    "pass": records.pass_of(row), "dtype": row.dtype, "causal": row.causal,
                    **({"features": row.features} if row.features else {}),
                    "median_ms": dict(sorted(ms.items()))}))
    listed = (",\n".join(lines) for lines in (recordings, problems))
    kernels = (kernels_in(sources.all_of(kind)) for kind in ("timing", "profile"))
    return ('{{"kind": "fastest",\n"recordings": [\n{}\n],\n"problems": [\n{}\n],\n"timed": {},\n"profiled": {},\n"shown": {}}}\n'
            .format(*listed, *kernels, shown_in(sources)))
