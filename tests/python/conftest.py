"""What the package's tests share: attention in double precision, and a cache of kernels."""

import importlib.util
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest

# The package as BUILD has it, if $LADDER_BUILD names one; otherwise the installed one.
BUILD = os.environ.get("LADDER_BUILD")
if BUILD:
    sys.path.insert(0, os.path.join(BUILD, "python"))
os.environ.setdefault("FLASH_LADDER_CACHE", os.path.join(BUILD or tempfile.gettempdir(), "python-kernels"))

np = pytest.importorskip("numpy")


def example_of(name):
    """The module examples/NAME.py."""
    path = Path(__file__).resolve().parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stage_that(*takes, lacks=(), **declared):
    """The folder's name of the first stage that takes these features and none of `lacks`, as its kernel.cu declares them
    ("window", "pages"), and of which what flash_ladder.stages() says has these values; forward unless it says otherwise."""
    import flash_ladder
    for stage in flash_ladder.stages():
        declaration = Path(stage.source).read_text().rpartition("LADDER_STAGE(")[2]
        features = set(re.findall(r"Feature::(\w+)", declaration))
        if features.issuperset(takes) and features.isdisjoint(lacks) and all(
                getattr(stage, key) == value for key, value in ({"computes": "forward"} | declared).items()):
            return stage.folder
    raise LookupError(f"no stage takes {takes} without {lacks}, {declared}")


def gradients_of(*takes, **needs):
    """stage_that() computes gradients."""
    return stage_that(*takes, computes="backward", **needs)


def visible(rows, keys, causal, window):
    """Which keys a row sees, (rows, keys)."""
    offset = np.arange(keys) - (np.arange(rows)[:, None] + keys - rows)
    left, right = window or (-1, -1)
    return ((offset <= 0) | (not causal)) & ((offset >= -left) | (left < 0)) & ((offset <= right) | (right < 0))


def reference(q, k, v, causal=False, scale=None, window=None, seen=None):
    """O and L of NumPy arrays (B, H, N, d), in double precision; K and V may have fewer heads. `seen`, if given, is the
    mask."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (x.repeat(q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    S = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    S = np.where(visible(*S.shape[-2:], causal, window) if seen is None else seen, S, -np.inf)
    m = S.max(-1, keepdims=True)
    m[np.isinf(m)] = 0
    P = np.exp(S - m)
    l = P.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        L = (m + np.log(l))[..., 0]
    return P / np.where(l == 0, 1, l) @ v, L


def reference_gradients(q, k, v, do, causal=False, window=None, seen=None, weights=1):
    """dQ, dK and dV in double precision, by the formulas of standard attention; `weights` multiply P, as dropout does."""
    if seen is None:
        seen = visible(q.shape[2], k.shape[2], causal, window)
    _, L = reference(q, k, v, seen=seen)
    q, k, v, do = (x.astype(np.float64) for x in (q, k, v, do))
    heads, group, scale = k.shape[1], q.shape[1] // k.shape[1], q.shape[-1] ** -0.5
    k, v = (x.repeat(group, axis=1) for x in (k, v))
    P = np.exp(np.where(seen, q @ k.swapaxes(-1, -2) * scale - L[..., None], -np.inf))
    dP, P_V = weights * (do @ v.swapaxes(-1, -2)), weights * P
    dS = P * (dP - (do * (P_V @ v)).sum(-1, keepdims=True)) * scale
    of_group = lambda x: x.reshape(x.shape[0], heads, group, *x.shape[2:]).sum(2)
    return dS @ k, of_group(dS.swapaxes(-1, -2) @ q), of_group(P_V.swapaxes(-1, -2) @ do)


def relative(got, expected):
    """The error of an array as a whole, relative to what was expected."""
    return np.linalg.norm(np.asarray(got, np.float64) - expected) / np.linalg.norm(expected)


@pytest.fixture
def problem():
    """Q, K and V: two query heads to a key head, ragged tiles, more keys than queries."""
    random = np.random.default_rng(1)
    return [random.standard_normal((2, heads, rows, 64)).astype(np.float16)
            for heads, rows in ((4, 70), (2, 90), (2, 90))]
