#!/usr/bin/env python3
"""The error of attention in 8 bits, and of bf16, in the logits of a Llama with random weights that reads a prompt.

    fp8_prefill.py                            stages 70 to 73, on a GPU with FP8, or with a tiny model on the CPU back-end
    fp8_prefill.py --stage 73 --tokens 16384  one of them, or any other stage; a longer prompt
    fp8_prefill.py --json out.json            errors, and on a GPU times, as JSON

Weights and everything except attention are bf16 in every run. The exact logits are those of the same weights in fp32.
This needs Hugging Face transformers, and downloads nothing: the weights are random, and large enough that scores vary as in
a trained model.
"""

import argparse
import json
import os
import statistics
from datetime import datetime, timezone
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers

import flash_ladder
from flash_ladder.transformers import register

SMALL = dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=4,
             head_dim=128, vocab_size=32000)
TINY = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=64, vocab_size=256)


def llama(size, tokens, device, seed=1):
    """Elements of queries and keys are about 1 in size, and so are scores."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(**size, max_position_embeddings=tokens, initializer_range=size["hidden_size"] ** -0.5)
    with torch.device(device):
        return transformers.LlamaForCausalLM(config).bfloat16().eval()


@torch.no_grad()
def read(model, attention, prompt):
    """The logits of all tokens of the prompt."""
    model.set_attn_implementation(attention)
    return model(prompt, use_cache=False).logits[0].float()


def errors(logits, exact):
    return {"relative_l2": ((logits - exact).norm() / exact.norm()).item(),
            "largest": (logits - exact).abs().max().item(),
            "same_token": (logits.argmax(-1) == exact.argmax(-1)).float().mean().item()}


def milliseconds(calls, repeats):
    """The median time of each call on the GPU; the calls take turns."""
    times = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end))
    return {name: statistics.median(some) for name, some in times.items()}


def compare(words, size, tokens, device):
    """The record: a row for SDPA and for each of the stages that `words` name."""
    stages = [flash_ladder.stages(word)[0] for word in words]
    model = llama(size, tokens, device)
    prompt = torch.randint(size["vocab_size"], (1, tokens), device=device)
    exact = read(model.float(), "sdpa", prompt)
    model.bfloat16()
    rows, calls = [], {}
    for word, stage in zip([None, *words], [None, *stages]):
        name = stage.folder if stage else "SDPA"
        attention = register(f"ladder_{name}", stage=word) if stage else "sdpa"
        calls[name] = lambda attention=attention: read(model, attention, prompt)
        rows.append({"name": name, "products": stage.products if stage else "16 bits", **errors(calls[name](), exact)})
    if device == "cuda":
        times = milliseconds(calls, 9)
        rows = [{**row, "milliseconds": times[row["name"]]} for row in rows]
    return {"kind": "fp8-prefill", "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": os.environ.get("LADDER_COMMIT", "unknown"), "torch": torch.__version__,
            "gpu": torch.cuda.get_device_name() if device == "cuda" else "CPU", "transformers": transformers.__version__,
            "size": size, "parameters": model.num_parameters(), "tokens": tokens,
            "largest_logit": exact.abs().max().item(), "rows": rows}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", nargs="+", default=["70", "71", "72", "73"], metavar="STAGE",
                        help="numbers, names or folders [%(default)s]")
    parser.add_argument("--tokens", type=int, help="of the prompt [4096, or 256 with --tiny]")
    parser.add_argument("--tiny", action="store_true", help="a model for the CPU back-end: the default without a GPU")
    parser.add_argument("--cpu", action="store_true", help="the CPU back-end, even if there is a GPU")
    parser.add_argument("--json", metavar="FILE", help="write the table to this file, too")
    options = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    tiny = options.tiny or device == "cpu"
    size = TINY if tiny else SMALL
    tokens = options.tokens if options.tokens is not None else 256 if tiny else 4096
    if tokens < 1:
        parser.error(f"--tokens {tokens}: expected 1 or more")
    shape = (1, size["num_attention_heads"], size["num_key_value_heads"], tokens, tokens, size["head_dim"])
    # On a CPU a stage that is quick there
    in_16_bits = flash_ladder.default_stage(shape, causal=True, backend="gpu") if device == "cuda" else "5"
    words = [in_16_bits, *options.stage]
    try:
        flash_ladder.prepare(words, "gpu" if device == "cuda" else "cpu")
        result = compare(words, size, tokens, device)
    except ValueError as error:
        parser.error(str(error))
    except flash_ladder.CannotRun as error:
        parser.exit(3, f"{parser.prog}: {error}\n")
    print(f"{tokens} tokens, {size['num_hidden_layers']} layers; logits compared with those of fp32:")
    for row in result["rows"]:
        print(f"  {row['name']:20} in {row['products']:8} error {row['relative_l2']:7.3%}, at most {row['largest']:.3f}; "
              f"the same next token {row['same_token']:6.1%}"
              + (f"; {row['milliseconds']:.2f} ms" if "milliseconds" in row else ""))
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
