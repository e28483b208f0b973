"""The ladder in PyTorch: attention as an operator with gradients, under torch.compile and in CUDA graphs.

    from flash_ladder.torch import attention
    o = attention(q, k, v, causal=True)

A call on a GPU queues its kernels in the current stream, waits for nothing, and allocates its outputs and the stage's
workspace alone. The operators are torch.ops.flash_ladder.attention, .attention_backward, .append and .decode. They are
C++, which the first import of this module compiles against the PyTorch that is there.
"""

import ctypes
import json
from pathlib import Path
from typing import Callable, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from . import CannotRun, CheckFailed, StageName, TileLists, _arguments, _arrays, _core, _eight_bits, _home, _tiles

Integers = Union[Tensor, Sequence]
Scales = Union[Tensor, Sequence, float]

__all__ = ["append", "attention", "attention_backward", "decode", "judge", "verdict"]


def _library():
    """The library with the operators, compiled if it has to be."""
    if not torch.compiled_with_cxx11_abi():
        raise CannotRun(f"PyTorch {torch.__version__} has the old ABI of libstdc++; 2.7 or newer is needed")
    root = Path(torch.__file__).parent
    flags = ["-isystem", f"{root}/include", "-isystem", f"{root}/include/torch/csrc/api/include", f"-L{root}/lib",
             "-ltorch_cpu", "-lc10"]
    if torch.version.cuda:
        flags += ["-DLADDER_TORCH_HAS_CUDA", "-ltorch_cuda"]
    return _home.compiled("torch.cpp", flags, torch.__version__)


ctypes.CDLL(str(_library()))  # torch.ops.load_library() would show the package's symbols to all that is loaded later
_tiles._of_mask = torch.compiler.disable(_tiles._of_mask)  # NumPy makes the lists, by what the mask holds
_attention = torch.ops.flash_ladder.attention.default
_attention_backward = torch.ops.flash_ladder.attention_backward.default
_append = torch.ops.flash_ladder.append.default
_decode = torch.ops.flash_ladder.decode.default


def _empty_as(x, dtype=None):
    """As torch.cpp's empty_as() lays it out."""
    return x.new_empty(x.shape, dtype=dtype) if 0 in x.stride() else torch.empty_like(x, dtype=dtype)


@torch.library.register_fake("flash_ladder::attention")
@torch.library.register_fake("flash_ladder::decode")
def _(q, k, v, causal, arrays, integers, reals, names, *rest):
    of_e4m3 = torch.float16 if "out_dtype" in names else torch.bfloat16
    return _empty_as(q, of_e4m3 if "q_scale" in names else None), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.register_fake("flash_ladder::attention_backward")
def _(q, k, v, o, lse, do, causal, arrays, integers, reals, names, *rest):
    dsinks = [q.new_empty(q.shape[1:2], dtype=torch.float32)] if "sinks" in names else []
    return [_empty_as(q), _empty_as(k), _empty_as(v), *dsinks]


