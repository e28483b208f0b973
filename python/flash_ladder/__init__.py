"""The ladder from Python: every stage of Flash Ladder as a function of arrays.

    O = flash_ladder.attention(Q, K, V, causal=True, stage=5)

Q is (B, H, Nq, d); K and V are (B, Hkv, Nk, d), and H is a multiple of Hkv. Arrays are NumPy's, PyTorch's, CuPy's or
JAX's, of fp16 or bf16, and are read where they lie. Those in the CPU's memory run on the CPU back-end, thread by
thread; those on a GPU run there, in the caller's stream. A stage is compiled when it is first called, and kept in
~/.cache/flash_ladder ($FLASH_LADDER_CACHE): by g++ for the CPU, by nvcc for a GPU.

A wrong argument is a ValueError or a TypeError. CannotRun says that this machine lacks something, CheckFailed that a
kernel raced, hung or does not compile; both are RuntimeErrors.
"""

import json
from typing import Any, NamedTuple, Optional, Sequence, Union

from . import _arguments, _arrays, _core, _home
from ._core import CannotRun, CheckFailed

__all__ = ["attention", "attention_backward", "default_stage", "stages", "prepare", "verify", "count", "time", "Stage",
           "CannotRun", "CheckFailed"]

StageName = Union[int, str]


class Stage(NamedTuple):
    """A rung of the ladder, as its kernel.cu declares it."""

    number: int
    name: str  #: "split_q"
    folder: str  #: "04_split_q"
    parent: int  #: the stage that it changes, or -1
    change: str  #: the one change, in one line
    shows_in: str  #: the timing regime where that change should show
    computes: str  #: "forward" or "backward"
    head_dims: Sequence[int]
    compute_capability: int  #: the one that it needs of a GPU, 90 for Hopper's; 0 for any
    repeats_exactly: bool  #: whether two runs agree bit for bit
    source: str  #: path of its kernel.cu


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, window: Optional[Sequence[int]] = None,
              scale: Optional[float] = None, stage: Optional[StageName] = None, return_lse: bool = False,
              backend: str = "cpu") -> Any:
    """O = softmax(scale Q K^T + mask) V.

    q: (B, H, Nq, d); k, v: (B, Hkv, Nk, d): arrays of one library, fp16 or bf16, with rows of adjacent elements and
        strides that are multiples of 8; any other order of the first three axes is a matter of strides (a transposed
        view). Nothing is copied where d is 64, 128 or 256. Any other d up to 256 is computed at the next of these
        that the stage has, on copies with columns of zeros.
    causal: row i sees the keys j <= i + Nk - Nq.
    window: (left, right): row i sees the keys from i + Nk - Nq - left to i + Nk - Nq + right; -1 is no bound. With
        causal, those that both leave. A stage that takes no window refuses it.
    scale: 1 / sqrt(d) by default.
    stage: a number (5), a name ("split_q") or a folder with a kernel.cu of your own ("my/"). By default a fast one
        for the problem: default_stage().
    return_lse: also return L (B, H, Nq), fp32: log(sum(exp(scale Q K^T + mask))).
    backend: of arrays in the CPU's memory "cpu" or "checked", which also finds races.

    Returns O, of q's library, type, axes and strides; or (O, L). PyTorch's tensors take flash_ladder.torch.attention,
    and gradients flow through it.
    """
    if _arrays.is_torch(q):
        from . import torch
        return torch.attention(q, k, v, causal=causal, window=window, scale=scale, stage=stage, return_lse=return_lse,
                               backend=backend)
    mask, scale = _arguments.mask(causal, window), _arguments.scale_of(scale)
    at, kernel, width = _prepare(True, stage, backend, mask, {"Q": q, "K": k, "V": v})
    if width != q.shape[3]:
        O, L = _by_zero_columns(attention, width, (q, k, v), (q, q), scale, causal=causal, window=window, stage=stage,
                                return_lse=True, backend=backend)
        return (O, L) if return_lse else O
    library = at.library
    workspace = _workspace(kernel, at, q) if at.on_gpu else None
    O = library.empty_like(q)
    L = library.empty(q.shape[:3], "float32", q)
    kernel.forward(*(place[:3] for place in at.places.values()), at.place("O", O)[:3], at.place("L", L)[0], at.bf16,
                   mask, scale, _address(at, workspace), library.stream)
    if at.on_gpu:
        library.finish()
    return (O, L) if return_lse else O


def attention_backward(q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any, *, causal: bool = False,
                       window: Optional[Sequence[int]] = None, scale: Optional[float] = None,
                       stage: Optional[StageName] = None, backend: str = "cpu") -> Any:
    """dQ, dK and dV: the gradients of a loss by Q, K and V, from its gradient by O.

    q, o, do: (B, H, Nq, d); k, v: (B, Hkv, Nk, d); lse: (B, H, Nq), fp32. o and lse are what
    attention(..., return_lse=True) returned with the same causal, window and scale. Otherwise as attention().

    Returns (dQ, dK, dV), of the axes and strides of q, k and v.
    """
    if _arrays.is_torch(q):
        from . import torch
        return torch.attention_backward(q, k, v, o, lse, do, causal=causal, window=window, scale=scale, stage=stage,
                                        backend=backend)
    mask, scale = _arguments.mask(causal, window), _arguments.scale_of(scale)
    at, kernel, width = _prepare(False, stage, backend, mask, {"Q": q, "K": k, "V": v}, {"O": o, "dO": do})
    library = at.library
    lse = _arrays.readable_lse(library, lse, q)
    for name, x in ("O", o), ("dO", do):
        if tuple(x.shape) != tuple(q.shape):
            raise ValueError(f"{name} is {tuple(x.shape)} and Q is {tuple(q.shape)}: they must agree")
    if width != q.shape[3]:
        return _by_zero_columns(attention_backward, width, (q, k, v, o, lse, do), (q, k, v), scale, causal=causal,
                                window=window, stage=stage, backend=backend)
    workspace = _workspace(kernel, at, q) if at.on_gpu else None
    gradients = [library.empty_like(x) for x in (q, k, v)]
    Q, K, V, O, dO = (place[:3] for place in at.places.values())
    kernel.backward(Q, K, V, O, at.place("L", lse)[0], dO,
                    *(at.place(name, x)[:3] for name, x in zip(("dQ", "dK", "dV"), gradients)), at.bf16, mask, scale,
                    _address(at, workspace), library.stream)
    if at.on_gpu:
        library.finish()
    return tuple(gradients)


