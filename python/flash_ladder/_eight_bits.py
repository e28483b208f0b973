"""Arrays of e4m3, which NumPy has from ml_dtypes, and the scales that their numbers are multiplied by."""

import functools

from . import _arguments, _arrays

E4M3 = "float8_e4m3fn"
FRACTION = (1 << 23) - 1  # of fp32's bits


def name_of(dtype):
    """"float16" of NumPy's type and of PyTorch's"""
    return str(dtype).removeprefix("torch.")


def quantize(x, axis, power_of_two, scale, per_token):
    """See flash_ladder.quantize."""
    is_torch = _arrays.is_torch(x)
    library = None if is_torch else _arrays.library_of("x", x)
    axis, power_of_two = _arguments.whole("axis", axis), _arguments.flag("power_of_two", power_of_two)
    if name_of(x.dtype) not in ("float16", "bfloat16", "float32"):
        raise TypeError(f"x is {name_of(x.dtype)}; expected float16, bfloat16 or float32")
    if x.ndim != 4:
        raise ValueError(f"x is {tuple(x.shape)}, of rank {x.ndim}; expected (B, heads, N, d) or (B, N, heads, d)")
    if 0 in x.shape:
        raise ValueError(f"x is {tuple(x.shape)}: each axis must have an element")
    if axis not in (1, 2):
        raise ValueError(f"axis is {axis}; expected 1 or 2, that of heads")
    per_token = _arguments.flag("per_token", per_token)
    of_head = (3,) if per_token else (3 - axis, 3)
    axes = tuple(x.shape[:3]) if per_token else (x.shape[0], x.shape[axis])
    if is_torch:
        import torch as types
        if x.requires_grad and types.is_grad_enabled():
            raise ValueError("quantize has no gradients: call it under torch.no_grad()")
        wide = x.float()
    else:
        import ml_dtypes
        types = library.module
        wide = x.astype("float32")
    if scale is not None:
        return _rounded_by(scale, axes, wide, axis, types, x), scale
    largest = (wide.abs().amax(of_head, True) if is_torch else abs(wide).max(of_head, keepdims=True)).clip(2.0**-100)
    most = types.full_like(largest, 448)  # an array, since PyTorch divides by numbers in two steps
    scale, inverse = largest / most, most / largest
    if power_of_two:  # a fraction that is not 0 carries into the exponent
        scale = ((scale.view(types.int32) + FRACTION) & ~FRACTION).view(types.float32)
        inverse = 1 / scale
    numbers = wide * inverse
    numbers = numbers.to(types.float8_e4m3fn) if is_torch else numbers.astype(ml_dtypes.float8_e4m3fn)
    return numbers, scale.reshape(axes)


def _rounded_by(scale, axes, wide, axis, types, x):
    """In one pass over x, whose largest element is not looked for."""
    said = f"{tuple(scale.shape)} of {name_of(scale.dtype)}" if hasattr(scale, "dtype") else repr(scale)
    if said != f"{axes} of float32":
        raise ValueError(f"scale is {said}; expected {axes} numbers in float32, as quantize() returns them")
    by_row = scale[..., None] if len(axes) == 3 else scale.reshape(*axes, 1, 1).swapaxes(1, axis)
    numbers = (wide / by_row).clip(-448, 448)
    if _arrays.is_torch(x):
        return numbers.to(types.float8_e4m3fn)
    import ml_dtypes
    return numbers.astype(ml_dtypes.float8_e4m3fn)


def heads_first(scale):
    """Scales of tokens, (B, N, heads) or in pages, as C++ takes them; others as they are."""
    return scale.swapaxes(1, 2) if getattr(scale, "ndim", 0) == 3 else scale