@torch.library.register_fake("flash_ladder::append")
def _(k_cache, v_cache, rotated_q, k, v, q, cos, sin, seqused, *rest):
    return k.new_empty(k.shape[:1], dtype=torch.int32)


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, window: Optional[Sequence[int]] = None,
              cu_seqlens_q: Optional[Integers] = None, cu_seqlens_k: Optional[Integers] = None,
              columns: Optional[Integers] = None, tiles: Optional[TileLists] = None, softcap: float = 0.0,
              alibi_slopes: Optional[Scales] = None, sinks: Optional[Scales] = None, dropout_p: float = 0.0,
              seed: Optional[int] = None, q_scale: Optional[Scales] = None, k_scale: Optional[Scales] = None,
              v_scale: Optional[Scales] = None, out_dtype: Union[torch.dtype, str, None] = None,
              promotion: bool = False, scale: Optional[float] = None, stage: Optional[StageName] = None,
              backward_stage: Optional[StageName] = None, return_lse: bool = False,
              backend: str = "cpu") -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """flash_ladder.attention of tensors, with gradients by q, k, v and sinks.

    q: (B, H, Nq, d); k, v: (B, Hkv, Nk, d), fp16 or bf16; in an autocast region they are cast to its type first.
    cu_seqlens_q, cu_seqlens_k, columns, tiles: integers, as in flash_ladder.attention, also tensors. A call checks those
        that are not on a GPU, and copies them there. Gradients are refused where no stage computes them.
    softcap, alibi_slopes, sinks: as in flash_ladder.attention. Slopes that require a gradient are refused.
    q_scale, k_scale, v_scale, out_dtype, promotion: of q, k and v in float8_e4m3fn, as in flash_ladder.attention.
    stage, backward_stage: as stage in flash_ladder.attention, for O and for the gradients; by default the last rungs.
    Returns O (B, H, Nq, d), or O and L (B, H, Nq), fp32. No gradient flows through L. With
    torch.use_deterministic_algorithms(True) the default is a stage whose results are the same bits each time; one that
    is not so and is asked for by name raises, or warns, as PyTorch's own operators do.
    """
    _require_tensors(Q=q, K=k, V=v)
    mask = dict(causal=causal, window=window, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, columns=columns,
                tiles=tiles, softcap=softcap, alibi_slopes=alibi_slopes, sinks=sinks, dropout_p=dropout_p, seed=seed,
                promotion=int(_arguments.flag("promotion", promotion)))
    scales = {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
    if (out := _eight_bits.of_output(out_dtype, scales)) is None:
        q, k, v = _autocast(q, k, v)
    else:
        _eight_bits.require_inputs({"Q": q, "K": k, "V": v}, scales)
        if _eight_bits.rounds(stage):
            q, k, v = _eight_bits.in_bf16({"Q": q, "K": k, "V": v}, scales, out)
        else:
            mask.update(scales, out_dtype=int(out == "float16"))
    try:
        o, lse = _attention(q, k, v, *_given(q, k, mask),
                            _arguments.scale_of(scale), _word(stage), _word(backward_stage),
                            _arguments.backend_of(backend))
    except RuntimeError as error:
        raise _as_said(error) from None
    return (o, lse) if return_lse else o


def attention_backward(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, *, causal: bool = False,
                       window: Optional[Sequence[int]] = None, cu_seqlens_q: Optional[Integers] = None,
                       cu_seqlens_k: Optional[Integers] = None, columns: Optional[Integers] = None,
                       tiles: Optional[TileLists] = None, softcap: float = 0.0,
                       alibi_slopes: Optional[Scales] = None, sinks: Optional[Scales] = None,
                       dropout_p: float = 0.0, seed: Optional[int] = None,
                       scale: Optional[float] = None, stage: Optional[StageName] = None,
                       backend: str = "cpu") -> Tuple[Tensor, ...]:
    """dQ, dK and dV of tensors, and with sinks dsinks: see flash_ladder.attention_backward."""
    _require_tensors(Q=q, K=k, V=v, O=o, L=lse, dO=do)
    mask = dict(causal=causal, window=window, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, columns=columns,
                tiles=tiles, softcap=softcap, alibi_slopes=alibi_slopes, sinks=sinks, dropout_p=dropout_p, seed=seed)
    try:
        return tuple(_attention_backward(
            q, k, v, o, lse, do, *_given(q, k, mask),
            _arguments.scale_of(scale), _word(stage), _arguments.backend_of(backend)))
    except RuntimeError as error:
        raise _as_said(error) from None


def append(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, seqused: Tensor, *, q: Optional[Tensor] = None,
           rotary_cos: Optional[Tensor] = None, rotary_sin: Optional[Tensor] = None, rotary_interleaved: bool = True,
           causal: bool = False, cache_batch_idx: Optional[Tensor] = None, block_table: Optional[Tensor] = None,
           k_scale: Optional[Scales] = None, v_scale: Optional[Scales] = None,
           backend: str = "cpu") -> Tuple[Optional[Tensor], Tensor]:
    """Writes new rows k and v to a cache, for decode() to read, in one launch.

    k_cache, v_cache: as in decode(), and changed; in float8_e4m3fn with k_scale and v_scale, which new rows are divided by
        before they are rounded. Beyond 448 they saturate. Scales of tokens, with an axis more, are changed too: each new row
        gets one of its own, its largest magnitude / 448, or 1 if it is zeros, and is never rounded again.
    k, v: (B, N, Hkv, d), fp16 or bf16. q: (B, Nq, H, d), of their type, which is rotated as k is.
    seqused: (B,), the keys that each request has; its new rows follow them.
    rotary_cos, rotary_sin: (positions, pairs), fp32 or of k's type: the angles of rows at these positions. They turn the
        first 2 pairs columns of q and k: columns 2c and 2c + 1 together, or without rotary_interleaved c and c + pairs.
    causal: row i of q is at position seqused + i, as row i of k is. Otherwise all of its rows are at seqused.
    cache_batch_idx: (B,), the row of the cache that has each request. block_table: as in decode().
    Returns q, rotated if there are angles, and the lengths with the new rows, which are decode()'s seqused. Numbers in the
    CPU's memory are checked first; on a GPU two rows in one place of the cache, or one outside of it, are not noticed.
    """
    _require_tensors(k_cache=k_cache, v_cache=v_cache, k=k, v=v, seqused=seqused, **({} if q is None else {"q": q}))
    _require_no_gradients("append", k_cache, v_cache, k, v, q)
    scales = [x if getattr(x, "ndim", 0) == 3 or x is None else _array(name, x, k.transpose(1, 2), k.transpose(1, 2))
              for name, x in (("k_scale", k_scale), ("v_scale", v_scale))]
    rotated = None if q is None or rotary_cos is None else torch.empty_like(q, memory_format=torch.contiguous_format)
    try:
        lengths = _append(k_cache, v_cache, rotated, k, v, q, rotary_cos, rotary_sin, seqused, cache_batch_idx, block_table,
                          *scales, _arguments.flag("rotary_interleaved", rotary_interleaved),
                          _arguments.flag("causal", causal), _arguments.backend_of(backend))
    except RuntimeError as error:
        raise _as_said(error) from None
    return q if rotated is None else rotated, lengths


def decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, *, k_scale: Optional[Scales] = None,
           v_scale: Optional[Scales] = None, block_table: Optional[Integers] = None,
           seqused: Optional[Integers] = None, prefix: int = 0, causal: bool = False,
           window: Optional[Sequence[int]] = None, softcap: float = 0.0, alibi_slopes: Optional[Scales] = None,
           sinks: Optional[Scales] = None, tree: Optional[Integers] = None, scale: Optional[float] = None,
           stage: Optional[StageName] = None, return_lse: bool = False,
           backend: str = "cpu") -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """flash_ladder.decode of tensors. Integers, and lists of scales, are as in attention(). A call that would need
    gradients is refused."""
    _require_tensors(Q=q, K=k_cache, V=v_cache)
    _require_no_gradients("decode", q, k_cache, v_cache, alibi_slopes, sinks)
    _arguments.require_cache(*(tuple(x.shape) for x in (q, k_cache, v_cache)), block_table is not None)
    _eight_bits.require_cache({"k_cache": k_cache, "v_cache": v_cache}, {"k_scale": k_scale, "v_scale": v_scale})
    tensors = _autocast(q, k_cache, v_cache) if k_scale is None else (*_autocast(q), k_cache, v_cache)
    q, k, v = (x.transpose(1, 2) for x in tensors)
    k_scale, v_scale = (_eight_bits.heads_first(x) for x in (k_scale, v_scale))
    mask = dict(causal=causal, window=window, k_scale=k_scale, v_scale=v_scale, block_table=block_table, seqused=seqused,
                prefix=prefix, softcap=softcap, alibi_slopes=alibi_slopes, sinks=sinks, tree=tree)
    try:
        o, lse = _decode(q, k, v, *_given(q, k, mask),
                         _arguments.scale_of(scale), _word(stage), _arguments.backend_of(backend))
    except RuntimeError as error:
        raise _as_said(error) from None
    o = o.transpose(1, 2)
    return (o, lse) if return_lse else o


