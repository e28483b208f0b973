"""What a call is given besides arrays: as the C++ side takes it, or refused in one sentence."""

import operator
import sys
from numbers import Real


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


def mask(causal, window):
    """Which keys a row sees, as the C++ side takes it."""
    return flag("causal", causal), *window_of(window)


def scale_of(x):
    """The scale as a number, or None for the default."""
    if x is None or type(x) in (float, int) or type(x).__name__ in ("SymFloat", "SymInt"):  # torch.compile's
        return x
    if getattr(x, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
        raise TypeError("scale requires a gradient, and none flows to it; give a number, such as scale.item()")
    is_number = isinstance(x, Real) or (hasattr(x, "dtype") and getattr(x, "ndim", 1) == 0)
    if isinstance(x, bool) or not is_number or is_tracer(x):
        raise TypeError(f"scale is {x!r}; expected a number")
    try:
        return float(x)
    except (TypeError, ValueError):
        raise TypeError(f"scale is {x!r}; expected a number") from None


def whole(name, x):
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
    return [str(word) for word in x]


def sizes(x):
    """The six sizes of a problem."""
    if not hasattr(x, "__iter__") or isinstance(x, str) or len(six := tuple(x)) != 6:
        raise ValueError(f"shape is {x!r}; expected (B, H, Hkv, Nq, Nk, d)")
    return six


def shape(x):
    """The six sizes as lab's command line has them; nothing for None."""
    return "" if x is None else ",".join(map(str, sizes(x)))


def is_bf16(x):
    if not isinstance(x, str) or x not in ("fp16", "bf16"):
        raise ValueError(f"dtype is {x!r}; expected 'fp16' or 'bf16'")
    return x == "bf16"
