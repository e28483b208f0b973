"""What a call is given besides arrays: as the C++ side takes it, or refused in one sentence."""

import operator
import sys
from numbers import Integral, Real
from typing import NamedTuple

from . import _core


class Argument(NamedTuple):
    """One that a feature brings to a call, as its file in harness/features declares it."""

    kind: str  #: of arrays "int32" or "float32"; of numbers "integer" or "real"
    axes: str  #: the sizes of an array that one number may stand for: "B Hkv"
    option: str  #: of `lab verify`
    example: str  #: of that option, if it takes the name of a pattern
    is_part: bool  #: of another argument


ARGUMENTS = {name: Argument(*declared) for name, declared in _core.arguments().items()}
#: Their kinds, but for those that given() takes in a way of their own
KINDS = {name: argument.kind for name, argument in ARGUMENTS.items()}
KINDS.update(window="window", tiles="tiles", tree="tree", causal="together", dropout_p="together", seed="together")


def is_tracer(x):
    """Whether JAX only traces x, which has no values then."""
    return "jax" in sys.modules and isinstance(x, sys.modules["jax"].core.Tracer)


def flag(name, x):
    """x as a bool, also one of NumPy's or another library's."""
    if isinstance(x, bool):
        return x
    if str(getattr(x, "dtype", "")) in ("bool", "torch.bool") and getattr(x, "ndim", 1) == 0 and not is_tracer(x):
        return bool(x)
    raise TypeError(f"{name} is {x!r}; expected True or False")


def window_of(x):
    """(left, right), each a number of keys or -1 for all."""
    if x is None:
        return -1, -1
    if not hasattr(x, "__iter__") or isinstance(x, str) or len(two := tuple(x)) != 2:
        raise ValueError(f"window is {x!r}; expected (left, right)")
    left, right = (whole("a side of window", side) for side in two)
    if not (-1 <= left < 2**30 and -1 <= right < 2**30):
        raise ValueError(f"window is {x!r}; expected numbers of keys below 2^30, or -1 for all")
    return left, right


def dropout_of(p, seed):
    """(share, seed) of dropout"""
    p = number("dropout_p", p)
    if seed is None:
        if p != 0:
            raise ValueError(f"dropout_p is {p} and seed is None: dropout needs a seed, from 0 to 2^64 - 1")
        seed = 0
    seed = whole("seed", seed)
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed is {seed}; expected 0 to 2^64 - 1")
    return p, seed


def tiles_of(x):
    """(axes, arrays by name) of lists of tiles"""
    if not hasattr(x, "axes") or not all(hasattr(x, name) for name in TILE_ARRAYS):
        raise TypeError(f"tiles is {type(x).__name__}; expected TileLists, which tile_lists() makes of a mask")
    axes = tuple(whole("an axis of tiles", axis) for axis in x.axes)
    if len(axes) != 4:
        raise ValueError(f"tiles: they are of {axes}; expected (batches, heads, Nq, Nk)")
    return axes, {name: getattr(x, name) for name in TILE_ARRAYS}


#: The arrays of TileLists
TILE_ARRAYS = [name for name, argument in ARGUMENTS.items() if argument.is_part]


def given(arguments):
    """What a call is given besides its tensors, as the C++ side takes it: causal; arrays, as they are, integers and reals;
    and the names of all of these, in this order."""
    arrays, integers, reals = {}, {}, {}
    for name, x in arguments.items():
        kind = KINDS[name]
        if kind == "integer":
            if (value := whole(name, x)) != 0:
                integers[name] = value,
        elif kind == "real":
            if (value := number(name, x)) != 0:
                reals[name] = value
        elif x is None or kind == "together":
            continue
        elif kind == "window":
            integers[name] = window_of(x)
        elif kind == "tiles":
            integers[name], lists = tiles_of(x)
            arrays.update(lists)
        elif kind == "tree":
            from ._tree import halves_of
            arrays[name] = halves_of(x)
        else:
            arrays[name] = x
    dropout_p, seed = dropout_of(arguments.get("dropout_p", 0.0), arguments.get("seed"))
    if dropout_p != 0:
        reals["dropout_p"] = dropout_p
        integers["seed"] = seed if seed < 2**63 else seed - 2**64,  # there integers have a sign
    causal = flag("causal", arguments.get("causal", False))
    if not arrays and not integers and not reals:
        return causal, {}, [], [], []
    names = [*arrays, *[name for name, several in integers.items() for _ in several], *reals]
    return causal, arrays, [x for several in integers.values() for x in several], list(reals.values()), names


