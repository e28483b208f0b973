"""Times PyTorch's attention for `lab time --peers`, which starts this program (see harness/time/peers.h).

It talks in lines of JSON. It greets with the device, the versions of the libraries, and why some peers are missing
here, by name; then it answers each line from standard input with one on standard output:

    {"do": "prepare", "B": .., "H": .., "Hkv": .., "Nq": .., "Nk": .., "d": .., "dtype": "bf16", "causal": false,
     "pass": "forward", "peers": ["cuDNN", ..]}
                                               {"why_not": {"cuDNN": ""}}    why it cannot run; empty if it can
    {"do": "time", "peer": "cuDNN"}            {"milliseconds": 0.1}         one call
    {"do": "release"}                          {}                            gives the GPU's memory back

In the backward pass a call computes dQ, dK and dV for an O that was computed once, as a training step does it, and
nothing else. Each call is captured in a CUDA graph, whose replay takes no time of the host. A line {"error": ".."} may
come instead, and is the last.
"""

import importlib.metadata
import json
import os
import re
import sys
import warnings
from contextlib import nullcontext
from functools import partial
from itertools import accumulate

# Standard output carries answers only. What else is printed, by a library say, goes to standard error.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def answer(**values):
    print(json.dumps(values), file=answers)


def fail(why):
    answer(error=one_line(why))
    sys.exit()


def one_line(text):
    return re.sub(r"\x1b\[[\d;]*m", "", str(text)).strip().partition("\n")[0]


def out_of_memory(error):
    """Without the account of who has how much."""
    return one_line(error).partition(" GPU ")[0]


try:
    import torch
except ImportError:
    fail(f"PyTorch is not installed for {sys.executable}; LADDER_PYTHON names another Python")
if not torch.cuda.is_available():
    fail(f"PyTorch {torch.__version__} of {sys.executable} finds no CUDA device")
try:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    # Unfused attention in 16 bits, as papers compare with it. By default PyTorch computes it in fp32.
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
except (ImportError, AttributeError):
    fail(f"PyTorch {torch.__version__} is too old: 2.6 lets its attention back-ends be chosen")

# Those that scaled_dot_product_attention chooses from.
BACKENDS = {"FlashAttention-2": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION", "unfused": "MATH",
            "efficient": "EFFICIENT_ATTENTION"}
# What others need in addition: one of these packages, each with its module.
PACKAGES = {"flex": {"triton": "triton", "pytorch-triton": "triton"},
            "FlashAttention-3": {"flash-attn-3": "flash_attn_interface", "fa3-fwd": "fa3_fwd_interface"},
            "FlashAttention-3-FP8": {"flash-attn-3": "flash_attn_interface", "fa3-fwd": "fa3_fwd_interface"},
            "cuDNN-FP8": {"nvidia-cudnn-frontend": "cudnn"},
            **dict.fromkeys(("FlashAttention-4", "FlashAttention-4-deterministic"), {"flash-attn-4": "flash_attn.cute"}),
            "FlashInfer": {"flashinfer-python": "flashinfer"}}
FOUND = {name: next(((package, found.version) for package in packages
                     for found in importlib.metadata.distributions(name=package)), None)
         for name, packages in PACKAGES.items()}
WARM_UPS, MOST_ROWS = 3, 16  # these of a request that FlashInfer is timed with


