"""What each array library is asked for: memory for outputs, and the stream in which its work is queued."""

import sys

from . import _arguments, _core

DTYPES = {"float16": False, "bfloat16": True}  # whether it is bf16


def _type(name):
    """NumPy's type of this name, which may be one that NumPy has from ml_dtypes; None for none."""
    if name != "bfloat16":
        return name
    import ml_dtypes
    return ml_dtypes.bfloat16


class NumPy:
    stream = 0

    def __init__(self):
        import numpy
        self.module, self.array = numpy, numpy.ndarray

    def empty_like(self, x, dtype=None):
        """Laid out as x is, but in the order of its axes where x repeats elements. `dtype`: the name of another type."""
        return self.module.empty_like(x, _type(dtype), order="C" if 0 in x.strides else "K", subok=False)

    def widened(self, x, d):
        """With columns of zeros up to d."""
        wide = self.module.zeros((*x.shape[:3], d), x.dtype)
        wide[..., :x.shape[3]] = x
        return wide

    def narrowed(self, x, like):
        """The first columns of x, as many as `like` has, and laid out as that is."""
        narrow = self.empty_like(like, x.dtype.name)
        narrow[...] = x[..., :like.shape[3]]
        return narrow

    def contiguous(self, x):
        return self.module.require(x, requirements=["C", "ALIGNED"])

    def uploaded(self, numbers, like):
        """NumPy's array `numbers`, where `like` is."""
        return self.module.asarray(numbers)

    def empty(self, axes, dtype, x):
        return self.module.empty(axes, dtype)

    def shared(self, x):
        """The array as DLPack or the buffer protocol can export it; NumPy itself knows no bf16."""
        return x.view("uint16") if x.dtype.name == "bfloat16" else x

    def finish(self):
        pass


class CuPy(NumPy):
    def __init__(self):
        import cupy
        self.module, self.array = cupy, cupy.ndarray

    @property
    def stream(self):
        return self.module.cuda.get_current_stream().ptr

    def empty_like(self, x, dtype=None):
        return self.module.empty_like(x, _type(dtype), order="C" if 0 in x.strides else "K")

    def contiguous(self, x):
        return self.module.ascontiguousarray(x)


class Jax(NumPy):
    """Its arrays do not change once somebody has seen them; those that a stage writes nobody has seen. It does not show
    its streams, so that inputs are waited for, and outputs, too."""

    def __init__(self):
        import jax
        self.module, self.array = jax.numpy, jax.Array

    def empty_like(self, x, dtype=None):
        return self.empty(x.shape, dtype or x.dtype, x)

    def widened(self, x, d):
        return self.module.pad(x, [(0, 0)] * 3 + [(0, d - x.shape[3])])

    def narrowed(self, x, like):
        return x[..., :like.shape[3]]

    def contiguous(self, x):
        return x

    def uploaded(self, numbers, like):
        return self.module.asarray(numbers, device=like.device)

    def empty(self, axes, dtype, x):
        return self.module.empty(axes, dtype, device=x.device).block_until_ready()

    def shared(self, x):
        return x.block_until_ready()

    def finish(self):
        _core.synchronize()


_libraries = {"numpy": NumPy, "ml_dtypes": NumPy, "cupy": CuPy, "jax": Jax, "jaxlib": Jax}
_loaded = {}


def is_torch(x):
    return "torch" in sys.modules and isinstance(x, sys.modules["torch"].Tensor)


def library_of(name, x):
    """The library that an array is of. TypeError if it is none that is known, or if it is more than an array."""
    module = type(x).__module__.partition(".")[0]
    if module in _libraries and module not in _loaded:
        _loaded[module] = _libraries[module]()
    if module not in _loaded or not isinstance(x, _loaded[module].array):
        raise TypeError(f"{name} is {kind(x)}; expected an array of NumPy, PyTorch, CuPy or JAX")
    if hasattr(x, "mask"):
        raise TypeError(f"{name} is a masked array, and no stage takes its mask")
    if _arguments.is_tracer(x):
        raise TypeError(f"{name} is a tracer of JAX's, without values: call this outside of jit, grad and vmap")
    return _loaded[module]


def readable_lse(library, lse, q):
    """L as kernels read it: a copy if it is laid out in another way."""
    if is_torch(lse) or library_of("L", lse) is not library:
        raise TypeError(f"Q is {kind(q)} and L is {kind(lse)}: they must agree")
    if str(lse.dtype) != "float32":
        raise TypeError(f"L is {lse.dtype}; expected float32")
    if tuple(lse.shape) != tuple(q.shape[:3]):
        raise ValueError(f"L is {tuple(lse.shape)}; expected {tuple(q.shape[:3])}, the first axes of Q")
    if (here := getattr(lse, "device", None)) != (there := getattr(q, "device", None)):  # old NumPy's have none
        raise ValueError(f"L is on {here} and Q on {there}: they must agree")
    return library.contiguous(lse)


