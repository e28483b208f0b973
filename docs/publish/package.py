"""The Python package: what combines in a call, what it costs the host, what a model and a training gain, and ring attention
on several GPUs."""

from blocks import NOT_RECORDED, block
from markdown import table, titled
from records import label


BY_AXES = {"token_scales"}  #: features that have no argument: the axes of another one's say so


@block("python-features")
def features(sources, page, *_):
    """Which arguments one call may have, as stages declare it."""
    arguments = {row["feature"]: row["arguments"].split() for row in sources.listed["features"]}
    kept = {}
    for stage in sources.stages.values():
        if (stage.takes or stage.in_e4m3) and all(arguments[word] or word in BY_AXES for word in stage.takes):
            for takes in stage.at_once:
                kept.setdefault((takes, stage.in_e4m3), []).append(stage)

    def linked(stages):
        links = (f"[{stage.number}]({page.link(f'stages/{stage.folder}/README.md')}) "
                 f"({', '.join(map(str, stage.head_dims))})" for stage in stages)
        return ", ".join(links) or "no stage"

    def names(takes, in_e4m3):
        return [*(f"{tensor.lower()}_scale" for tensor in in_e4m3), *(name for word in takes for name in arguments[word])]

    def by(asked, backward):
        """The stages of a pass for these arguments; at head dimensions where there are none, those that take the least
        besides."""
        found = {other: [stage for stage in stages if stage.backward == backward] for other, stages in kept.items()}
        takes, in_e4m3 = asked
        more = {len(others[0]): stages for others, stages in reversed(found.items())
                if stages and set(others[0]) >= set(takes) and others[1] == in_e4m3}
        chosen, dims = [], set()
        for least in sorted(more):
            chosen += [stage for stage in more[least] if not dims.issuperset(stage.head_dims)]
            dims.update(*(stage.head_dims for stage in chosen))
        return linked(chosen)

    rows = [[", ".join(f"`{name}`" for name in names(*asked)), by(asked, False), by(asked, True)] for asked in kept]
    return table(["arguments of one call", "O by (head dimensions)", "gradients by"], rows)


PASSES = {"inference": "not wanted", "training": "wanted", "and_backward": "computed as well"}


def overheads(rows):
    shown = []
    for row in rows:
        for key, gradients in PASSES.items():
            us = row[key]
            shown.append([row.problem, gradients, f"{us.ladder:.1f}", f"{us.sdpa:.1f}", f"{us.ladder - us.sdpa:+.1f}",
                          f"{us.operator:.1f}"])
    return ("Microseconds that the host takes to queue a call",
            table(["problem", "gradients", ">attention()", ">SDPA", ">more than SDPA", ">the operator itself"], shown))


def tokens(llama):
    prompts, length = llama.prompt[:2]
    rows = [[row.name, f"{row.prefill:.0f}", f"{row.decode:.0f}", f"{row.from_eager:.3f}"]
            for row in llama.implementations]
    return (f"A Llama of {llama.parameters * 1e-9:.1f} billion random weights: tokens per second for {prompts} prompts "
            f"of {length} tokens, and for decoding after them; how far its logits, of at most "
            f"{llama.largest_logit:.2f}, are from those of eager attention",
            table(["attention", ">prefill", ">decoding", ">largest difference"], rows))


def trainings(runs):
    """A table for each size that was trained: title and rows."""
    found = {}
    for training in runs:
        title = (f"examples/train_gpt.py, {len(training.runs.SDPA.losses)} steps of {training.size.batch} sequences of "
                 f"{training.size.context} characters: milliseconds of a step")
        for who in ("ladder", "SDPA"):
            run, ours = training.runs[who], who == "ladder"
            ms = run.gpu_ms
            found.setdefault(title, []).append([
                f"{training.stage}, {training.backward_stage}" if ours else "SDPA in the same run", f"{run.step_ms:.2f}",
                f"{ms.all:.2f}", f"{ms.attention:.2f}", f"{ms['its gradients']:.2f}", f"{run.losses[-1]:.3f}",
                f"{training.largest_difference:.4f}" if ours else ""])
    columns = ["attention", ">a step", ">of the GPU", ">in attention", ">in its gradients", ">last loss",
               ">largest difference to SDPA's"]
    return [(title, table(columns, rows)) for title, rows in found.items()]


@block("python")
def package(sources, *_):
    record = sources.record("h200-python", "python")
    if not record:
        return NOT_RECORDED
    tables = [overheads(record.overhead_us), *([tokens(record.llama)] if "llama" in record else []),
              *trainings(record.training)]
    return f"{label(record)}, with PyTorch {record.torch}:\n" + "".join(titled(*each) for each in tables)


@block("python-fp8")
def fp8_prefill(sources, *_):
    record = sources.record("h200-fp8-prefill", "fp8-prefill")
    if not record:
        return NOT_RECORDED
    rows = [[row.name, row.products, f"{row.relative_l2:.2%}", f"{row.largest:.3f}", f"{row.same_token:.1%}",
             f"{row.milliseconds:.2f} ms"] for row in record.rows]
    columns = ["attention", "products", ">error of the logits", ">largest difference", ">same next token", ">prefill"]
    return (f"{label(record)}, with PyTorch {record.torch}: {record.parameters * 1e-9:.1f} billion weights, a prompt of "
            f"{record.tokens} tokens, logits of at most {record.largest_logit:.2f}:\n\n{table(columns, rows)}")


@block("python-append")
def append(sources, *_):
    record = sources.record("h200-append", "append")
    if not record:
        return NOT_RECORDED
    rows = []
    for row in record.rows:
        others = [f"{row.us[way]:.1f} (+{row.us[way] - row.us['none']:.1f})" for way in ("one kernel", "PyTorch")]
        cache = f"pages of {row.page}" if row.page else "one tensor"
        rows.append([f"{row.B} x {row.N:,}", cache, f"{row.us['none']:.1f}", *others])
    columns = [">requests x keys", "cache", ">nothing to append", ">append()", ">PyTorch's operations"]
    return (f"{label(record)}, with PyTorch {record.torch}: microseconds of a step with one row, {record.H} heads, "
            f"{record.Hkv} heads of keys and d = {record.d}, in a CUDA graph of {record.layers} steps, and in brackets what "
            f"appending adds:\n\n{table(columns, rows)}")


@block("python-ring")
def ring(sources, *_):
    record = sources.record("h200-ring", "ring")
    if not record:
        return NOT_RECORDED
    alone = {row.N: row for row in record.rows if row.name == "one GPU"}
    rows = []
    for row in record.rows:
        speeds = [f"{row[what]:.2f} ({alone[row.N][what] / row[what]:.2f}x)" for what in ("forward", "forward and backward")]
        apart = f"{max(row.difference.values()):.1e}" if "difference" in row else ""
        rows.append([f"{row.N:,}", row.name, str(row.ranks), *speeds, apart])
    columns = [">N", "attention", ">GPUs", ">forward", ">forward and backward", ">largest difference from one GPU"]
    failed = "".join(f"\n{name} did not run: {why}\n" for name, why in record.failed.items())
    return (f"{label(record)}, with PyTorch {record.torch}, in milliseconds, and in brackets the speedup over one GPU:\n\n"
            f"{table(columns, rows)}{failed}")
