"""Which GPU runs which stages: by what a stage declares, and what `lab trace` says that its blocks need."""

from blocks import block
from like import Model
from markdown import table
from parts import numbers_of


def by_head_dims(model, gpu):
    """The stages by how far they run there: at all head dimensions that they have, up to one of these, or not at all."""
    found = {"at every d that they have": [], "up to d = 128": [], "at d = 64 only": [], "not at all": []}
    for stage in model.sources.stages.values():
        runs = model.runs_at(gpu, stage)
        found["not at all" if not runs else "at every d that they have" if runs == stage.head_dims else
              "up to d = 128" if runs[-1] == 128 else "at d = 64 only"].append(stage)
    return {how: numbers_of(model.sources, stages) for how, stages in found.items()}


@block("needs")
def needs(sources, _, words):
    """Of each compute capability, or as a list of one GPU, which stages run there."""
    model = Model(sources)
    if words:
        found = by_head_dims(model, model.gpu(" ".join(words)))
        return "".join(f"- {how}: {stages}\n" for how, stages in found.items() if stages)
    of_capability = {}
    for gpu in sorted(model.gpus.values(), key=lambda gpu: -float(gpu.capability)):
        of_capability.setdefault((gpu.capability, gpu.block_bytes), []).append(gpu)
    rows = [[capability, ", ".join(gpu.name for gpu in gpus), f"{block_bytes // 1024} KB", *by_head_dims(model, gpus[0]).values()]
            for (capability, block_bytes), gpus in of_capability.items()]
    return table(["capability", "GPUs", ">shared memory of a block", *by_head_dims(model, model.gpu("H200"))], rows)