class Placed:
    """Some arrays of one library, type and device, where they lie; those whose names are in `in_e4m3` are bytes, and O
    is then of type `out` if Q is one of them."""

    def __init__(self, arrays, in_e4m3="", out=None):
        first, x = next(iter(arrays.items()))
        self.first = x
        self.library = library_of(first, x)
        self.places = {}
        for name, array in arrays.items():
            if is_torch(array) or library_of(name, array) is not self.library:
                raise TypeError(f"{first} is {kind(x)} and {name} is {kind(array)}: they must agree")
            is_e4m3 = name in in_e4m3
            if not is_e4m3 and array.dtype != x.dtype:
                raise TypeError(f"{first} is {x.dtype} and {name} is {array.dtype}: they must agree")
            if not is_e4m3 and str(array.dtype) not in DTYPES:
                raise TypeError(f"{name} is {array.dtype}; expected float16 or bfloat16")
            if array.ndim != 4:
                raise ValueError(f"{name} is {tuple(array.shape)}, of rank {array.ndim}; expected (B, H, N, d)")
            self.places[name] = self.place(name, array)
        self.out = out
        self.bf16 = DTYPES[out or str(x.dtype)]
        devices = {place[4:] for place in self.places.values()}
        if len(devices) > 1:
            raise ValueError("the arrays are on different devices: they must agree")
        self.on_gpu = devices.pop()[0]

    def mask(self, arguments):
        """What the call is given besides tensors, as the C++ side takes it. Numbers in the CPU's memory are checked; those
        on a GPU it would take a wait to read."""
        causal, arrays, *rest = _arguments.given(arguments)
        numbers = {name: self._numbers(name, x) for name, x in arrays.items()}
        while True:
            self.numbers = {name: x for name, (x, _) in numbers.items()}  # which live as long as this
            places = [place for _, place in numbers.values()]
            mask = _core.mask_of(*self.axes, causal, places, *rest)
            if not self.on_gpu or not any(on_host for *_, on_host in places):
                return mask
            numbers = {name: self._numbers(name, self.library.uploaded(x, self.first))
                       for name, x in self.numbers.items()}

    @property
    def axes(self):
        """Those of Q and K."""
        return [self.places[name][1] for name in "QK"]

    def _numbers(self, name, x):
        """(x, where it is) of integers or reals: a list, an array of NumPy's, or one of Q's library and device; or a
        number, of which those of all are made."""
        import numpy
        if is_torch(x):
            raise TypeError(f"Q is {kind(self.first)} and {name} is {kind(x)}: they must agree")
        is_real = _arguments.KINDS[name] == "float32"
        axes = _arguments.axes_for_all(name, *self.axes)
        is_number = getattr(x, "ndim", 0) == 0
        if _arguments.is_integers(x) or (is_real and is_number):
            x = _arguments.reals(name, x, axes) if is_real else _arguments.integers(name, x)
            if axes and x.ndim == 0:
                x = numpy.full(axes, x)
            return x, (*_core.place_of(x)[:2], True)
        if library_of(name, x) is not self.library:
            raise TypeError(f"Q is {kind(self.first)} and {name} is {kind(x)}: they must agree")
        dtype = str(x.dtype)
        if is_real and dtype != "float32":
            raise TypeError(f"{name} is {dtype}; expected float32")
        if not is_real and dtype != "int32":
            if dtype not in ("int8", "int16", "int64", "uint8"):
                raise TypeError(f"{name} is {dtype}; expected int32")
            if not self.place(name, x)[4]:
                return self._numbers(name, numpy.asarray(x))  # which checks that int32 holds them
            x = x.astype("int32")
        if axes and is_number:
            x = self.library.module.broadcast_to(x, axes)
        x = self.library.contiguous(x)
        place = self.place(name, x)
        if place[4:] != self.places["Q"][4:]:
            raise ValueError(f"{name} is on another device than Q: they must agree")
        return x, (*place[:2], not place[4])

    def place(self, name, array):
        strides = getattr(array, "strides", ())  # in bytes; JAX's arrays have none
        if any(stride % array.dtype.itemsize != 0 for stride in strides):
            raise ValueError(f"{name}: its strides in bytes, {strides}, must be multiples of 16")
        return _core.place_of(self.library.shared(array))


def uploaded(numbers, like):
    """NumPy's array `numbers`, as one of the library and on the device of `like`."""
    if is_torch(like):
        return sys.modules["torch"].from_numpy(numbers).to(like.device)
    return library_of("mask", like).uploaded(numbers, like)


def kind(x):
    return f"{type(x).__module__}.{type(x).__name__}"