class Clock:
    """The clock of harness/device/gpu_device.cu: a call, with the cache flushed, queued before the GPU comes to it."""

    def __init__(self):
        l2_cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
        self.flush = torch.zeros(max(4 * l2_cache, 256 << 20) // 4, dtype=torch.float32, device="cuda")
        self.flushes = 1
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def milliseconds(self, call):
        while True:
            for _ in range(self.flushes):
                self.flush.sum()
            self.start.record()
            call()
            self.stop.record()
            host_was_late = self.start.query()
            self.stop.synchronize()
            if not host_was_late or self.flushes >= 64:
                return self.start.elapsed_time(self.stop)
            self.flushes *= 2


class Peers:
    def __init__(self):
        self.clock, self.inputs, self.backward, self.calls = Clock(), None, False, {}

    def prepare(self, request):
        """Makes inputs and calls each peer a few times. Returns why not, by name."""
        self.backward = request["pass"] == "backward"
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[request["dtype"]]
        torch.manual_seed(1)
        try:
            self.inputs = [torch.randn(request["B"], request[heads], request[rows], request["d"], dtype=dtype,
                                       device="cuda", requires_grad=self.backward)
                           for heads, rows in (("H", "Nq"), ("Hkv", "Nk"), ("Hkv", "Nk"))]
        except torch.cuda.OutOfMemoryError as error:
            self.release()
            return {name: out_of_memory(error) for name in request["peers"]}
        lists = request["features"]
        window = tuple(None if keys < 0 else keys for keys in lists.pop("window", (-1, -1)))
        return {name: self.warm_up(name, request["causal"], window, lists) for name in request["peers"]}

    def warm_up(self, name, causal, window, lists):
        """Why this peer cannot run, in one line; empty if it can."""
        with warnings.catch_warnings(record=True) as reasons:
            warnings.simplefilter("always")
            try:
                with torch.set_grad_enabled(self.backward), only(name):
                    others = [key.replace("_", " ") for key in lists if key not in LISTS.get(name, set())]
                    if others:
                        raise ValueError("is not timed with " + " and ".join(others))
                    call = MAKERS.get(name, chosen)(*self.inputs, causal, window, **lists)
                    call = gradients_of(call, self.inputs) if self.backward else call
                    self.calls[name] = self.captured(call), call  # which holds what the graph reads
                torch.cuda.synchronize()
                return ""
            except torch.cuda.OutOfMemoryError as error:
                torch.cuda.empty_cache()
                return out_of_memory(error)
            except Exception as error:  # what a compiler throws is of many types
                torch.cuda.synchronize()  # a device error would last, and no later answer be true
                warned = [str(reason.message) for reason in reasons]
                return refusal(name, warned) or one_line(error) or type(error).__name__

    def captured(self, call):
        """Its CUDA graph; or the call itself if the graph takes the GPU longer, as it may with one short kernel."""
        for _ in range(WARM_UPS):
            call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            call()
        ways = {min(self.clock.milliseconds(way) for _ in range(WARM_UPS)): way for way in (call, graph.replay)}
        self.clock.flushes = 1
        return ways[min(ways)]

    def time(self, name):
        with torch.set_grad_enabled(self.backward), only(name):
            return self.clock.milliseconds(self.calls[name][0])

    def release(self):
        self.inputs = None
        self.calls = {}
        torch.cuda.empty_cache()


def gradients_of(call, inputs):
    """A call that computes the gradients by the inputs of what this one returned, whose graph is kept."""
    output = call()
    gradient = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)


def only(name):
    """Leaves PyTorch this one to choose."""
    return sdpa_kernel(getattr(SDPBackend, BACKENDS[name])) if name in BACKENDS else nullcontext()


# Each takes Q, K, V (B, heads, N, d), whether there is a causal mask, and the keys that a row sees on the left and on
# the right of its own, None for all. It returns a call without arguments. flex and FlashAttention-4 take tiles and column
# bounds, too: for each key LTS, LTE, UTS and UTE, query rows that do not see it. flex and FlashAttention take documents, by
# where their rows begin, and then their keys. FlashAttention and FlashInfer take requests with so many keys each, in pages
# of so many, of which the first ones may be the same for all: the prefix. FlashAttention takes a softcap; flex and
# FlashAttention-4 also take ALiBi's slopes, of each head or of each head of each batch entry, and a sink of each head.


def chosen(query, key, value, causal, window, dropout=0.0):
    """The back-end that only() leaves."""
    if window != (None, None):
        raise ValueError("has no sliding window")
    if causal and query.shape[2] != key.shape[2]:
        raise ValueError("aligns a causal mask top-left, not bottom-right")
    options = {"is_causal": causal} | ({"dropout_p": dropout} if dropout else {})
    if query.shape[1] != key.shape[1]:
        options["enable_gqa"] = True
    return lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)