def verdict(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *, causal: bool = False,
            window: Optional[Sequence[int]] = None, scale: Optional[float] = None, sampled_rows: int = 0) -> dict:
    """What verify() would say of a kernel that computed o and lse, whoever did: passed, errors, and in "report" where
    and how they are wrong.

    q, o: (B, H, Nq, d); k, v: (B, Hkv, Nk, d), of one type, fp16 or bf16; lse: (B, H, Nq), fp32.
    sampled_rows: of each head only so many query rows are compared, where all would take minutes.
    """
    _require_tensors(Q=q, K=k, V=v, O=o, L=lse)
    _require_agreement(q, k, v)
    if o.shape != q.shape or o.dtype != q.dtype or lse.shape != q.shape[:3] or lse.dtype != torch.float32:
        raise ValueError(f"O is {tuple(o.shape)} of {o.dtype} and L {tuple(lse.shape)} of {lse.dtype}; "
                         f"expected {tuple(q.shape)} of {q.dtype} and {tuple(q.shape[:3])} of torch.float32")
    (B, H, Nq, d), (Hkv, Nk) = q.shape, k.shape[1:3]
    sampled_rows = _arguments.whole("sampled_rows", sampled_rows)
    if not 0 <= sampled_rows < 2**31:
        raise ValueError(f"sampled_rows is {sampled_rows}; expected a number of rows, or 0 for all")
    dtype = {torch.float16: "fp16", torch.bfloat16: "bf16"}[q.dtype]
    options = _arguments.case((B, H, Hkv, Nq, Nk, d), causal, window, dtype, scale)
    dense = [x.detach().cpu().contiguous() for x in (q, k, v, o, lse)]
    return json.loads(_core.judge(options, *(x.data_ptr() for x in dense), sampled_rows))


