"""As much of PyTorch as harness/time/peers.py needs, without a GPU, for tests/test_peers.cpp.

FlashAttention takes 1.5 ms, cuDNN refuses, and the unfused back-end runs out of memory. The memory-efficient one
refuses groups of heads, flex_attention compiles, and Triton is there but flash_attn_interface is not. FAKE_TORCH makes
it "old" or "blind" (without a GPU), lets the device "crash", brings "flash3", or takes away "triton". Gradients take
twice as long.
"""

import os
import sys
import types
import warnings
from contextlib import contextmanager, nullcontext

MODE = os.environ.get("FAKE_TORCH", "")
__version__ = "2.11.0"
float16, bfloat16, float32 = "float16", "bfloat16", "float32"
inference_mode = nullcontext
gradients = 0  # computed since the last event
chosen = None  # back-end
compiled = 0  # since the last reset
flushes = 0  # since the last event


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
        global flushes, gradients
        self.flushes, flushes = flushes, 0
        self.gradients, gradients = gradients, 0

    def query(self):
        return self.flushes < 4  # the host takes as long as three

    def synchronize(self):
        pass

    def elapsed_time(self, stop):
        assert chosen in ("FLASH_ATTENTION", None) and self.flushes == 4 and stop.flushes == 0
        return 1.5 * (1 + stop.gradients)


def manual_seed(_):
    pass


def zeros(size, dtype, device):
    assert size * 4 == 256 << 20 and dtype == float32 and device == "cuda"
    return Tensor()


def randn(*sizes, dtype, device, requires_grad):
    assert device == "cuda"
    if sizes[2] > 1 << 20:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB. GPU 0 has 1 GiB free.\nMore")
    return Sizes(sizes, requires_grad)


def randn_like(output):
    return Sizes(output.shape)


def grad(output, inputs, gradient, retain_graph):
    """As torch.autograd has it: of an output that has a graph, which is kept."""
    global gradients
    assert output.requires_grad and all(x.requires_grad for x in inputs) and not gradient.requires_grad
    assert gradient.shape == output.shape and retain_graph
    gradients += 1


class Sizes:
    def __init__(self, sizes, requires_grad=False):
        self.shape = sizes
        self.requires_grad = requires_grad

    def transpose(self, a, b):
        sizes = list(self.shape)
        sizes[a], sizes[b] = sizes[b], sizes[a]
        return Sizes(sizes, self.requires_grad)


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
    return Sizes(query.shape, query.requires_grad)


def flex_attention(query, key, value, block_mask, enable_gqa):
    assert key.shape == value.shape and enable_gqa == (query.shape[1] != key.shape[1])
    assert block_mask is None or block_mask == (query.shape[2], key.shape[2])
    return Sizes(query.shape, query.requires_grad)


def create_block_mask(visible, batches, heads, rows, keys, device):
    assert (batches, heads, device) == (None, None, "cuda")
    assert visible(0, 0, 5, 5) and visible(0, 0, 5, 4) and not visible(0, 0, 5, 6)
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


def flash_attn_func(query, key, value, causal):
    assert key.shape == value.shape and query.shape[1] == 24 and key.shape[1] == 40 and causal in (False, True)
    return Sizes(query.shape, query.requires_grad)


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
    get_device_properties=lambda _: types.SimpleNamespace(L2_cache_size=1 << 20))
backends = types.SimpleNamespace(
    cuda=types.SimpleNamespace(allow_fp16_bf16_reduction_math_sdp=lambda _: None),
    cudnn=types.SimpleNamespace(version=lambda: 91002))
nn = types.SimpleNamespace(
    functional=types.SimpleNamespace(scaled_dot_product_attention=scaled_dot_product_attention))
_dynamo = types.SimpleNamespace(reset=reset)
_functorch = types.SimpleNamespace(config=types.SimpleNamespace(donated_buffer=True))
autograd = types.SimpleNamespace(grad=grad)
if MODE == "flash3":
    sys.modules["flash_attn_interface"] = types.SimpleNamespace(__spec__="there", flash_attn_func=flash_attn_func)
if MODE != "triton":
    sys.modules["triton"] = types.SimpleNamespace(__spec__="there")
sys.modules["torch.nn.attention.flex_attention"] = types.SimpleNamespace(
    flex_attention=flex_attention, create_block_mask=create_block_mask)
if MODE != "old":
    names = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "MATH", "EFFICIENT_ATTENTION")
    sys.modules["torch.nn.attention"] = types.SimpleNamespace(
        sdpa_kernel=sdpa_kernel, SDPBackend=types.SimpleNamespace(**{name: name for name in names}))
