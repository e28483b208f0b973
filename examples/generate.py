#!/usr/bin/env python3
"""Serves requests with a small model of random weights, as an inference server does: many at a time, their keys and
values in pages.

    generate.py                          with PyTorch, on a GPU if one exists; without PyTorch with NumPy, on the CPU
    generate.py --arrays numpy --check   computes each request again, alone, without pages and drafts: the same tokens
    generate.py --compare transformers   also serves them with transformers' continuous batching and the same weights
    generate.py --cache e4m3 --check     keeps keys and values in 8 bits
    generate.py --branches 4 --check     guesses in a tree, with up to four ways to go on
    generate.py --model gpt-oss --check  a gpt-oss of transformers, whose layers have windows and sinks, compared with
                                         transformers' own attention without any cache

Four ideas, each in a few lines:

- Continuous batching: a request joins the batch when another one leaves it. No request waits for the longest one.
- Pages: a request takes the next page of the pool when its last one is full, and returns all of them at its end.
- A shared prompt: the beginning of all requests is computed once. Its pages are in every block table, and they are read
  for all requests together.
- Drafts: a guess of the next tokens is computed together with the last one, in one pass over the weights and the cache.
  Correct guesses are tokens that cost nothing. The keys of wrong guesses remain in the cache, past the request's length.
  Guesses may be a tree: then each row sees its own ancestors alone, and the keys of the right path move together.
"""

import argparse
import importlib.util
import sys
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np

import flash_ladder

D = 64  # head dimension
TINY = dict(layers=2, heads=4, kv_heads=2, requests=6, batch=3, answer=24)  # for the CPU back-end
SMALL = dict(layers=8, heads=16, kv_heads=4, requests=64, batch=16, answer=256)
VOCABULARY = 64
LARGEST = 6  # element of K and V that a cache in 8 bits holds
WINDOW = 24  # keys of a row in half of the layers of gpt-oss
TIE = 0.01  # between two logits that rounding may exchange


