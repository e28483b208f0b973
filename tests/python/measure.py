"""What only a GPU can tell of the package in PyTorch, as a record for docs/results:

    measure.py FILE [TRAINING]...      writes JSON: the host's time for a call, beside SDPA's; tokens per second of a
                                       Llama; and what train_gpt.py --json has written
    measure.py --compile               compiles the stages that this, and the tests, call, and does nothing else
"""

import json
import os
import random
import statistics
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import torch
import torch.nn.functional as F

import flash_ladder
from flash_ladder import torch as ladder


def seconds(call, repeats=1):
    """The seconds that a call takes on average, until the GPU is done."""
    torch.cuda.synchronize()
    before = time.perf_counter()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - before) / repeats


def in_turns(calls, rounds, of=seconds):
    """The median of what of() says of each call, by name. They take turns, since the machine has faster and slower
    moments, in an order drawn anew each time, since a call is slower behind some than behind others."""
    for call in calls.values():
        of(call)
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            times[name].append(of(calls[name]))
    return {name: statistics.median(some) for name, some in times.items()}


def host_us(call, calls=50):
    """Microseconds that the host takes to queue a call; no more calls than the GPU's queue holds."""
    torch.cuda.synchronize()
    before = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - before) / calls * 1e6


def overhead():
    """Of problems that keep the GPU for less time than the host takes to queue them: microseconds by who is called."""
    rows = []
    for problem, stage, Nq in (("05", 5, 64), ("one query row", None, 1), ("64 query rows", None, 64)):
        q, k, v = (torch.randn(1, 2, n, 64, device="cuda", dtype=torch.bfloat16) for n in (Nq, 64, 64))
        rest = False, [], [], [], [], None, stage and str(stage), None, "cpu"
        calls = {"ladder": lambda: ladder.attention(q, k, v, stage=stage),
                 "operator": lambda: torch.ops.flash_ladder.attention(q, k, v, *rest),
                 "sdpa": lambda: F.scaled_dot_product_attention(q, k, v)}
        row = {"problem": problem}
        for what, gradients in (("inference", False), ("training", True)):
            for x in (q, k, v):
                x.requires_grad_(gradients)
            row[what] = in_turns(calls, 200, host_us)
        do = torch.randn_like(q)

        def and_gradients(call):
            def step():
                o = call()
                return torch.autograd.grad(o[0] if isinstance(o, tuple) else o, (q, k, v), do)
            return step

        row["and_backward"] = in_turns({name: and_gradients(call) for name, call in calls.items()}, 40, host_us)
        print(row)
        rows.append(row)
    return rows


@torch.no_grad()
def llama():
    """Tokens per second of a Llama with random weights: prefill of two prompts, decoding behind them."""
    import transformers
    from flash_ladder.transformers import register
    register("ladder")
    config = transformers.LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                                      num_attention_heads=32, num_key_value_heads=8, head_dim=64,
                                      max_position_embeddings=16384)
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    prompt = torch.randint(config.vocab_size, (2, 4096), device="cuda")
    result = {"transformers": transformers.__version__, "parameters": model.num_parameters(),
              "prompt": list(prompt.shape), "implementations": []}
    logits, prefill, decode = {}, {}, {}
    steps = 2  # few, and many turns, since the host, which has faster and slower moments, takes longer than the GPU
    for name in ("ladder", "sdpa", "eager"):
        model.set_attn_implementation(name)
        out = model(prompt, use_cache=True, logits_to_keep=256)
        logits[name] = out.logits.float()

        def fill(name=name):
            model.set_attn_implementation(name)
            model(prompt, use_cache=True, logits_to_keep=1)

        def write(name=name, cache=out.past_key_values):
            model.set_attn_implementation(name)
            for _ in range(steps):
                model(prompt[:, :1], past_key_values=cache, use_cache=True)

        prefill[name], decode[name] = fill, write
        del out
    prefill, decode = in_turns(prefill, 5), in_turns(decode, 40)
    for name in logits:
        result["implementations"].append({"name": name, "prefill": prompt.numel() / prefill[name],
                                          "decode": len(prompt) * steps / decode[name]})
        print(result["implementations"][-1])
    for row in result["implementations"]:
        row["from_eager"] = (logits[row["name"]] - logits["eager"]).abs().max().item()
    result["largest_logit"] = logits["eager"].abs().max().item()
    return result


def main():
    # Those of overhead(), of llama() and of what trains
    shapes = [(1, 2, 2, 64, 64, 64), (1, 2, 2, 1, 64, 64), (2, 32, 8, 4096, 4096, 64), (2, 32, 8, 1, 4096, 64),
              (64, 6, 6, 256, 256, 64), (16, 6, 6, 2048, 2048, 64)]
    default = {flash_ladder.default_stage(shape, causal=causal, backward=backward, backend="gpu")
               for shape in shapes for causal in (False, True) for backward in (False, True)}
    flash_ladder.prepare(["0", "4", "5", "16", "26", "33", "36", "40", "41", "43", "46", "55", "57", *sorted(default)], "gpu")
    if sys.argv[1] == "--compile":
        return
    result = {"kind": "python", "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "commit": os.environ.get("LADDER_COMMIT", "unknown"), "gpu": torch.cuda.get_device_name(),
              "torch": torch.__version__,
              "training": [json.loads(Path(file).read_text()) for file in sys.argv[2:] if Path(file).exists()]}
    for part, measured in (("overhead_us", overhead), ("llama", llama)):
        try:
            result[part] = measured()
        except ImportError as error:
            print(f"without {part}: {error}")
        Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n")  # what there is is worth keeping


if __name__ == "__main__":
    main()
