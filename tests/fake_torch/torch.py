"""As much of PyTorch as harness/time/peers.py needs, without a GPU, for tests/test_peers.cpp.

FlashAttention-2 takes 1.5 ms, cuDNN refuses, and the unfused back-end runs out of memory. The memory-efficient one
refuses groups of heads, and flex_attention compiles. Gradients take twice as long. A call takes 0.5 ms longer than its
graph. The folder packages/ holds what Triton, FlashAttention-3 and -4 and FlashInfer have of their own.

FAKE_TORCH makes PyTorch "old" or "blind" (without a GPU), lets the device "crash", makes "slow graphs", or keeps calls
"uncaptured".
"""

import math
import os
import sys
import types
import warnings
import weakref
from contextlib import contextmanager, nullcontext

MODE = os.environ.get("FAKE_TORCH", "")
__version__ = "2.11.0"
float16, bfloat16, float32, int32, uint8 = "float16", "bfloat16", "float32", "int32", "uint8"
float8_e4m3fn = "float8_e4m3fn"
set_grad_enabled = nullcontext
spent = 0  # milliseconds since the last event
replayed = False  # since then
flushes = 0  # since then
chosen = None  # back-end
compiled = 0  # since the last reset
capturing = None  # a graph
stream_now = "default"


class OutOfMemoryError(RuntimeError):
    pass


class Tensor:
    def sum(self):
        global flushes
        flushes += 1


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        global flushes, spent, replayed
        self.flushes, flushes = flushes, 0
        self.spent, spent = spent, 0
        self.replayed, replayed = replayed, False

    def query(self):
        return not last_replayed and self.flushes < 4  # the host takes as long as three for a call

    def synchronize(self):
        pass

    def elapsed_time(self, stop):
        assert chosen in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", None) and stop.flushes == 0
        assert self.flushes in (1, 4) if stop.replayed else self.flushes == 4
        return stop.spent + (0.5 if stop.replayed == (MODE == "slow graphs") else 0)


class Stream:
    cuda_stream = 7


@contextmanager
def on_stream(stream):
    global stream_now
    before, stream_now = stream_now, stream
    try:
        yield
    finally:
        stream_now = before


class CUDAGraph:
    def replay(self):
        global replayed, last_replayed
        assert all(tensor() is not None for tensor in self.reads), "the graph reads what was given back"
        spend(self.spent)
        replayed = last_replayed = True


last_replayed = False  # and not called


@contextmanager
def capture(graph, stream):
    """What is called inside takes its time when the graph is replayed."""
    global spent, capturing
    assert stream is stream_now and stream != "default"
    if MODE == "uncaptured":
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nMore")
    before, capturing, graph.reads = spent, graph, []
    yield
    graph.spent, spent, capturing = spent - before, before, None


def spend(milliseconds, *read):
    """A call, as a kernel's launch is one."""
    global spent, last_replayed
    assert stream_now != "default"
    if capturing is not None:
        capturing.reads += map(weakref.ref, read)
    spent += milliseconds
    last_replayed = False


def manual_seed(_):
    pass


def zeros(size, dtype, device):
    assert (size, dtype) in ((64 << 20, float32), (512 << 20, uint8)) and device == "cuda"
    return Tensor()


def ones(sizes, device):
    assert device == "cuda"
    return Sizes(sizes, dtype=float32)


def empty(size, dtype, device):
    assert dtype == uint8 and device == "cuda"
    return Sizes([size], dtype=dtype)


def empty_like(tensor):
    return Sizes(tensor.shape, dtype=tensor.dtype)


def randperm(count):
    return Integers(range(count))


def randn(*sizes, dtype, device, requires_grad):
    assert device == "cuda"
    if sizes[2] > 1 << 20:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB. GPU 0 has 1 GiB free.\nMore")
    return Sizes(sizes, requires_grad, dtype=dtype)


def randn_like(output):
    return Sizes(output.shape)


def grad(output, inputs, gradient, retain_graph):
    """As torch.autograd has it: of an output that has a graph, which is kept."""
    assert output.requires_grad and all(x.requires_grad for x in inputs) and not gradient.requires_grad
    assert gradient.shape == output.shape and retain_graph
    if output.no_gradients:
        raise RuntimeError(output.no_gradients)
    spend(2 * output.milliseconds, output, gradient, *inputs)


class Sizes:
    def __init__(self, sizes, requires_grad=False, milliseconds=0, dtype=None, no_gradients=""):
        self.shape = tuple(sizes)
        self.requires_grad, self.dtype = requires_grad, dtype
        self.milliseconds, self.no_gradients = milliseconds, no_gradients

    def transpose(self, a, b):
        sizes = list(self.shape)
        sizes[a], sizes[b] = sizes[b], sizes[a]
        return Sizes(sizes, self.requires_grad, dtype=self.dtype)

    def stride(self):
        return [math.prod(self.shape[axis + 1:]) for axis in range(len(self.shape))]

    def to(self, dtype):
        return Sizes(self.shape, self.requires_grad, dtype=dtype)

    def reshape(self, *sizes):
        rest = math.prod(self.shape) // -math.prod(sizes)
        return Sizes([rest if size == -1 else size for size in sizes], self.requires_grad, dtype=self.dtype)

    def squeeze(self, axis):
        assert axis == 0 and self.shape[0] == 1
        return Sizes(self.shape[1:], self.requires_grad, dtype=self.dtype)