def judge(call: Callable, *, like: StageName = 6, quick: bool = True, device: str = "cpu") -> dict:
    """What verify() says of a stage, of an attention function of your own.

    call: call(q, k, v, causal, scale) returns O and L of tensors on `device`, as attention(..., return_lse=True) does.
    like: the stage whose cases it gets, but for masks other than the causal one; of all its cases `quick` takes one for each idea.
    """
    result = {"cases": 0, "passed": 0, "failed": 0, "max_error": 0.0, "max_L_error": 0.0, "reports": []}
    for case in json.loads(_core.cases(str(like), quick)):
        dtype = torch.bfloat16 if case["dtype"] == "bf16" else torch.float16
        dense = [torch.empty(x["axes"], dtype=dtype) for x in case["tensors"]]
        _core.fill_inputs(case["options"], *(x.data_ptr() for x in dense))
        q, k, v = (torch.empty_strided(x["axes"], x["strides"], dtype=dtype, device=device).copy_(values)
                   for x, values in zip(case["tensors"], dense))
        causal, scale = case["causal"], case["scale"]
        said = verdict(q, k, v, *call(q, k, v, causal, scale), causal=causal, scale=scale)
        result["cases"] += 1
        result["passed" if said["passed"] else "failed"] += 1
        for error in ("max_error", "max_L_error"):
            result[error] = max(result[error], float("inf") if said[error] is None else said[error])  # it was NaN
        if not said["passed"]:
            result["reports"].append(f"{case['options']}: {said['report']}")
    return result


