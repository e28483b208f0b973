"""The ladder in PyTorch: attention as an operator with gradients, under torch.compile and in CUDA graphs.

    from flash_ladder.torch import attention
    o = attention(q, k, v, causal=True)

A call on a GPU queues its kernels in the current stream, waits for nothing, and allocates its outputs and the stage's
workspace alone. The operators are torch.ops.flash_ladder.attention and .attention_backward. They are C++, which the
first import of this module compiles against the PyTorch that is there.
"""

import ctypes
from pathlib import Path
from typing import Optional, Tuple, Union

import torch
from torch import Tensor

from . import CannotRun, CheckFailed, StageName, _arguments, _arrays, _home

__all__ = ["attention", "attention_backward"]


def _library():
    """The library with the operators, compiled if it has to be."""
    if not torch.compiled_with_cxx11_abi():
        raise CannotRun(f"PyTorch {torch.__version__} has the old ABI of libstdc++: 2.7 is the oldest that will do")
    root = Path(torch.__file__).parent
    flags = ["-isystem", f"{root}/include", "-isystem", f"{root}/include/torch/csrc/api/include", f"-L{root}/lib",
             "-ltorch_cpu", "-lc10"]
    if torch.version.cuda:
        flags += ["-DLADDER_TORCH_HAS_CUDA", "-ltorch_cuda"]
    return _home.compiled("torch.cpp", flags, torch.__version__)


ctypes.CDLL(str(_library()))  # torch.ops.load_library() would show the package's symbols to all that is loaded later
_attention = torch.ops.flash_ladder.attention.default
_attention_backward = torch.ops.flash_ladder.attention_backward.default


def _empty_as(x):
    """As torch.cpp's empty_as() lays it out."""
    return x.new_empty(x.shape) if 0 in x.stride() else torch.empty_like(x)


@torch.library.register_fake("flash_ladder::attention")
def _(q, k, v, causal, scale, stage, backward_stage, backend):
    return _empty_as(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.register_fake("flash_ladder::attention_backward")
def _(q, k, v, o, lse, do, causal, scale, stage, backend):
    return _empty_as(q), _empty_as(k), _empty_as(v)


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: Optional[float] = None,
              stage: Optional[StageName] = None, backward_stage: Optional[StageName] = None, return_lse: bool = False,
              backend: str = "cpu") -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """flash_ladder.attention of tensors, with gradients by q, k and v.

    q: (B, H, Nq, d); k, v: (B, Hkv, Nk, d), fp16 or bf16; in an autocast region they are cast to its type first.
    stage, backward_stage: as stage in flash_ladder.attention, for O and for the gradients; by default the last rungs.
    Returns O (B, H, Nq, d), or O and L (B, H, Nq), fp32. No gradient flows through L. With
    torch.use_deterministic_algorithms(True) the default is a stage whose results are the same bits each time; one that
    is not so and is asked for by name raises, or warns, as PyTorch's own operators do.
    """
    _require_tensors(Q=q, K=k, V=v)
    device = "cuda" if q.is_cuda else "cpu"
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    try:
        o, lse = _attention(q, k, v, *_options(causal, scale), _word(stage), _word(backward_stage),
                            _arguments.backend_of(backend))
    except RuntimeError as error:
        raise _as_said(error) from None
    return (o, lse) if return_lse else o


def attention_backward(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, *, causal: bool = False,
                       scale: Optional[float] = None, stage: Optional[StageName] = None,
                       backend: str = "cpu") -> Tuple[Tensor, Tensor, Tensor]:
    """dQ, dK and dV of tensors: see flash_ladder.attention_backward."""
    _require_tensors(Q=q, K=k, V=v, O=o, L=lse, dO=do)
    try:
        return _attention_backward(q, k, v, o, lse, do, *_options(causal, scale), _word(stage),
                                   _arguments.backend_of(backend))
    except RuntimeError as error:
        raise _as_said(error) from None


def _options(causal, scale):
    return _arguments.flag("causal", causal), _arguments.scale_of(scale)


def _word(stage):
    return None if stage is None else str(stage)


def _require_tensors(**arrays):
    for name, x in arrays.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is {_arrays.kind(x)}; expected torch.Tensor")
        if x.layout is not torch.strided or x.is_nested or type(x).__name__ == "MaskedTensor":
            what = "nested" if x.is_nested else "masked" if x.layout is torch.strided else "sparse"
            raise TypeError(f"{name} is a {what} tensor; expected a dense one")


def _as_said(error):
    """The ladder's own exception: an operator can only raise PyTorch's, and begins its text with the name."""
    kinds = {kind.__name__: kind for kind in (CannotRun, CheckFailed)}
    name, _, text = str(error).partition(": ")
    return kinds[name](text) if name in kinds else error