class Arrays:
    """Functions that have different names in NumPy and PyTorch, and caches."""

    def __init__(self, name, in_e4m3=False):
        self.scales = {}  # of a cache in 8 bits
        if name == "numpy":
            self.xp, self.device, self.put, self.host = np, "cpu", np.asarray, np.asarray
            self.half, self.full = (lambda x: x.astype(np.float16)), (lambda x: x.astype(np.float32))
            self.empty = lambda *axes: np.empty(axes, np.float16)
            return
        import torch
        import flash_ladder.torch
        self.xp, self.device = torch, "cuda" if torch.cuda.is_available() else "cpu"
        self.put = lambda x: torch.as_tensor(x, device=self.device)
        self.half, self.full = torch.Tensor.half, torch.Tensor.float
        dtype = torch.float8_e4m3fn if in_e4m3 else torch.float16
        self.empty = lambda *axes: torch.empty(axes, dtype=dtype, device=self.device)
        self.host = lambda x: x.cpu().numpy()
        if in_e4m3:
            self.scales = dict(k_scale=LARGEST / 448, v_scale=LARGEST / 448)

    def append(self, K, V, k, v, keys, table=None):
        """Writes new rows (B, Nq, heads, D) after the keys that each request has in the cache, or in its pages."""
        if self.xp is not np:
            return flash_ladder.torch.append(K, V, k, v, keys, block_table=table, **self.scales)
        at = keys[:, None] + np.arange(k.shape[1])
        pages = np.arange(len(k))[:, None] if table is None else np.take_along_axis(table, at // K.shape[1], axis=1)
        K[pages, at % K.shape[1]], V[pages, at % K.shape[1]] = k, v


class Llama:
    """The model does not know where keys and values are stored: attend(layer, q, k, v) takes new ones, of shape (B, Nq,
    heads, D), and returns O for the new rows."""

    def __init__(self, arrays, layers, heads, kv_heads, seed=1):
        random = np.random.default_rng(seed)
        width = heads * D

        def weights(rows, columns, deviation=1.0):
            return arrays.put(random.standard_normal((rows, columns), np.float32) * np.float32(deviation * rows**-0.5))

        self.arrays, self.heads, self.kv_heads = arrays, heads, kv_heads
        self.embedding = weights(VOCABULARY, width, VOCABULARY**0.5)
        # Layers add little: a token depends mostly on the previous one, and the text repeats itself, as real text does
        self.layers = [dict(qkv=weights(width, (heads + 2 * kv_heads) * D), out=weights(width, width, 2 / layers),
                            gate=weights(width, 2 * width), up=weights(width, 2 * width),
                            down=weights(2 * width, width, 0.5 / layers)) for _ in range(layers)]
        self.head = weights(width, VOCABULARY)

    def __call__(self, tokens, positions, attend):
        """Logits (B, Nq, VOCABULARY), on the host, of tokens (B, Nq) at these positions."""
        half, full, xp = self.arrays.half, self.arrays.full, self.arrays.xp
        angles = positions[:, :, None, None] * 10000.0 ** -(np.arange(D // 2) / (D // 2))
        cos, sin = (self.arrays.put(f(angles).astype(np.float32)) for f in (np.cos, np.sin))

        def norm(x):
            return x / xp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)

        def rotated(x):
            a, b = x[..., :D // 2], x[..., D // 2:]
            return xp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

        x = self.embedding[self.arrays.put(np.asarray(tokens))]
        for i, layer in enumerate(self.layers):
            qkv = (norm(x) @ layer["qkv"]).reshape(*x.shape[:2], -1, D)
            q, k, v = qkv[:, :, :self.heads], qkv[:, :, self.heads:-self.kv_heads], qkv[:, :, -self.kv_heads:]
            o = attend(i, half(rotated(q)), half(rotated(k)), half(v))
            x = x + full(o).reshape(x.shape) @ layer["out"]
            h = norm(x)
            gate = h @ layer["gate"]
            x = x + (gate / (1 + xp.exp(-gate)) * (h @ layer["up"])) @ layer["down"]
        return self.arrays.host(norm(x) @ self.head)


class GptOss:
    """A model of transformers, called in the same way: every other layer has a window, and each head has a sink, which
    attend() is given."""

    def __init__(self, arrays, layers, heads, kv_heads):
        import torch
        import transformers
        torch.manual_seed(1)
        self.arrays, self.layers, self.heads, self.kv_heads = arrays, range(layers), heads, kv_heads
        self.model = transformers.GptOssForCausalLM(transformers.GptOssConfig(
            vocab_size=VOCABULARY, hidden_size=heads * D, intermediate_size=heads * D, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=D, sliding_window=WINDOW, num_local_experts=2,
            num_experts_per_tok=2,  # the router leaves no expert out
            initializer_range=(heads * D)**-0.5)).to(arrays.device).eval()  # no layer enlarges what rounding does
        for layer in self.model.model.layers:
            torch.nn.init.normal_(layer.self_attn.sinks, 4, 2)  # of about as much weight as the keys
        transformers.AttentionInterface.register("attend", self.attention)
        transformers.AttentionMaskInterface.register("attend", lambda *arguments, **options: None)

    def attention(self, module, q, k, v, mask, sliding_window=None, s_aux=None, **options):
        q, k, v = (self.arrays.half(x.transpose(1, 2)) for x in (q, k, v))
        window = None if sliding_window is None else (sliding_window - 1, 0)  # a token sees itself, too
        return self.arrays.full(self.attend(module.layer_idx, q, k, v, window=window, sinks=s_aux.detach().float())), None

    def __call__(self, tokens, positions, attend):
        self.attend = attend
        return self.logits(tokens, "attend", positions=positions)

    def logits(self, tokens, implementation, positions=None):
        """On the host; with attention in PyTorch's own operations, "eager", without a cache."""
        import torch
        self.model.set_attn_implementation(implementation)
        put = self.arrays.put
        with torch.no_grad():
            return self.arrays.host(self.model(put(np.asarray(tokens)), use_cache=False, position_ids=None if positions is None
                                               else put(positions)).logits)


@dataclass
class Request:
    tokens: list  # the prompt, and then the answer
    end: int  # the number of tokens at which it ends
    keys: int = 0  # how many of them have keys and values in the cache
    pages: list = field(default_factory=list)  # the block table's row


class Pool:
    """Pages for the keys and values of all requests, and the number of requests that hold each page."""

    def __init__(self, model, pages, page_size):
        axes = len(model.layers), pages, page_size, model.kv_heads, D
        self.K, self.V, self.page_size = model.arrays.empty(*axes), model.arrays.empty(*axes), page_size
        self.free, self.holders = list(range(pages)), [0] * pages

    def pages_for(self, tokens):
        return -(-tokens // self.page_size)

    def hold(self, pages):
        for page in pages:
            self.holders[page] += 1
        return list(pages)

    def give_back(self, request):
        for page in request.pages:
            self.holders[page] -= 1
            if self.holders[page] == 0:
                self.free.append(page)
        request.pages = []

    def keep(self, request, path):
        """The keys of these new rows follow those in the cache: the rows of a tree that were right."""
        if path != list(range(len(path))):
            pages, slots = np.divmod(request.keys + np.array([path, range(len(path))]), self.page_size)
            pages = np.array(request.pages)[pages]
            for cache in self.K, self.V:
                cache[:, pages[1], slots[1]] = cache[:, pages[0], slots[0]]
        request.keys += len(path)

    def forward(self, model, requests, rows, prefix=0, parents=None):
        """Logits of new tokens of some requests, `rows` (B, Nq), which follow those in the cache, or with `parents` each
        another row, or none (-1). The first keys of all requests, `prefix`, are in the same pages."""
        Nq = len(rows[0])
        for request in requests:
            while len(request.pages) < self.pages_for(request.keys + Nq):
                request.pages += self.hold([self.free.pop()])
        most = max(len(request.pages) for request in requests)
        table = np.array([r.pages + [-1] * (most - len(r.pages)) for r in requests], np.int32)
        keys, depths, tree, arrays = np.array([r.keys for r in requests], np.int32), np.arange(Nq), {}, model.arrays
        if parents is not None:
            words = flash_ladder.tree_words(parents)
            depths = (words[:, :, None] >> depths & 1).sum(-1) - 1  # of the ancestors of each row
            tree = dict(tree=arrays.put(words))
        positions = (keys[:, None] + depths).astype(np.int32)
        table, keys, used = (arrays.put(x) for x in (table, keys, keys + np.int32(Nq)))

        def attend(layer, q, k, v, window=None, **scores):
            K, V = self.K[layer], self.V[layer]
            arrays.append(K, V, k, v, keys, table)
            shared = 0 if window or arrays.scales else prefix  # with these no stage takes one
            return flash_ladder.decode(q, K, V, block_table=table, seqused=used, prefix=shared, causal=True, window=window,
                                       **arrays.scales, **scores, **tree)

        return model(rows, positions, attend)


def guess(tokens, count, branches):
    """The last token and those that followed its previous occurrences, so many of them: rows, and which row each of them
    continues. Occurrences that were followed by the same tokens share their rows."""
    rows, parents, size = [tokens[-1]], [-1], 1 + count * branches
    before = [i for i in reversed(range(len(tokens) - 1)) if tokens[i] == tokens[-1]]
    for i in before if branches > 1 else before[:1]:
        row = 0
        for token in tokens[i + 1:i + 1 + count]:
            same = [k for k, parent in enumerate(parents) if parent == row and rows[k] == token]
            if not same and len(rows) < size:
                same = [len(rows)]
                rows.append(token)
                parents.append(row)
            if not same:
                break
            row = same[0]
    while len(rows) < size:  # nothing else to guess
        parents.append(len(rows) - 1 if branches == 1 else 0)
        rows.append(0)
    return rows, parents


def right_path(rows, parents, best):
    """The rows whose tokens are what the row before them asks for, from row 0 on."""
    path = [0]
    while True:
        after = [k for k, parent in enumerate(parents) if parent == path[-1] and rows[k] == best[path[-1]]]
        if not after:
            return path
        path.append(after[0])


def serve(model, pool, prompt, requests, batch, draft, branches=1):
    """Answers all requests, which begin with the shared prompt. Returns (steps, right guesses, guesses)."""
    waiting, running, steps, right, guesses = deque(requests), [], 0, 0, 0
    shared = Request(prompt[:len(prompt) // pool.page_size * pool.page_size], 0)  # what fills its pages
    if shared.tokens:
        pool.forward(model, [shared], [shared.tokens])

    def need(request):  # pages that a request may still ask for
        return pool.pages_for(request.end + draft * branches) - (len(request.pages) or len(shared.pages))

    while waiting or running:
        while waiting and len(running) < batch and sum(map(need, [*running, waiting[0]])) <= len(pool.free):
            request = waiting.popleft()
            request.pages, request.keys = pool.hold(shared.pages), len(shared.tokens)
            logits = pool.forward(model, [request], [request.tokens[request.keys:]])
            request.keys = len(request.tokens)
            request.tokens.append(int(logits[0, -1].argmax()))
            running.append(request)
        rows, parents = zip(*(guess(request.tokens, draft, branches) for request in running))
        logits = pool.forward(model, running, rows, len(shared.tokens) if len(running) > 1 else 0,
                              parents if branches > 1 else None)
        steps += 1
        for request, *guessed, best in zip(running, rows, parents, logits.argmax(-1).tolist()):
            path = right_path(*guessed, best)
            request.tokens += [best[row] for row in path]
            pool.keep(request, path)
            right, guesses = right + len(path) - 1, guesses + draft * branches
            if len(request.tokens) >= request.end:
                del request.tokens[request.end:]
                pool.give_back(request)
        running = [request for request in running if request.pages]
    pool.give_back(shared)
    return steps, right, guesses


def check(model, prompts, requests):
    """Asserts that each request, alone and token by token with a contiguous cache, would have had the same tokens; ties
    aside, which rounding decides. A model of transformers computes all of them at once, without a cache. Returns how many
    were compared."""
    compared = 0

    def compare(token, logits, other):
        second, first = np.sort(logits)[-2:]
        if first - second >= TIE:
            assert request.tokens[token] == logits.argmax(), f"token {token} is another one than without {other}"
        return first - second >= TIE

    for prompt, request in zip(prompts, requests):
        if isinstance(model, GptOss):
            logits = model.logits([request.tokens[:-1]], "eager")[0]
            compared += sum(compare(now, logits[now - 1], "a cache") for now in range(len(prompt), request.end))
            continue
        axes, arrays = (len(model.layers), 1, request.end, model.kv_heads, D), model.arrays
        K, V = arrays.empty(*axes), arrays.empty(*axes)
        keys = 0
        for now in range(len(prompt), request.end):

            def attend(layer, q, k, v):
                arrays.append(K[layer], V[layer], k, v, arrays.put(np.array([keys], np.int32)))
                return flash_ladder.decode(q, K[layer][:, :now], V[layer][:, :now], causal=True, **arrays.scales)

            compared += compare(now, model([request.tokens[keys:now]], np.arange(keys, now)[None], attend)[0, -1], "pages")
            keys = now
    return compared


def in_transformers(model, prompts, requests, batch):
    """The same requests, as many at a time, by transformers' continuous batching of a model with the same weights.
    Returns (seconds, answers)."""
    import torch
    import transformers
    width = model.heads * D
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=len(model.layers),
        num_attention_heads=model.heads, num_key_value_heads=model.kv_heads, head_dim=D, rms_norm_eps=1e-5,
        bos_token_id=None, eos_token_id=None)
    names = {"out": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
    weights = {"model.embed_tokens": model.embedding, "lm_head": model.head.T}
    for i, layer in enumerate(model.layers):
        columns = [model.heads * D, model.kv_heads * D, model.kv_heads * D]
        for name, part in zip("qkv", layer["qkv"].split(columns, dim=1)):
            weights[f"model.layers.{i}.self_attn.{name}_proj"] = part.T
        weights |= {f"model.layers.{i}.{theirs}": layer[ours].T for ours, theirs in names.items()}
    theirs = transformers.LlamaForCausalLM(config).to(model.arrays.device).eval()
    left = theirs.load_state_dict({f"{name}.weight": x for name, x in weights.items()}, strict=False)
    assert not left.unexpected_keys and all("norm" in key for key in left.missing_keys)  # whose weights are 1
    pages = batch * -(-max(request.end for request in requests) // 256)  # of 256 keys, as it has them
    with torch.no_grad(), theirs.continuous_batching_context_manager(
            generation_config=transformers.GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0),
            continuous_batching_config=transformers.ContinuousBatchingConfig(
                num_blocks=pages, max_batch_tokens=1024, max_requests_per_batch=batch)) as manager:
        began = time.perf_counter()
        for i, (own, request) in enumerate(zip(prompts, requests)):
            manager.add_request(own, request_id=str(i), max_new_tokens=request.end - len(own))
        answers = {}
        while len(answers) < len(requests):
            result = manager.get_result(timeout=1)
            if result is None and not manager.is_running():
                sys.exit("generate.py: transformers' continuous batching ended early")
            if result is not None and result.is_finished():
                answers[int(result.request_id)] = list(result.generated_tokens)
        return time.perf_counter() - began, [answers[i] for i in range(len(requests))]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    has_torch = importlib.util.find_spec("torch") is not None
    parser.add_argument("--arrays", choices=["numpy", "torch"], default="torch" if has_torch else "numpy")
    parser.add_argument("--check", action="store_true", help="compare with a contiguous cache, or none, request by request")
    parser.add_argument("--compare", choices=["transformers"], help="also serve them with this library, by PyTorch")
    parser.add_argument("--model", choices=["llama", "gpt-oss"], default="llama", help="gpt-oss is that of transformers")
    parser.add_argument("--cache", choices=["fp16", "e4m3"], default="fp16", help="e4m3: in 8 bits, with PyTorch")
    parser.add_argument("--draft", type=int, default=3, help="tokens guessed in each step")
    parser.add_argument("--branches", type=int, default=1, help="as many times so many tokens, in a tree")
    parser.add_argument("--page-size", type=int, default=16, choices=[2**n for n in range(9)], help="keys of a page")
    for name, what in ("requests", "all"), ("batch", "at a time"), ("answer", "longest, in tokens"):
        parser.add_argument(f"--{name}", type=int, help=f"{what}: {TINY[name]} on the CPU, {SMALL[name]} on a GPU")
    options = parser.parse_args(arguments)
    if options.compare and options.model != "llama":
        parser.error("--compare transformers: it serves the Llama alone")
    if options.cache == "e4m3" and options.model != "llama":
        parser.error("--cache e4m3: no stage computes sinks and windows with it")
    if options.branches > 1 and options.cache == "e4m3":
        parser.error("--branches: no stage computes trees with a cache in 8 bits")
    if options.branches < 1 or (options.branches > 1 and options.draft * options.branches > 63):
        parser.error("--branches: a tree has at most 64 tokens, the last one and all guesses")
    for option, is_asked in (("--compare transformers", options.compare), ("--model gpt-oss", options.model == "gpt-oss"),
                             ("--cache e4m3", options.cache == "e4m3")):
        if is_asked and options.arrays != "torch":
            parser.error(f"{option} needs --arrays torch")
        if is_asked and option != "--cache e4m3" and importlib.util.find_spec("transformers") is None:
            parser.error(f"{option}: the package transformers is not installed")

    arrays = Arrays(options.arrays, options.cache == "e4m3")
    size = SMALL if arrays.device == "cuda" else TINY
    count, batch, answer = (getattr(options, name) or size[name] for name in ("requests", "batch", "answer"))
    kind = {"llama": Llama, "gpt-oss": GptOss}[options.model]
    model = kind(arrays, *(size[name] for name in ("layers", "heads", "kv_heads")))
    random = np.random.default_rng(2)
    prompt = random.integers(0, VOCABULARY, 40).tolist()
    prompts = [prompt + random.integers(0, VOCABULARY, random.integers(1, 20)).tolist() for _ in range(count)]
    requests = [Request(list(own), len(own) + int(random.integers(1, answer + 1))) for own in prompts]
    # Room for half as many requests as may run at a time, if all were as long as the longest: most are shorter
    rows = options.draft * options.branches
    longest = -(-(max(request.end for request in requests) + rows) // options.page_size)
    pool = Pool(model, longest * (batch + 1) // 2 + 1, options.page_size)

    if options.compare:  # neither side is timed while it loads and compiles at its first call
        serve(model, pool, prompt, [Request(list(own), len(own) + 2) for own in prompts[:batch]], batch, options.draft,
              options.branches)
    began = time.perf_counter()
    steps, right, guesses = serve(model, pool, prompt, requests, batch, options.draft, options.branches)
    seconds = time.perf_counter() - began
    tokens = sum(len(request.tokens) - len(own) for request, own in zip(requests, prompts))
    print(f"{count} requests, {tokens} tokens in {steps} steps with {options.arrays} on {arrays.device}: "
          f"{tokens / seconds:.0f} tokens per second; {right} of {guesses} guesses were right")
    assert len(pool.free) == len(pool.holders), "a page was not given back"
    if options.compare:
        seconds, answers = in_transformers(model, prompts, requests, batch)
        same = sum(request.tokens[len(own):] == answer for own, request, answer in zip(prompts, requests, answers))
        print(f"transformers: {tokens / seconds:.0f} tokens per second; {same} of {count} answers have the same tokens")
    if options.check:
        compared = check(model, prompts, requests)
        other = "a contiguous cache" if options.model == "llama" else "no cache"
        print(f"check: {compared} of {tokens} tokens are those of {other}; the others were ties")


if __name__ == "__main__":
    main()
