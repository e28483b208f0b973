"""As much of PyTorch as harness/time/peers.py needs, without a GPU, for tests/test_peers.cpp.

FlashAttention takes 1.5 ms, cuDNN refuses, and the unfused back-end runs out of memory. FAKE_TORCH makes it "old" or
"blind" (without a GPU), or lets the device "crash".
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
chosen = None  # back-end
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
        global flushes
        self.flushes, flushes = flushes, 0

    def query(self):
        return self.flushes < 4  # the host takes as long as three

    def synchronize(self):
        pass

    def elapsed_time(self, stop):
        assert chosen == "FLASH_ATTENTION" and self.flushes == 4 and stop.flushes == 0
        return 1.5


def manual_seed(_):
    pass


def zeros(size, dtype, device):
    assert size * 4 == 256 << 20 and dtype == float32 and device == "cuda"
    return Tensor()


def randn(*sizes, dtype, device):
    assert device == "cuda"
    if sizes[2] > 1 << 20:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB. GPU 0 has 1 GiB free.\nMore")
    return sizes, dtype


def scaled_dot_product_attention(query, key, value, is_causal, enable_gqa=False):
    assert key == value and enable_gqa == (query[0][1] != key[0][1])
    if MODE == "crash":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if chosen == "CUDNN_ATTENTION":
        for reason in ("Flash attention kernel not used because:", "Flash attention has been runtime disabled.",
                       "CuDNN attention kernel not used because:", "cuDNN does not like it."):
            warnings.warn(reason + " (Triggered internally at sdp_utils.cpp:1.)")
        raise RuntimeError("No available kernel. Aborting execution.")
    if chosen == "MATH":
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 32 GiB. GPU 0 has 1 GiB free.\nMore")


def synchronize():
    if MODE == "crash":
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nMore")


@contextmanager
def sdpa_kernel(backend):
    global chosen
    chosen = backend
    yield
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
if MODE != "old":
    names = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "MATH")
    sys.modules["torch.nn.attention"] = types.SimpleNamespace(
        sdpa_kernel=sdpa_kernel, SDPBackend=types.SimpleNamespace(**{name: name for name in names}))