def axes_for_all(name, q, k):
    """The axes of an array of which one number may be that of all, for Q and K of these axes; None if none may."""
    if not (sizes := ARGUMENTS[name].axes):
        return None
    known = {"B": q[0], "H": q[1], "Hkv": k[1]}
    return tuple(known[size] for size in sizes.split())


def is_integers(x):
    """Whether x is whole numbers in the CPU's memory: a list or another of Python's sequences, an array of NumPy's, or a
    number."""
    import numpy
    return isinstance(x, (list, tuple, range, str, numpy.ndarray, Integral, numpy.generic))


def integers(name, x):
    """Such numbers, as kernels read them."""
    import numpy
    if hasattr(x, "mask"):
        raise TypeError(f"{name} is a masked array, and no stage takes its mask")
    try:
        numbers = numpy.asarray(x)
    except ValueError:  # lists of several lengths
        numbers = numpy.empty(0)
    if numbers.dtype.kind not in "iu":
        said = numbers.dtype if isinstance(x, numpy.ndarray) else repr(x)
        raise TypeError(f"{name} is {said}; expected whole numbers")
    small = numpy.require(numbers, numpy.int32, ["C", "ALIGNED"])
    if (small != numbers).any():
        raise ValueError(f"{name} is {x!r}; expected numbers below 2^31")
    return small


def reals(name, x, axes):
    """NumPy's fp32 array of a list, an array of NumPy's, or a number for all of these axes."""
    import numpy
    if isinstance(x, (list, tuple)):
        try:
            x = numpy.array(x, numpy.float32)
        except (TypeError, ValueError):  # lists of several lengths, or of something else
            raise TypeError(f"{name} is {x!r}; expected numbers") from None
    elif not isinstance(x, numpy.ndarray) or x.ndim == 0:
        x = numpy.full(axes, number(name, x), numpy.float32)
    if x.dtype != numpy.float32:
        raise TypeError(f"{name} is {x.dtype}; expected float32")
    return numpy.require(x, requirements=["C", "ALIGNED"])


def options(causal, window, cu_seqlens_q=None, cu_seqlens_k=None, dropout_p=0.0, seed=0, seqused=None, page_size=None,
            scales=None, **others):
    """The mask and features of a problem, as `lab verify` takes them."""
    words = ["--causal"] if flag("causal", causal) else []
    if window is not None:
        words.append("--window {},{}".format(*window_of(window)))
    for name, x in others.items():
        kind, _, option, example, _ = ARGUMENTS.get(name, (None,) * 5)
        if not option:
            raise TypeError(f"a problem has no {name}")
        if x is None:
            continue
        if example and not isinstance(x, str):
            raise TypeError(f"{name} is {x!r}; expected the name of a pattern, such as '{example}'")
        if not example and (x := whole(name, x) if kind == "integer" else number(name, x)) == 0:
            continue
        words.append(f"{option} {x}")
    if cu_seqlens_q is not None or cu_seqlens_k is not None:
        rows = _lengths("cu_seqlens_q", cu_seqlens_q)
        keys = rows if cu_seqlens_k is None else _lengths("cu_seqlens_k", cu_seqlens_k)
        if len(rows) != len(keys):
            raise ValueError(f"cu_seqlens_q is of {len(rows)} documents and cu_seqlens_k of {len(keys)}")
        words.append("--documents " + ",".join(f"{n}x{m}" for n, m in zip(rows, keys)))
    dropout_p, seed = dropout_of(dropout_p, seed)
    if dropout_p:
        words.append(f"--dropout {dropout_p},{seed}")
    if seqused is not None:
        lengths = integers("seqused", seqused)
        if lengths.ndim != 1:
            raise ValueError(f"seqused is {seqused!r}; expected the keys of each request")
        words.append("--lengths " + ",".join(map(str, lengths)))
    if scales is not None:
        words.append(f"--scales {scales}")
    if page_size is not None:
        if (size := whole("page_size", page_size)) < 1:
            raise ValueError(f"page_size is {size}; expected a power of two up to 65536")
        words.append(f"--page-size {size}")
    return words