class Integers(list):
    """As many as are lists: where documents begin."""

    def reshape(self, rows, _):
        columns = len(self) // rows
        return Integers(Integers(self[columns * row:columns * (row + 1)]) for row in range(rows))

    def diff(self):
        return Integers(Integers(end - begin for begin, end in zip(row, row[1:])) for row in self)

    def amax(self, axis):
        assert axis == 1
        return Integers(map(max, self))

    def tolist(self):
        return list(self)

    def expand(self, *_):
        return self

    def contiguous(self):
        return self


def tensor(values, dtype, device):
    assert dtype in (int32, float32) and device == "cuda"
    return Integers(values)


def attention_of(query, milliseconds, no_gradients=""):
    """The output of a call that takes so long."""
    spend(milliseconds, query)
    return Sizes(query.shape, query.requires_grad, milliseconds, query.dtype, no_gradients)


def scaled_dot_product_attention(query, key, value, is_causal, enable_gqa=False):
    assert key.shape == value.shape and enable_gqa == (query.shape[1] != key.shape[1])
    if MODE == "crash":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if chosen == "CUDNN_ATTENTION":
        for reason in ("Flash attention kernel not used because:", "Flash attention has been runtime disabled.",
                       "CuDNN attention kernel not used because:", "cuDNN does not like it."):
            warnings.warn(reason + " (Triggered internally at sdp_utils.cpp:1.)")
        raise RuntimeError("No available kernel. Aborting execution.")
    if chosen == "EFFICIENT_ATTENTION" and enable_gqa:
        for reason in ("Memory efficient kernel not used because:", "It has no groups of heads.",
                       "Flash attention kernel not used because:", "Flash attention has been runtime disabled."):
            warnings.warn(reason + " (Triggered internally at sdp_utils.cpp:1.)")
        raise RuntimeError("No available kernel. Aborting execution.")
    if chosen == "MATH":
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 32 GiB. GPU 0 has 1 GiB free.\nMore")
    return attention_of(query, 1.5)


def flex_attention(query, key, value, score_mod, block_mask, enable_gqa, kernel_options):
    assert key.shape == value.shape and enable_gqa == (query.shape[1] != key.shape[1]) and kernel_options == {}
    assert block_mask is None or block_mask == (query.shape[2], key.shape[2])
    return attention_of(query, 1.5 if score_mod is None else 1.75)


def create_block_mask(visible, batches, heads, rows, keys, device):
    """Of a mask that is aligned bottom-right."""
    assert (batches, heads, device) == (None, None, "cuda")
    last = 5 + keys - rows  # key that row 5 sees
    assert visible(0, 0, 5, last) and visible(0, 0, 5, last - 1) and not visible(0, 0, 5, last + 1)
    return rows, keys


def compile(function, fullgraph, dynamic):
    global compiled
    assert function is flex_attention and fullgraph and not dynamic
    compiled += 1
    assert compiled == 1, "the next one would run unfused"
    return function


def reset():
    global compiled
    compiled = 0


def synchronize():
    if MODE == "crash":
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nMore")


@contextmanager
def sdpa_kernel(backend):
    global chosen
    chosen = backend
    try:
        yield
    finally:
        chosen = None


print("noise that is no answer")
cuda = types.SimpleNamespace(
    Event=Event, OutOfMemoryError=OutOfMemoryError, synchronize=synchronize, empty_cache=lambda: None,
    is_available=lambda: MODE != "blind", get_device_name=lambda _: "fake GPU",
    get_device_properties=lambda _: types.SimpleNamespace(L2_cache_size=1 << 20),
    Stream=Stream, stream=on_stream, current_stream=lambda: stream_now, CUDAGraph=CUDAGraph, graph=capture)
backends = types.SimpleNamespace(
    cuda=types.SimpleNamespace(allow_fp16_bf16_reduction_math_sdp=lambda _: None),
    cudnn=types.SimpleNamespace(version=lambda: 91002))
nn = types.SimpleNamespace(
    functional=types.SimpleNamespace(scaled_dot_product_attention=scaled_dot_product_attention))
_dynamo = types.SimpleNamespace(reset=reset)
sys.modules["torch._functorch.config"] = types.SimpleNamespace(donated_buffer=True)
autograd = types.SimpleNamespace(grad=grad)
sys.modules["torch.nn.attention.flex_attention"] = types.SimpleNamespace(
    flex_attention=flex_attention, create_block_mask=create_block_mask)
if MODE != "old":
    names = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "MATH", "EFFICIENT_ATTENTION")
    sys.modules["torch.nn.attention"] = types.SimpleNamespace(
        sdpa_kernel=sdpa_kernel, SDPBackend=types.SimpleNamespace(**{name: name for name in names}))