def dense_mask(tiles, rows, keys):
    """(rows, keys): whether a row sees a key, by tiles of 64 x 64 with a word of 64 bits for each row of a partial one."""
    kinds = torch.tensor(tiles["kinds"], device="cuda").reshape(-(-rows // 64), -(-keys // 64))
    halves = torch.tensor(tiles["bits"] or [[0, 0]], device="cuda")  # (rows of partial tiles, 2)
    bits = (halves[:, :, None] >> torch.arange(32, device="cuda") & 1).reshape(-1, 64)
    partial_tiles = (bits if tiles["bits"] else bits.expand(64, 64)).reshape(-1, 64, 64).bool()
    seen = torch.where((kinds >= 0)[..., None, None], partial_tiles[kinds.clamp(min=0)], (kinds == -1)[..., None, None])
    return seen.transpose(1, 2).reshape(kinds.shape[0] * 64, -1)[:rows, :keys].contiguous()


def slopes_of(alibi, entries, heads):
    """ALiBi's slopes by batch entry and head."""
    return reals(alibi).reshape(-1, heads).expand(entries, heads).contiguous()


def flex(query, key, value, causal, window, columns=None, documents=None, tiles=None, softcap=None, alibi=None, sinks=None):
    """flex_attention as torch.compile makes it: one Triton kernel for these sizes, which takes seconds. It has no sinks, so
    what they leave of O is computed from its L, within the same compiled call."""
    library = importlib.import_module("torch.nn.attention.flex_attention")
    create_block_mask, flex_attention = library.create_block_mask, library.flex_attention
    config = importlib.import_module("torch._functorch.config")  # which nothing else may have loaded
    config.donated_buffer = False  # gradients are computed again and again of one graph
    torch._dynamo.reset()  # after a few sizes it would compile no more, and run PyTorch's unfused form instead
    mask, options = None, {}
    rows, keys = query.shape[2], key.shape[2]
    left, right = window[0], 0 if causal else window[1]
    if columns:
        LTS, LTE, UTS, UTE = torch.tensor(columns, dtype=torch.int32, device="cuda").T.contiguous()
    if documents:
        row_bounds, key_bounds = torch.tensor(documents, device="cuda").reshape(2, -1)
        of_row, of_key = (torch.searchsorted(bounds[1:], torch.arange(n, device="cuda"), right=True)
                          for bounds, n in ((row_bounds, rows), (key_bounds, keys)))
        shift = (key_bounds - row_bounds)[1:][of_row]  # the last row of a document is at its last key

    def distance_of(row, key):
        return row + (shift[row] if documents else keys - rows) - key

    def sees(batch, head, row, key):
        distance = distance_of(row, key)
        seen = of_row[row] == of_key[key] if documents else key >= 0
        if left is not None:
            seen = seen & (distance <= left)
        if right is not None:
            seen = seen & (distance >= -right)
        if columns:
            seen = seen & ~((row >= LTS[key]) & (row < LTE[key])) & ~((row >= UTS[key]) & (row < UTE[key]))
        return seen
    if tiles:
        dense = dense_mask(tiles, rows, keys)
        mask = create_block_mask(lambda batch, head, row, key: dense[row, key], None, None, rows, keys, device="cuda",
                                 BLOCK_SIZE=128 if query.requires_grad else 64)  # no less than its own tiles
        options = {"BLOCK_M": 64, "BLOCK_N": 64}
    elif columns or documents or (left, right) != (None, None):
        mask = create_block_mask(sees, None, None, rows, keys, device="cuda")
    slopes = slopes_of(alibi, *query.shape[:2]) if alibi else None

    def changed(score, batch, head, row, key):
        if softcap:
            score = softcap * torch.tanh(score / softcap)
        return score - slopes[batch, head] * distance_of(row, key).abs() if alibi else score

    attention = flex_attention
    if sinks:
        of_heads = reals(sinks)[:, None]
        auxiliary = hasattr(library, "AuxRequest")  # from PyTorch 2.9 on
        with_L = {"return_aux": library.AuxRequest(lse=True)} if auxiliary else {"return_lse": True}

        def attention(query, key, value, **options):
            O, L = flex_attention(query, key, value, **options, **with_L)
            return (O * torch.sigmoid((L.lse if auxiliary else L) - of_heads)[..., None]).to(O.dtype)
    compiled = torch.compile(attention, fullgraph=True, dynamic=False)
    gqa, score_mod = query.shape[1] != key.shape[1], changed if softcap or alibi else None
    return lambda: compiled(query, key, value, score_mod=score_mod, block_mask=mask, enable_gqa=gqa, kernel_options=options)


def pool_of(keys, page_size):
    """K or V (B, heads, N, d) in pages (pages, page_size, heads, d)."""
    if keys.shape[2] % page_size:
        raise ValueError(f"is not timed with a rest of {keys.shape[2] % page_size} keys in pages of {page_size}")
    return keys.transpose(1, 2).reshape(-1, page_size, keys.shape[1], keys.shape[3])


def block_table(batch, columns, shared):
    """The pages of each request, in a random order; of the first of them as many are shared."""
    pages = torch.randperm(batch * columns).tolist()
    rows = [pages[columns * b:columns * (b + 1)] for b in range(batch)]
    return [rows[0][:shared] + row[shared:] for row in rows]


def integers(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def reals(values):
    return torch.tensor(values, dtype=torch.float32, device="cuda")


def between(row, UTE, LTS, UTS=0, LTE=1 << 30):
    return ((row >= UTE) | (row < UTS)) & ((row < LTS) | (row >= LTE))


def block_lists(seen, rows, keys):
    """For each block of rows how many blocks of keys are partial, and all of them by index, these first; then so of full."""
    blocks = torch.nn.functional.pad(seen, (0, -seen.shape[1] % keys, 0, -seen.shape[0] % rows)).contiguous()
    blocks = blocks.reshape(blocks.shape[0] // rows, rows, -1, keys)
    some, full = blocks.any(3).any(1), blocks.all(3).all(1)
    for kind in (some & ~full, full):
        yield from (kind.sum(1).int()[None, None], (~kind).int().argsort(dim=1, stable=True).int()[None, None])


def in_blocks(query, key, causal, window, columns=None, tiles=None):
    """FlashAttention-4's options for a mask: lists of blocks, and what its kernels call for each score of partial ones."""
    cute, cutlass, sparsity, utils = (importlib.import_module(name) for name in (
        "cutlass.cute", "cutlass", "flash_attn.cute.block_sparsity", "flash_attn.cute.utils"))
    (rows, d), keys = query.shape[2:], key.shape[2]

    def in_tiles(batch, head, row, key, lengths, tensors):
        return (utils.scalar_to_ssa(tensors[0][row[0], key[0] >> 5], cutlass.Int32) >> (key & 31) & 1) != 0

    def in_columns(batch, head, row, key, lengths, tensors):
        return between(row, *[utils.scalar_to_ssa(bound[key[0]], cutlass.Int32) for bound in tensors[:bounds]])
    if tiles:
        seen = dense_mask(tiles, -(-rows // 64) * 64, -(-keys // 64) * 64)
        tensors = [(seen.reshape(len(seen), -1, 32).int() << integers(range(32))).sum(2).int()]
    else:
        LTS, LTE, UTS, UTE = integers(columns).T.contiguous()
        bounds = 2 if (LTE >= rows).all() and (UTS <= 0).all() else 4
        if window != (None, None) or causal and bounds == 4:
            raise ValueError("is timed with four column bounds, or with two and a causal mask")
        tensors = [UTE.maximum(integers(range(rows - keys, rows))) if causal else UTE, LTS, UTS, LTE][:bounds]
        seen = between(torch.arange(rows, device="cuda")[:, None], *tensors)
    blocks = {side: [*block_lists(seen, side, side)] for side in (64, 128)}
    side = 64 if sum(blocks[64][::2]).sum() < 3 * sum(blocks[128][::2]).sum() else 128  # 0.8 times as fast
    lists, size = sparsity.BlockSparseTensorsTorch, (side if d > 64 else 128, 128)  # of gradients
    return {"mask_mod": cute.jit(in_tiles if tiles else in_columns), "aux_tensors": tensors,
            "block_sparse_tensors": lists(*blocks[side], block_size=(side, side)),
            "block_sparse_tensors_bwd": lists(*block_lists(seen.T, *size[::-1]), block_size=size)}


def with_slopes(query, key, slopes, softcap, tensors):
    """FlashAttention-4's options for ALiBi: what its kernels call for each score, with a softcap if there is one, and for
    each gradient of a score. They read the slopes, which come after the tensors that a mask reads."""
    if query.requires_grad and query.shape[1] != key.shape[1]:
        raise ValueError("passes other heads to a score_mod in gradients of grouped heads, so ALiBi's slopes would be wrong")
    cute, cutlass, utils = (importlib.import_module(name) for name in ("cutlass.cute", "cutlass", "flash_attn.cute.utils"))

    def score_mod(score, batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
        shift = utils.scalar_to_ssa(seqlen_info.seqlen_k - seqlen_info.seqlen_q, cutlass.Int32)
        distance = (q_idx + shift - kv_idx).to(cutlass.Float32)
        slope = utils.scalar_to_ssa(aux_tensors[-1][batch[0], head[0]], cutlass.Float32)
        if cutlass.const_expr(softcap is not None):
            score = softcap * cute.math.tanh(score / softcap, fastmath=True)  # as its own softcap is computed
        return score - slope * cute.math.absf(distance)

    def score_mod_bwd(gradient, score, batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
        return gradient
    return {"score_mod": cute.jit(score_mod), "aux_tensors": [*tensors, slopes],
            "score_mod_bwd": utils.create_softcap_scoremod_bwd(softcap) if softcap else cute.jit(score_mod_bwd)}


def flash_attention(name, query, key, value, causal, window, documents=None, lengths=None, page_size=None, prefix=0,
                    softcap=None, alibi=None, sinks=None, **mask):
    """The FlashAttention project's own, of tensors (B, N, heads, d); of documents (N, heads, d). FlashAttention-3 has
    another call for a cache, which splits keys where blocks are few. Both take lengths and pages, here in a random order;
    a prefix is in the block tables of all requests. For FP8 Q, K and V are converted beforehand; its scales are 1."""
    library = importlib.import_module(PACKAGES[name][FOUND[name][0]])
    tensors = [tensor.transpose(1, 2) for tensor in (query, key, value)]
    if name == "FlashAttention-3-FP8":
        if query.requires_grad:
            raise ValueError("has no gradients")
        tensors = [tensor.to(torch.float8_e4m3fn) for tensor in tensors]
    attention = library.flash_attn_func
    if documents:
        bounds = integers(documents).reshape(2, -1)
        longest = bounds.diff().amax(1).tolist()
        tensors = [tensor.squeeze(0) for tensor in tensors]  # whose gradients take no copy
        attention = partial(library.flash_attn_varlen_func, cu_seqlens_q=bounds[0].contiguous(),
                            cu_seqlens_k=bounds[1].contiguous(), max_seqlen_q=longest[0], max_seqlen_k=longest[1])
    elif query.shape[2] < key.shape[2] and not query.requires_grad:
        attention = getattr(library, "flash_attn_with_kvcache", attention)
    options = {"deterministic": True} if name.endswith("-deterministic") else {}
    if options and not query.requires_grad:
        raise ValueError("is for gradients")
    batch, keys = tensors[1].shape[:2]
    if lengths or page_size:
        function, argument = (("flash_attn_with_kvcache", "cache_seqlens") if name == "FlashAttention-3" else
                              ("flash_attn_varlen_func", "seqused_k"))
        attention, options[argument] = getattr(library, function), integers(lengths or [keys] * batch)
    if page_size:
        tensors[1:] = pool_of(key, page_size), pool_of(value, page_size)
        options["page_table"] = integers(block_table(batch, keys // page_size, prefix // page_size))
    if window != (None, None):  # FlashAttention-3 takes -1 for all
        all_keys = None if name.startswith("FlashAttention-4") else -1
        options["window_size"] = tuple(all_keys if side is None else side for side in window)
    if mask:
        options, causal = in_blocks(query, key, causal, window, **mask), False
    if alibi:
        entries = len(documents) // 2 - 1 if documents else batch  # its kernels take each document for one
        slopes = slopes_of(alibi, entries, query.shape[1])
        options |= with_slopes(query, key, slopes, softcap, options.get("aux_tensors", []))
    elif softcap:
        options["softcap"] = softcap
    if sinks:
        options["learnable_sink"] = reals(sinks)

    def call():
        output = attention(*tensors, causal=causal, **options)
        return output[0] if isinstance(output, tuple) else output  # with L
    return call


def flash_infer(query, key, value, causal, window, lengths=None, page_size=None, prefix=0):
    """FlashInfer's kernel for decoding on tensor cores, "fa2", which divides the keys of a request among blocks as a plan
    says; the plan is made once. It takes no cache without pages, so such a one is given in pages of 16 keys, one after
    the other. The keys of a prefix are another pass, for the rows of all requests, merged as in FlashInfer's cascade."""
    library = importlib.import_module("flashinfer")
    (batch, heads, rows, d), (kv_heads, keys) = query.shape, key.shape[1:3]
    if window != (None, None):
        raise ValueError("is not timed with a window")
    if rows > MOST_ROWS:
        raise ValueError(f"is timed with {MOST_ROWS} query rows at most")
    lengths = lengths or [keys] * batch
    if min(lengths) <= prefix:
        raise ValueError("is not timed with requests without keys of their own")
    size = page_size or 16
    Q = query.transpose(1, 2).reshape(-1, heads, d)
    cache = pool_of(key, size), pool_of(value, size)
    columns, shared = keys // size, prefix // size
    table = block_table(batch, columns, shared) if page_size else [
        list(range(columns * b, columns * (b + 1))) for b in range(batch)]
    workspace = torch.zeros(512 << 20, dtype=torch.uint8, device="cuda")

    def planned(row_counts, pages, lengths, causal, **options):
        """A call for requests of so many rows and keys, which are in these pages."""
        wrapper = library.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend="fa2")
        counts = [-(-n // size) for n in lengths]
        row_bounds, page_bounds = (integers(list(accumulate(each, initial=0))) for each in (row_counts, counts))
        used = [page for row, count in zip(pages, counts) for page in row[:count]]
        wrapper.plan(row_bounds, page_bounds, integers(used),
                     integers([n - size * (count - 1) for n, count in zip(lengths, counts)]),
                     heads, kv_heads, d, size, causal=causal, q_data_type=query.dtype)
        return partial(wrapper.run, Q, cache, **options)

    of_each = [rows] * batch, [row[shared:] for row in table], [n - prefix for n in lengths], causal
    if not prefix:
        return planned(*of_each)
    of_all = planned([rows * batch], table, [prefix], False, return_lse=True)
    of_each = planned(*of_each, return_lse=True)

    def call():
        O, L = of_each()
        library.merge_state_in_place(O, L, *of_all())
        return O
    return call


# What else than a causal mask and a window a peer is timed with
LISTS = {"flex": {"alibi", "columns", "documents", "sinks", "softcap", "tiles"},
         "FlashAttention-2": {"dropout"}, "cuDNN": {"dropout"},
         "FlashAttention-3": {"documents", "lengths", "page_size", "prefix", "softcap"}, "FlashAttention-3-FP8": {"softcap"},
         "FlashAttention-4": {"alibi", "columns", "documents", "lengths", "page_size", "prefix", "sinks", "softcap", "tiles"},
         "FlashInfer": {"lengths", "page_size", "prefix"}}
MAKERS = {"flex": flex, "FlashInfer": flash_infer,
          "cuDNN-FP8": lambda *inputs: importlib.import_module("cudnn_fp8").cudnn_fp8(*inputs),
          **{name: partial(flash_attention, name) for name in PACKAGES if name.startswith("FlashAttention")}}


def refusal(name, warned):
    """PyTorch warns "Flash attention kernel not used because:", then of each reason, and so on for each back-end."""
    header = {"FlashAttention-2": "flash", "cuDNN": "cudnn", "efficient": "memory efficient"}.get(name)
    mine = False
    for text in (one_line(text).partition(" (Triggered")[0] for text in warned):
        if text.endswith("not used because:"):
            mine = header is not None and text.lower().startswith(header)
        elif mine:
            return text
    return ""


def main():
    cudnn = torch.backends.cudnn.version() or 0
    major = 10000 if cudnn >= 90000 else 1000
    answer(device=torch.cuda.get_device_name(0),
           libraries={"PyTorch": torch.__version__, "cuDNN": f"{cudnn // major}.{cudnn % major // 100}.{cudnn % 100}",
                      **dict(filter(None, FOUND.values()))},
           missing={name: f"the package {' or '.join(PACKAGES[name])} is not installed"
                    for name, found in FOUND.items() if found is None})
    peers = Peers()
    for request in map(json.loads, sys.stdin):
        if request["do"] == "prepare":
            answer(why_not=peers.prepare(request))
        elif request["do"] == "time":
            answer(milliseconds=peers.time(request["peer"]))
        elif request["do"] == "release":
            peers.release()
            answer()


if __name__ == "__main__":
    try:
        with torch.cuda.stream(torch.cuda.Stream()):  # since the default stream cannot be captured
            main()
    except Exception as error:  # whatever it is, lab can only pass it on
        fail(f"{type(error).__name__}: {error}")