def stages(words: Union[StageName, Sequence[StageName]] = "all") -> "list[Stage]":
    """The stages that words name, as on lab's command line: 4, "1-5", "split_q", "my/", or "all"."""
    return [Stage(**stage) for stage in json.loads(_core.list_stages(_arguments.words(words)))]


def default_stage(shape: Sequence[int], *, causal: bool = False, window: Optional[Sequence[int]] = None,
                  backward: bool = False, backend: str = "cpu") -> str:
    """The folder's name of the stage that stage=None means for a problem of shape (B, H, Hkv, Nq, Nk, d): of those that
    were timed on the nearest recorded problem, the last rung that is as fast as any (`lab list --for` shows the times);
    with a window, the last rung that takes one.
    """
    B, H, Hkv, Nq, Nk, d = (_arguments.whole("a size", size) for size in _arguments.sizes(shape))
    return _core.default_stage(not _arguments.flag("backward", backward), (B, H, Nq, d), (B, Hkv, Nk, d),
                               _arguments.mask(causal, window), _arguments.backend_of(backend))


def prepare(words: Union[StageName, Sequence[StageName]] = "all", backend: str = "cpu") -> None:
    """Compiles these stages for "cpu", "checked" or "gpu" now, as many at once as there are cores; otherwise each is
    compiled when it is first called. Those that cannot run on the GPU are left out."""
    _core.prepare(_arguments.words(words), _arguments.backend_of(backend))


def verify(words: Union[StageName, Sequence[StageName]] = "all", *, shape: Optional[Sequence[int]] = None,
           causal: bool = False, window: Optional[Sequence[int]] = None, dtype: str = "fp16", quick: bool = True,
           backend: str = "cpu") -> "list[dict]":
    """Stages against attention, or its gradients, in double precision.

    shape: (B, H, Hkv, Nq, Nk, d), with causal, window and dtype ("fp16" or "bf16"); by default each stage's own cases, of which
        `quick` takes one for each idea.
    backend: "cpu", "checked" (also finds races) or "gpu".

    Returns for each stage what passed, the largest errors, and in "reports" where and how it is wrong.
    """
    return json.loads(_core.verify(_arguments.words(words), _arguments.backend_of(backend), _arguments.shape(shape),
                                   _arguments.mask(causal, window), _arguments.is_bf16(dtype),
                                   _arguments.flag("quick", quick)))


def count(stage: StageName, shape: Sequence[int] = (1, 2, 2, 512, 512, 64), *, causal: bool = False,
          window: Optional[Sequence[int]] = None, dtype: str = "fp16") -> "dict[str, int]":
    """The work that a stage does on a problem of shape (B, H, Hkv, Nq, Nk, d), counted exactly on the CPU: bytes,
    instructions, barriers, by the names of `lab count --json`."""
    return json.loads(_core.count(str(stage), _arguments.shape(shape), _arguments.mask(causal, window),
                                  _arguments.is_bf16(dtype)))


def time(stage: StageName, shape: Sequence[int], *, causal: bool = False, window: Optional[Sequence[int]] = None,
         dtype: str = "bf16") -> dict:
    """A stage's time on the GPU, as `lab time` measures it: with a cold cache, verified, median and spread.

    shape: (B, H, Hkv, Nq, Nk, d). CannotRun without a GPU: a CPU's time says nothing about one.
    """
    return json.loads(_core.time(str(stage), _arguments.shape(shape), _arguments.mask(causal, window),
                                 _arguments.is_bf16(dtype)))


def _prepare(forward, stage, backend, mask, tensors, others=None):
    """(tensors where they lie, the stage for them, its head dimension): `tensors` are Q, K and V, `others` are checked,
    too."""
    at = _arrays.Placed({**tensors, **(others or {})})
    backend = _arguments.backend_of(backend)
    if at.on_gpu:
        backend = "gpu"
    elif backend == "gpu":
        raise ValueError("backend is 'gpu' and Q is in the CPU's memory")
    Q, K, V = (at.places[name][1] for name in tensors)
    kernel = _core.kernel_of(forward, None if stage is None else str(stage), backend, Q, K, mask)
    return at, kernel, kernel.width(Q, K, V)


def _by_zero_columns(call, width, arrays, like, scale, **options):
    """call(...) of arrays with columns of zeros up to this head dimension, and of what it returns the columns that there
    should be. No product and no sum changes, but for the default scale, which is the narrow one's."""
    library = _arrays.library_of("Q", like[0])
    d = like[0].shape[3]
    results = call(*(library.widened(x, width) if x.ndim == 4 else x for x in arrays),
                   scale=d ** -0.5 if scale is None else scale, **options)
    return tuple(library.narrowed(x, shaped) if x.ndim == 4 else x for x, shaped in zip(results, like))


def _workspace(kernel, at, q):
    return at.library.empty((max(16, kernel.workspace_bytes(at.places["Q"][1], at.places["K"][1])),), "uint8", q)


def _address(at, workspace):
    return 0 if workspace is None else at.place("workspace", workspace)[0]