def require_cache(caches, scales):
    """That a cache in e4m3, and no other one, has scales. Both by their names."""
    types = {name: name_of(x.dtype) for name, x in caches.items()}
    for (name, dtype), (scale_name, scale) in zip(types.items(), scales.items()):
        if dtype == E4M3 and scale is None:
            raise ValueError(f"{name} is {E4M3} and {scale_name} is None; expected a number, (B, Hkv) of them, or one of each token")
        if dtype != E4M3 and scale is not None:
            raise TypeError(f"{scale_name} is given and {name} is {dtype}; expected {E4M3}")
    (first, dtype), (second, other) = types.items()
    if dtype != other:
        raise TypeError(f"{first} is {dtype} and {second} is {other}: they must agree")


@functools.cache
def _known():
    """The ladder's own stages, which are listed once: a list takes longer than a call."""
    from . import stages
    return {word: stage for stage in stages() for word in (str(stage.number), stage.name, stage.folder)}


def rounds(stage):
    """Whether a stage rounds what it gets to 8 bits, also what has no more: it takes e4m3 as bf16."""
    from . import stages
    if stage is None:
        return False
    return (_known().get(str(stage)) or stages(str(stage))[0]).products == "8 bits"


def of_output(out_dtype, scales):
    """The type of O, by its name; None for the type of Q."""
    if all(scale is None for scale in scales.values()):
        if out_dtype is not None:
            raise ValueError(f"out_dtype is given and Q has no scale: O is of the type of Q, unless this is {E4M3}")
        return None
    name = "bfloat16" if out_dtype is None else name_of(getattr(out_dtype, "__name__", out_dtype))
    if name not in ("float16", "bfloat16"):
        raise TypeError(f"out_dtype is {name}; expected float16 or bfloat16")
    return name


def require_inputs(tensors, scales):
    """That Q, K and V are e4m3, and that all have scales. Both by their names."""
    for (name, x), (scale_name, scale) in zip(tensors.items(), scales.items()):
        dtype = name_of(x.dtype) if hasattr(x, "dtype") else _arrays.kind(x)
        if dtype != E4M3:
            raise TypeError(f"{name} is {dtype} and others are {E4M3} or have scales: they must agree")
        if x.ndim != 4:
            raise ValueError(f"{name} is {tuple(x.shape)}, of rank {x.ndim}; expected (B, H, N, d)")
        if scale is None:
            raise ValueError(f"{name} is {E4M3} and {scale_name} is None; expected a number, or {tuple(x.shape[:2])} of them")
        if getattr(x, "requires_grad", False):
            raise ValueError(f"{name} requires a gradient, and no stage computes gradients in 8 bits")


def in_bf16(tensors, scales, out):
    """Q, K and V of attention(), which are given in e4m3 with scales, as the same numbers in bf16."""
    if out != "bfloat16":
        raise ValueError(f"out_dtype is {out}, and a stage that rounds bf16 has O in bfloat16")
    return [_exact(*tensor, *scale) for tensor, scale in zip(tensors.items(), scales.items())]


def _on_host(scale):
    """An array of any library as NumPy's. This waits for a GPU."""
    if _arrays.is_torch(scale):
        return scale.detach().cpu().numpy()
    if hasattr(scale, "get"):  # CuPy's
        return scale.get()
    return scale.__array__() if hasattr(scale, "__array__") else scale


def _exact(name, x, scale_name, scale):
    axes = tuple(x.shape[:2])
    factor = _arguments.reals(scale_name, _on_host(scale), axes)
    if factor.shape != axes:
        raise ValueError(f"{scale_name} is {factor.shape}; expected {axes}")
    is_power = (factor.view("int32") & FRACTION) == 0
    if not (is_power & (factor > 2.0**-110) & (factor < 2.0**110)).all():
        raise ValueError(f"{scale_name} must be powers of two: by these alone bf16 holds {name} exactly")
    factor = factor[..., None, None]
    if _arrays.is_torch(x):
        import torch
        return x.to(torch.bfloat16) * torch.from_numpy(factor).to(x.device, torch.bfloat16)
    from ml_dtypes import bfloat16
    return x.astype(bfloat16) * _arrays.uploaded(factor.astype(bfloat16), x)
