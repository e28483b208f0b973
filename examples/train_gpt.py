#!/usr/bin/env python3
"""Trains a small GPT, character by character, with any stage of the ladder, and with PyTorch's own attention.

    train_gpt.py                              the default stages, on a GPU; --stage 5 --backward-stage 43 for others
    train_gpt.py --stage my/ --json out.json  a kernel of your own; losses and times as JSON
    train_gpt.py --context 2048 --batch 16    a size at which the stage affects the time of a step
    train_gpt.py --tiny                       a smaller model, for the CPU back-end: the default without a GPU
    torchrun --nproc-per-node 2 train_gpt.py --context-parallel 2
                                              each of 2 processes holds half of each context, on a GPU of its own

Both runs begin with the same weights and see the same text, so their losses differ only by rounding. The text is
"As You Like It", which is in this folder. If the context is divided, PyTorch's own attention still computes all of it in
each process.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import flash_ladder
from flash_ladder.torch import attention

TEXT = Path(__file__).parent / "as_you_like_it.txt"
# layers, heads of 64, characters of context, sequences of a batch
SMALL = dict(layers=6, heads=6, context=256, batch=64)
TINY = dict(layers=2, heads=2, context=64, batch=4)


class Block(nn.Module):
    def __init__(self, width, heads, attend):
        super().__init__()
        self.heads, self.attend = heads, attend
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):  # (B, N, width)
        # (B, H, N, 64) each: views of one tensor, which attention reads where they lie
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        with torch.profiler.record_function("attention"):
            o = self.attend(q, k, v)
        x = x + self.out(o.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, characters, layers, heads, context, attend):
        super().__init__()
        width = 64 * heads
        self.characters, self.places = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, attend) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, text, places):  # (B, N) of characters, and where in the context they are
        x = self.characters(text) + self.places.weight[places]
        return self.head(self.norm(self.blocks(x)))


def read_text(device):
    """The text as numbers, and how many different characters it has."""
    letters = TEXT.read_text()
    alphabet = sorted(set(letters))
    return torch.tensor([alphabet.index(letter) for letter in letters], device=device), len(alphabet)


def average(tensors, ranks):
    """Replaces each tensor by its average over all processes, which hold parts of the same size."""
    for x in tensors:
        torch.distributed.all_reduce(x.div_(ranks))


def train(attend, size, steps, device, seed=1, clip=1.0, ranks=1):
    """Trains a fresh model. Returns the loss of each step and a function that runs one more. Each of several ranks has
    its part of the context, in the order of ring attention, and the same weights."""
    text, characters = read_text(device)
    size = dict(size)
    batch, context = size.pop("batch"), size["context"]
    torch.manual_seed(seed)
    model = GPT(characters, attend=attend, **size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    order = torch.Generator().manual_seed(seed)
    places = torch.arange(context, device=device)
    if ranks > 1:
        from flash_ladder.distributed import divide
        places = divide(places, causal=True, dim=0)

    def step():
        first = torch.randint(len(text) - context - 1, (batch, 1), generator=order).to(device)
        with torch.autocast(device, torch.bfloat16):
            logits = model(text[first + places], places)
        loss = F.cross_entropy(logits.float().flatten(0, 1), text[first + places + 1].flatten())
        optimizer.zero_grad()
        loss.backward()
        loss = loss.detach()
        if ranks > 1:
            average([loss, *(parameter.grad for parameter in model.parameters())], ranks)
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss

    losses = [step() for _ in range(steps)]
    return torch.stack(losses).tolist(), step


def step_ms(steps, device, repeats):
    """The median time of each step function. They take turns, since the speed of a machine varies."""
    def now():
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    times = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            before = now()
            step()
            times[name].append(1000 * (now() - before))
    return {name: statistics.median(some) for name, some in times.items()}


def where_it_goes(step):
    """GPU milliseconds per step: in the forward pass of attention, in its backward pass, and in total."""
    from torch.profiler import ProfilerActivity, profile
    steps = 5
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    parts = {"attention": 0, "its gradients": 0, "all": 0}
    for event in profiler.key_averages():  # kernels, and calls with the kernels that they have launched
        if event.device_type == torch.autograd.DeviceType.CUDA:
            parts["all"] += 0 if event.is_user_annotation else event.self_device_time_total
        elif event.key == "attention":
            parts["attention"] += event.device_time_total
        elif event.key.startswith("autograd::engine::evaluate_function") and "Attention" in event.key:
            parts["its gradients"] += event.device_time_total
    return {name: microseconds / 1000 / steps for name, microseconds in parts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", help="of the forward pass: a number, a name or a folder")
    parser.add_argument("--backward-stage", help="of the backward pass")
    parser.add_argument("--steps", type=int, help="of each run [400, or 30 with --tiny]")
    parser.add_argument("--context", type=int, help="characters that the model sees [256, or 64 with --tiny]")
    parser.add_argument("--batch", type=int, help="sequences of a step [64, or 4 with --tiny]")
    parser.add_argument("--tiny", action="store_true", help="a model that the CPU back-end trains in a minute")
    parser.add_argument("--cpu", action="store_true", help="the CPU back-end, even if there is a GPU")
    parser.add_argument("--context-parallel", type=int, default=1, metavar="P",
                        help="divide the context over P processes, which torchrun starts [1]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="losses and times, to this file")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    ranks = options.context_parallel
    if int(os.environ.get("WORLD_SIZE", 1)) != ranks:
        parser.error(f"--context-parallel {ranks}: start it as torchrun --nproc-per-node {ranks} {parser.prog} ...")
    tiny = options.tiny or device == "cpu"
    size, steps = (dict(TINY), options.steps or 30) if tiny else (dict(SMALL), options.steps or 400)
    size.update({name: given for name in ("context", "batch") if (given := getattr(options, name)) is not None})
    if ranks > 1:
        if size["context"] % (2 * ranks):
            parser.error(f"--context {size['context']} does not divide into {2 * ranks} chunks, two for each of {ranks} ranks")
        torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    problem = (size["batch"], size["heads"], size["heads"], size["context"], size["context"], 64)
    # On a CPU by default what is quickest there; no ring takes 40
    default = ["5", "40" if ranks == 1 else "41"] if device == "cpu" else [
        flash_ladder.default_stage(problem, causal=True, backward=backward, backend="gpu") for backward in (False, True)]
    stage, backward_stage = options.stage or default[0], options.backward_stage or default[1]
    if "/" not in stage + backward_stage:  # the ladder's by their whole names
        stage, backward_stage = (flash_ladder.stages(name)[0].folder for name in (stage, backward_stage))
    flash_ladder.prepare([stage, backward_stage], "gpu" if device == "cuda" else "cpu")

    ours, first = attention, True
    if ranks > 1:
        from flash_ladder.distributed import ring_attention
        ours, first = ring_attention, torch.distributed.get_rank() == 0
    runs = {"ladder": lambda q, k, v: ours(q, k, v, causal=True, stage=stage, backward_stage=backward_stage),
            "SDPA": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)}
    result = {"device": torch.cuda.get_device_name() if device == "cuda" else "CPU", "torch": torch.__version__,
              "stage": stage, "backward_stage": backward_stage, "size": size, "context_parallel": ranks, "runs": {}}
    step_of = {}
    for name, attend in runs.items():
        began = time.perf_counter()
        losses, step_of[name] = train(attend, size, steps, device, options.seed, ranks=ranks if name == "ladder" else 1)
        result["runs"][name] = {"losses": losses, "seconds": time.perf_counter() - began}
    for name, ms in step_ms(step_of, device, 3 if tiny else 50).items():
        run = result["runs"][name]
        run["step_ms"] = ms
        if device == "cuda":
            run["gpu_ms"] = where_it_goes(step_of[name])
        if first:
            print(f"{name:7} loss {run['losses'][0]:.3f} -> {run['losses'][-1]:.3f} in {steps} steps, "
                  f"{run['seconds']:.0f} s; {ms:.1f} ms a step")
    apart = [abs(a - b) for a, b in zip(*(run["losses"] for run in result["runs"].values()))]
    result["largest_difference"] = max(apart)
    if first:
        print(f"the losses differ by {max(apart):.4f} at most, by {statistics.mean(apart):.4f} on average")
        if options.json:
            Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