def _autocast(*tensors):
    """Cast to the type of the autocast region, if this is in one."""
    device = "cuda" if tensors[0].is_cuda else "cpu"
    if not torch.is_autocast_enabled(device):
        return tensors
    return [x.to(torch.get_autocast_dtype(device)) for x in tensors]


def _given(q, k, arguments):
    """What a call is given besides q and k and the like, as the operators take it: causal; arrays, integers and reals; and
    the names of all of these, in this order."""
    causal, arrays, *rest = _arguments.given(arguments)
    return causal, [_array(name, x, q, k) for name, x in arrays.items()], *rest


def _array(name, x, q, k):
    """A tensor, which the operators check. Where one number may be that of all it is expanded; reals are then where q
    is."""
    if isinstance(x, Tensor) and x.dim() > 0:
        return x
    axes = _arguments.axes_for_all(name, q.shape, k.shape)
    if _arguments.KINDS[name] == "float32":
        if isinstance(x, Tensor) and x.dtype == torch.float32:
            return x.expand(axes)
        if isinstance(x, (list, tuple)):
            return torch.from_numpy(_arguments.reals(name, x, axes))
        return torch.full(axes, _arguments.number(name, x), dtype=torch.float32, device=q.device)
    numbers = _integers(name, x)
    return numbers.expand(axes) if axes and numbers.dim() == 0 else numbers


def _integers(name, x):
    """The same of integers, or None."""
    if x is None or isinstance(x, Tensor):
        return x
    if not _arguments.is_integers(x):
        raise TypeError(f"{name} is {_arrays.kind(x)}; expected torch.Tensor, or integers of Python's or NumPy's")
    if torch.compiler.is_compiling():  # a graph has tensors alone
        return torch.as_tensor(x)
    return torch.from_numpy(_arguments.integers(name, x))


def _require_no_gradients(name, *inputs):
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        raise ValueError(f"{name} has no gradients: call it under torch.no_grad()")


def _word(stage):
    return None if stage is None else str(stage)


def _require_agreement(q, k, v):
    """What the operators require of Q, K and V, for a call that does not begin with one of them."""
    for name, x in (("Q", q), ("K", k), ("V", v)):
        if x.dtype not in (torch.float16, torch.bfloat16):
            raise TypeError(f"{name} is {_eight_bits.name_of(x.dtype)}; expected float16 or bfloat16")
        if x.dtype != q.dtype or x.device != q.device:
            raise ValueError(f"Q is {q.dtype} on {q.device} and {name} {x.dtype} on {x.device}: they must agree")
        if x.dim() != 4:
            raise ValueError(f"{name} is {tuple(x.shape)}, of rank {x.dim()}; expected (B, H, N, d)")
        if 0 in x.shape:
            raise ValueError(f"{name} is {tuple(x.shape)}: every size must be at least 1")
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ValueError(f"Q is {tuple(q.shape)} and K is {tuple(k.shape)}: B and d must agree")
    if k.shape != v.shape:
        raise ValueError(f"K is {tuple(k.shape)} and V is {tuple(v.shape)}: they must agree")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"H = {q.shape[1]} is not a multiple of Hkv = {k.shape[1]}")


def _require_tensors(**arrays):
    for name, x in arrays.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is {_arrays.kind(x)}; expected torch.Tensor")
        if x.layout is not torch.strided or x.is_nested or type(x).__name__ == "MaskedTensor":
            what = "nested" if x.is_nested else "masked" if x.layout is torch.strided else "sparse"
            raise TypeError(f"{name} is a {what} tensor; expected a dense one")


def _as_said(error):
    """The ladder's own exception, or that of a signal's handler: an operator can only raise PyTorch's, and begins its
    text with the name."""
    kinds = {kind.__name__: kind for kind in (CannotRun, CheckFailed)}
    name, _, text = str(error).partition(": ")
    if name == "Interrupted":
        return _core.take_interruption() or error
    return kinds[name](text) if name in kinds else error