def _lengths(name, x):
    """Those of documents, of where they begin."""
    begin = integers(name, () if x is None else x)
    if begin.ndim != 1 or len(begin) < 2 or begin[0] != 0:
        raise ValueError(f"{name} is {x!r}; expected 0 and the end of each document")
    return [int(end) - int(first) for first, end in zip(begin, begin[1:])]


def case(shape, causal, window, dtype, scale=None, **features):
    """A problem as `lab verify` takes it; None for None, which takes no mask."""
    dtype, causal = dtype_of(dtype), flag("causal", causal)
    if shape is None:
        if causal or window is not None or features:
            raise ValueError("a mask is of a shape; without one there are the stage's own cases")
        return None
    words = [f"--shape {','.join(map(str, sizes(shape)))} --dtype {dtype}"]
    if scale is not None:
        words.append(f"--scale {scale_of(scale)}")
    return " ".join(words + options(causal, window, **features))


def require_cache(q, k, v, paged):
    """Whether the axes of Q and of a cache fit together."""
    cache = "(pages, page_size, Hkv, d)" if paged else "(B, N, Hkv, d)"
    for name, axes, expected in ("q", q, "(B, Nq, H, d)"), ("k_cache", k, cache), ("v_cache", v, cache):
        if len(axes) != 4:
            raise ValueError(f"{name} is {tuple(axes)}, of rank {len(axes)}; expected {expected}")
    if k != v:
        raise ValueError(f"k_cache is {tuple(k)} and v_cache is {tuple(v)}: they must agree")
    if q[3] != k[3]:
        raise ValueError(f"q is {tuple(q)} and k_cache is {tuple(k)}: d must agree")
    if q[0] != k[0] and not paged:
        raise ValueError(f"q is {tuple(q)} and k_cache is {tuple(k)}: B must agree")


def scale_of(x):
    """The scale as a number, or None for the default."""
    return None if x is None else number("scale", x)


def number(name, x):
    if type(x) is float or type(x).__name__ in ("SymFloat", "SymInt"):  # torch.compile's
        return x
    if getattr(x, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
        raise TypeError(f"{name} requires a gradient, and none flows to it; give a number, such as {name}.item()")
    is_number = isinstance(x, Real) or (hasattr(x, "dtype") and getattr(x, "ndim", 1) == 0)
    if isinstance(x, bool) or not is_number or is_tracer(x):
        raise TypeError(f"{name} is {x!r}; expected a number")
    try:
        return float(x)
    except OverflowError:
        raise ValueError(f"{name} must be a finite number") from None
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {x!r}; expected a number") from None


def whole(name, x):
    if type(x) is int:  # also one that torch.compile knows nothing of
        return x
    try:
        return operator.index(x)
    except TypeError:
        raise TypeError(f"{name} is {x!r}; expected a whole number") from None


def backend_of(x):
    if not isinstance(x, str):
        raise TypeError(f"backend is {x!r}; expected 'cpu', 'checked' or 'gpu'")
    return x


def words(x):
    """Stages by number, name or folder: one, or several."""
    if isinstance(x, str) or not hasattr(x, "__iter__"):
        return [str(x)]
    if not (several := [str(word) for word in x]):
        raise ValueError("words is empty; expected stages, or 'all'")
    return several


def sizes(x):
    """The six sizes of a problem."""
    if not hasattr(x, "__iter__") or isinstance(x, str) or len(six := tuple(x)) != 6:
        raise ValueError(f"shape is {x!r}; expected (B, H, Hkv, Nq, Nk, d)")
    return six


def dtype_of(x):
    if not isinstance(x, str) or x not in ("fp16", "bf16"):
        raise ValueError(f"dtype is {x!r}; expected 'fp16' or 'bf16'")
    return x
