"""What only a GPU can tell of the package in PyTorch:

    measure.py FILE      writes JSON: the host's time for a call, beside SDPA's; tokens per second of a Llama

Kernels of all stages that it calls are compiled first, at once.
"""

import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import flash_ladder
from flash_ladder import torch as ladder


def host_us(call, calls=200, rounds=50):
    """Microseconds that the host takes to queue a call: the median over rounds, which the GPU never delays."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        before = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - before) / calls * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def overhead():
    """Of a problem that keeps the GPU for less time than the host takes to queue it."""
    result = {}
    for name, stage, rows in (("05", 5, 64), ("decoding", None, 1), ("prefill", None, 64)):
        q, k, v = (torch.randn(1, 2, n, 64, device="cuda", dtype=torch.bfloat16) for n in (rows, 64, 64))
        calls = {"ladder": lambda: ladder.attention(q, k, v, stage=stage),
                 "operator": lambda: torch.ops.flash_ladder.attention(q, k, v, False, None, stage and str(stage), None, "cpu"),
                 "implementation": lambda: ladder._run_forward(q, k, v, False, None, stage and str(stage), None, "cpu"),
                 "SDPA": lambda: F.scaled_dot_product_attention(q, k, v)}
        for call in calls.values():
            for _ in range(100):
                call()
        result[name] = {key: {"inference": None, "training": None} for key in calls}
        for key, call in calls.items():
            with torch.no_grad():
                result[name][key]["inference"] = host_us(call)
        for x in (q, k, v):
            x.requires_grad_()
        for key, call in calls.items():
            if key != "implementation":
                result[name][key]["training"] = host_us(call)
        print(name, result[name])
    return result


def llama():
    """Tokens per second of a Llama with random weights: prefill of 4096 tokens, decoding behind them, by implementation."""
    import transformers
    from flash_ladder.transformers import register
    register("ladder")
    config = transformers.LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                                      num_attention_heads=32, num_key_value_heads=8, head_dim=64,
                                      max_position_embeddings=16384)
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    prompt = torch.randint(config.vocab_size, (4, 4096), device="cuda")
    result = {"torch": torch.__version__, "transformers": transformers.__version__, "parameters": model.num_parameters(),
              "prompt": list(prompt.shape), "prefill": {}, "decode": {}, "logits": {}}
    logits = {}

    def seconds(call, repeats):
        times = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            before = time.perf_counter()
            call()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - before)
        return statistics.median(times)

    for name in ("ladder", "sdpa", "eager"):
        model.set_attn_implementation(name)
        with torch.no_grad():
            out = model(prompt, use_cache=True, logits_to_keep=256)
            logits[name] = out.logits.float()
            result["prefill"][name] = prompt.numel() / seconds(lambda: model(prompt, use_cache=True, logits_to_keep=1), 5)
            cache, token, steps = out.past_key_values, prompt[:, :1], 32

            def decode():
                for _ in range(steps):
                    model(token, past_key_values=cache, use_cache=True)

            decode()
            result["decode"][name] = len(prompt) * steps / seconds(decode, 3)
        print(name, {key: result[key][name] for key in ("prefill", "decode")})
        del out, cache
    for name in ("ladder", "sdpa"):
        result["logits"][name] = {"largest_difference_to_eager": (logits[name] - logits["eager"]).abs().max().item(),
                                  "largest": logits[name].abs().max().item()}
    result["logits"]["ladder_to_sdpa"] = (logits["ladder"] - logits["sdpa"]).abs().max().item()
    return result


def main():
    flash_ladder.prepare([5] + [flash_ladder._core.default_stage(forward, rows, 64, "gpu")
                                for forward, rows in ((True, 64), (True, 1), (False, 64))], "gpu")
    result = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "overhead_us": overhead()}
    with open(sys.argv[1], "w") as file:
        json.dump(result, file, indent=1)
    try:
        result["llama"] = llama()
    except ImportError as error:
        result["llama"] = {"why_not": str(error)}
    with open(sys.argv[1], "w") as file:
        json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
