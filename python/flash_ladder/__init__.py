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

from . import _arguments, _arrays, _core, _eight_bits, _home
from ._core import CannotRun, CheckFailed
from ._tiles import TileLists, tile_lists
from ._tree import tree_words

__version__ = _core.version
__all__ = ["attention", "attention_backward", "decode", "quantize", "tile_lists", "tree_words", "dropout_mask", "default_stage", "stages",
           "prepare", "verify", "count", "time", "Stage", "TileLists", "CannotRun", "CheckFailed", "__version__"]

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
    batch_invariant: bool  #: whether a request's results are the same bits alone and in any batch
    products: str  #: what it multiplies: "16 bits"; "8 bits", in which it rounds Q, K and V;
    #: "8 bits of e4m3", of Q, K and V that come so; "8-bit cache" of K and V
    source: str  #: path of its kernel.cu


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, window: Optional[Sequence[int]] = None,
              cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, columns: Any = None,
              tiles: Optional[TileLists] = None, softcap: float = 0.0, alibi_slopes: Any = None, sinks: Any = None,
              dropout_p: float = 0.0, seed: Optional[int] = None, q_scale: Any = None, k_scale: Any = None,
              v_scale: Any = None, out_dtype: Any = None, promotion: bool = False, scale: Optional[float] = None,
              stage: Optional[StageName] = None, return_lse: bool = False, backend: str = "cpu") -> Any:
    """O = softmax(scale Q K^T + mask) V.

    q: (B, H, Nq, d); k, v: (B, Hkv, Nk, d): arrays of one library, fp16 or bf16, with rows of adjacent elements and
        strides that are multiples of 8; any other order of the first three axes is a matter of strides (a transposed
        view). Nothing is copied where d is 64, 128 or 256. Any other d up to 256 is computed at the next of these
        that the stage has, on copies with columns of zeros.
    causal: row i sees the keys j <= i + Nk - Nq.
    window: (left, right): row i sees the keys from i + Nk - Nq - left to i + Nk - Nq + right; -1 is no bound. With
        causal, those that both leave.
    cu_seqlens_q, cu_seqlens_k: (documents + 1,): where documents that are packed in one sequence (B = 1) begin: 0,
        ..., Nq, and 0, ..., Nk; by default the second is the first. A row sees keys of its own document, in which
        causal and window are aligned at the last row and the last key.
    columns: (B, heads, Nk, bounds): for each key, query rows that do not see it, whatever else the mask leaves; `heads`
        divides H. Bounds are 0 to Nq, and of a key there are 1, 2 or 4: LTS (rows from LTS on do not see it); LTS and
        LTE under a causal mask (rows LTS to LTE - 1), else LTS and UTE (nor those before UTE); LTS, LTE, UTS, UTE.
    tiles: the whole mask, whatever it is: tile_lists(mask).
    softcap: c above 0: a score s = scale Q K^T becomes c tanh(s / c), before the mask. 0 is none.
    alibi_slopes: (H,) or (B, H), fp32: from the score of row i and key j is taken its head's slope times
        |i + Nk - Nq - j|, in a document counted from the document's beginning.
    sinks: (H,), fp32: a score more in each row's softmax, of a key that every row sees and that has no value. A row that
        sees no other key has O = 0 and L = sink.
    dropout_p, seed: the share of the elements of P = softmax(...) that are dropped, in 256ths: 0.1 is rounded to
        26 / 256. The others are multiplied by 256 / 230, so that the mean remains. L is of all elements. What is
        dropped follows from the seed, 0 to 2^64 - 1, and the element's place: dropout_mask().
    q_scale, k_scale, v_scale: what q, k and v are multiplied by if they are float8_e4m3fn: numbers above 0, each one for
        all or (B, heads) of them, fp32. Strides are then multiples of 16, and nothing is copied or rounded again. Those
        in the CPU's memory are checked; on a GPU a wrong one makes a wrong O: a q_scale or k_scale of 0 the mean of V, a
        negative v_scale one of the other sign, NaN a NaN. Stages 70 to 75, 77 and 79 instead round what they get by
        scales of their own, and take e4m3 as the same numbers in bf16, of which scales must be powers of two.
    out_dtype: of O, if q is float8_e4m3fn: "float16", or "bfloat16", the default.
    promotion: whether sums of P V in 8 bits, which keep 13 bits, are added in fp32 for at most 128 keys each.
    scale: 1 / sqrt(d) by default.
    stage: a number (5), a name ("split_q") or a folder with a kernel.cu of your own ("my/"). By default a fast one
        for the problem: default_stage(). A stage refuses by name what it does not take.
    return_lse: also return L (B, H, Nq), fp32: log(sum(exp(scale Q K^T + mask))).
    backend: of arrays in the CPU's memory "cpu" or "checked", which also finds races.

    Integers are of Python or NumPy, or arrays of q's library, int32 or another type of which int32 holds the numbers;
    int32 on q's device is not copied. Those in the CPU's memory are checked. Those on a GPU are not, since reading them
    would wait for it: a kernel follows them wherever they lead.

    Returns O, of q's library, type, axes and strides; or (O, L). PyTorch's tensors take flash_ladder.torch.attention,
    and gradients flow through it.
    """
    mask = dict(causal=causal, window=window, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, columns=columns,
                tiles=tiles, softcap=softcap, alibi_slopes=alibi_slopes, sinks=sinks, dropout_p=dropout_p, seed=seed)
    scales = dict(q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)
    if _arrays.is_torch(q):
        from . import torch
        return torch.attention(q, k, v, **mask, **scales, out_dtype=out_dtype, promotion=promotion, scale=scale,
                               stage=stage, return_lse=return_lse, backend=backend)
    mask["promotion"] = int(_arguments.flag("promotion", promotion))
    if (out := _eight_bits.of_output(out_dtype, scales)) is not None:
        _eight_bits.require_inputs({"Q": q, "K": k, "V": v}, scales)
        if _eight_bits.rounds(stage):
            (q, k, v), out = _eight_bits.in_bf16({"Q": q, "K": k, "V": v}, scales, out), None
        else:
            mask.update(scales)
    scale = _arguments.scale_of(scale)
    tensors = {name: x if out is None else x.view("uint8") for name, x in {"Q": q, "K": k, "V": v}.items()}  # for DLPack
    call = _Call(True, stage, backend, tensors, out=out, **mask)
    if call.width != q.shape[3]:
        mask["promotion"] = bool(mask["promotion"])
        O, L = _by_zero_columns(attention, call.width, (q, k, v), (q, q), scale, **mask, out_dtype=out, stage=stage,
                                return_lse=True, backend=backend)
    else:
        O, L = call.forward(tensors["Q"], scale)
    return (O, L) if return_lse else O


def attention_backward(q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any, *, causal: bool = False,
                       window: Optional[Sequence[int]] = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
                       columns: Any = None, tiles: Optional[TileLists] = None, softcap: float = 0.0,
                       alibi_slopes: Any = None, sinks: Any = None, dropout_p: float = 0.0,
                       seed: Optional[int] = None, scale: Optional[float] = None, stage: Optional[StageName] = None,
                       backend: str = "cpu") -> Any:
    """dQ, dK and dV: the gradients of a loss by Q, K and V, from its gradient by O; and with sinks dsinks.

    q, o, do: (B, H, Nq, d); k, v: (B, Hkv, Nk, d); lse: (B, H, Nq), fp32. o and lse are what
    attention(..., return_lse=True) returned with the same mask and scale. Otherwise as attention(). What no stage has
    gradients for is refused.

    Returns (dQ, dK, dV), of the axes and strides of q, k and v, or (dQ, dK, dV, dsinks), with dsinks (H,), fp32.
    """
    mask = dict(causal=causal, window=window, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, columns=columns,
                tiles=tiles, softcap=softcap, alibi_slopes=alibi_slopes, sinks=sinks, dropout_p=dropout_p, seed=seed)
    if _arrays.is_torch(q):
        from . import torch
        return torch.attention_backward(q, k, v, o, lse, do, **mask, scale=scale, stage=stage, backend=backend)
    scale = _arguments.scale_of(scale)
    call = _Call(False, stage, backend, {"Q": q, "K": k, "V": v}, {"O": o, "dO": do}, **mask)
    lse = _arrays.readable_lse(call.at.library, lse, q)
    for name, x in ("O", o), ("dO", do):
        if tuple(x.shape) != tuple(q.shape):
            raise ValueError(f"{name} is {tuple(x.shape)} and Q is {tuple(q.shape)}: they must agree")
    if call.width != q.shape[3]:
        return _by_zero_columns(attention_backward, call.width, (q, k, v, o, lse, do), (q, k, v, q), scale, **mask,
                                stage=stage, backend=backend)
    return call.backward((q, k, v), lse, scale)


def decode(q: Any, k_cache: Any, v_cache: Any, *, k_scale: Any = None, v_scale: Any = None, block_table: Any = None,
           seqused: Any = None, prefix: int = 0, causal: bool = False, window: Optional[Sequence[int]] = None,
           softcap: float = 0.0, alibi_slopes: Any = None, sinks: Any = None, tree: Any = None,
           scale: Optional[float] = None, stage: Optional[StageName] = None, return_lse: bool = False,
           backend: str = "cpu") -> Any:
    """Attention of a few new rows of each request to its cache of keys and values.

    q: (B, Nq, H, d): 1 row of each request, or those of a draft.
    k_cache, v_cache: (B, N, Hkv, d), of q's type, or float8_e4m3fn with scales, with the new rows' own keys and values;
        or with block_table pools of pages, (pages, page_size, Hkv, d), where page_size is a power of two. They are read
        where they lie, whatever their strides, so d must be one of the stage's own.
    k_scale, v_scale: what the numbers of caches in float8_e4m3fn are multiplied by, as quantize(cache, axis=2) gives them:
        (B, Hkv), fp32, or one number for all. Requests that share a page need the same ones. Or one for each token, as
        quantize(cache, axis=2, per_token=True) gives them: of the caches' axes without d, (B, N, Hkv) or (pages, page_size,
        Hkv). Those of a head are best next to each other in memory. Where no request has a key they may be anything.
    block_table: (B, n): in which pages a request's keys are, in their order. Requests may share pages. Entries past
        a request's last key mean nothing. In a window nothing is read of the keys before the first that row 0 sees, so
        their pages may be given to others; but each entry must name a page.
    seqused: (B,), or one number for all: the keys that each request has, 0 to N or n page_size; by default all. What lies
        past them may be anything, NaN as well.
    prefix: how many keys all requests begin with, in the same pages, whole ones. Every row must see them. They are
        read for all requests together. Not with a window.
    causal: of a draft of Nq rows, row i sees the keys j <= i + keys - Nq: the last row sees all.
    window, softcap, alibi_slopes, sinks: as in attention(), where a row's position is that of the causal mask,
        i + keys - Nq. A cache in float8_e4m3fn takes none of them, and no prefix.
    tree: (Nq,) or (B, Nq), of a draft of at most 64 rows, with causal: words of 64 bits, of which bit k of word i says
        whether row i sees the draft's own key k, as tree_words(parents) gives them. Each row sees the whole cache before
        the draft. A row's position is keys - Nq and one more for each other bit of its word.
    Otherwise as attention(), and so are integers: those on a GPU are not checked.

    Returns O (B, Nq, H, d), laid out as q is; or (O, L), with L (B, H, Nq), fp32. There are no gradients.
    """
    mask = dict(causal=causal, window=window, block_table=block_table, seqused=seqused, prefix=prefix, softcap=softcap,
                alibi_slopes=alibi_slopes, sinks=sinks, tree=tree)
    if _arrays.is_torch(q):
        from . import torch
        return torch.decode(q, k_cache, v_cache, **mask, k_scale=k_scale, v_scale=v_scale, scale=scale, stage=stage,
                            return_lse=return_lse, backend=backend)
    caches = {"q": q, "k_cache": k_cache, "v_cache": v_cache}
    for name, x in caches.items():
        if _arrays.is_torch(x):
            raise TypeError(f"q is {_arrays.kind(q)} and {name} is {_arrays.kind(x)}: they must agree")
        _arrays.library_of(name, x)
    _arguments.require_cache(*(tuple(x.shape) for x in caches.values()), block_table is not None)
    scales = dict(k_scale=k_scale, v_scale=v_scale)
    _eight_bits.require_cache({"k_cache": k_cache, "v_cache": v_cache}, scales)
    scales = {name: _eight_bits.heads_first(x) for name, x in scales.items()}
    if k_scale is not None:  # DLPack knows uint8
        caches.update(k_cache=k_cache.view("uint8"), v_cache=v_cache.view("uint8"))
    heads_first = [x.transpose(0, 2, 1, 3) for x in caches.values()]
    call = _Call(True, stage, backend, dict(zip("QKV", heads_first)), **mask, **scales)
    if call.width != q.shape[3]:
        raise ValueError(f"{call.kernel.folder()} has no head dimension {q.shape[3]}, and decode copies no cache")
    O, L = call.forward(heads_first[0], _arguments.scale_of(scale))
    O = O.transpose(0, 2, 1, 3)
    return (O, L) if return_lse else O


def quantize(x: Any, *, axis: int = 1, power_of_two: bool = False, scale: Any = None,
             per_token: bool = False) -> "tuple[Any, Any]":
    """x in float8_e4m3fn, laid out as x is, and the scale of each head (B, heads), fp32: x is about numbers * scale.

    x: fp16, bf16 or fp32: (B, heads, N, d), or with axis=2 (B, N, heads, d), as caches are. NumPy's need ml_dtypes.
    axis: that of heads.
    power_of_two: whether scales are powers of two, by which the numbers are exact in 16 bits.
    per_token: whether each token of each head has a scale of its own: of the axes of x without d.
    scale: (B, heads), fp32: the scales to use, and to return, such as those of the tensor before (delayed scaling). x is
        then read once, not twice; elements beyond 448 of a scale become 448 of it.

    The largest element of a head becomes 448, the largest number of e4m3, or with power_of_two at least 224. A head with
    NaN or infinity becomes NaN.
    """
    return _eight_bits.quantize(x, axis, power_of_two, scale, per_token)


def dropout_mask(shape: Sequence[int], dropout_p: float, seed: int) -> Any:
    """Which elements of P (B, H, Nq, Nk), the shape, attention(..., dropout_p=, seed=) keeps: NumPy's array of bools.
    For tests: it is computed on the CPU, element by element."""
    import numpy
    axes = tuple(_arguments.whole("a size", size) for size in shape)
    if len(axes) != 4 or min(axes) < 1:
        raise ValueError(f"shape is {shape!r}; expected (B, H, Nq, Nk)")
    kept = numpy.empty(axes, bool)
    causal, _, *given = _arguments.given({"dropout_p": dropout_p, "seed": seed})
    _core.dropout_mask(axes, _core.mask_of(axes, axes, causal, [], *given), kept.ctypes.data)
    return kept


def stages(words: Union[StageName, Sequence[StageName]] = "all") -> "list[Stage]":
    """The stages that words name, as on lab's command line: 4, "1-5", "split_q", "my/", or "all"."""
    return [Stage(**stage) for stage in json.loads(_core.list_stages(_arguments.words(words)))]


def default_stage(shape: Sequence[int], *, causal: bool = False, window: Optional[Sequence[int]] = None,
                  backward: bool = False, backend: str = "cpu", **features: Any) -> str:
    """The folder's name of the stage that stage=None means for a problem of shape (B, H, Hkv, Nq, Nk, d): of those that
    were timed on the nearest recorded problem, the last rung that is as fast as any (stages/fastest.json of the sources);
    with a window or other features, which are verify()'s, the last rung of those that take them and little else.
    """
    sizes = [_arguments.whole("a size", size) for size in _arguments.sizes(shape)]
    options = " ".join(_arguments.options(causal, window, **features))
    return _core.default_stage(not _arguments.flag("backward", backward), sizes, options, _arguments.backend_of(backend))


def prepare(words: Union[StageName, Sequence[StageName]] = "all", backend: str = "cpu") -> None:
    """Compiles these stages for "cpu", "checked" or "gpu" now, as many at once as there are cores; otherwise each is
    compiled when it is first called. Those that cannot run on the GPU are left out."""
    _core.prepare(_arguments.words(words), _arguments.backend_of(backend))


def verify(words: Union[StageName, Sequence[StageName]] = "all", *, shape: Optional[Sequence[int]] = None,
           causal: bool = False, window: Optional[Sequence[int]] = None, dtype: str = "fp16", quick: bool = True,
           backend: str = "cpu", **features: Any) -> "list[dict]":
    """Stages against attention, or its gradients, in double precision.

    shape: (B, H, Hkv, Nq, Nk, d), with causal, window, dtype ("fp16" or "bf16") and features; by default each stage's
        own cases, of which `quick` takes one for each idea.
    backend: "cpu", "checked" (also finds races) or "gpu".
    features: cu_seqlens_q, cu_seqlens_k, dropout_p and seed, as attention() takes them; columns and tiles, names of
        patterns of `lab verify --columns` and `--tiles`; seqused, the keys of requests; page_size, of pages that
        are drawn; prefix, the keys that all requests begin with; scales="token", of a cache in 8 bits.

    Returns for each stage what passed, the largest errors, and in "reports" where and how it is wrong.
    """
    options = _arguments.case(shape, causal, window, dtype, **features)
    return json.loads(_core.verify(_arguments.words(words), _arguments.backend_of(backend), options,
                                   _arguments.flag("quick", quick)))


def count(stage: StageName, shape: Sequence[int] = (1, 2, 2, 512, 512, 64), *, causal: bool = False,
          window: Optional[Sequence[int]] = None, dtype: str = "fp16", **features: Any) -> "dict[str, int]":
    """The work that a stage does on a problem of shape (B, H, Hkv, Nq, Nk, d), counted exactly on the CPU: bytes,
    instructions, barriers, by the names of `lab count --json`. Features are verify()'s."""
    return json.loads(_core.count(str(stage), _arguments.case(shape, causal, window, dtype, **features)))


def time(stage: StageName, shape: Sequence[int], *, causal: bool = False, window: Optional[Sequence[int]] = None,
         dtype: str = "bf16", **features: Any) -> dict:
    """A stage's time on the GPU, as `lab time` measures it: with a cold cache, verified, median and spread.

    shape: (B, H, Hkv, Nq, Nk, d). Features are verify()'s. CannotRun without a GPU: a CPU's time says nothing of one.
    """
    return json.loads(_core.time(str(stage), _arguments.case(shape, causal, window, dtype, **features)))


class _Call:
    """A stage and the arrays that it reads, where they lie: Q, K, V and those of the backward pass."""

    def __init__(self, forward, stage, backend, tensors, others=None, out=None, **mask):
        """`out`: the name of the type of O, if it is not Q's."""
        in_e4m3 = "QKV" if out else "KV" if mask.get("k_scale") is not None else ""
        self.at = at = _arrays.Placed({**tensors, **(others or {})}, in_e4m3, out)
        backend = _arguments.backend_of(backend)
        if at.on_gpu:
            backend = "gpu"
        elif backend == "gpu":
            raise ValueError("backend is 'gpu' and Q is in the CPU's memory")
        self.mask = at.mask(mask)
        Q, K, V = (at.places[name][1] for name in tensors)
        self.axes = Q, self.mask.keys(Q, K), self.mask.keys(Q, V)
        stage = None if stage is None else str(stage)
        self.kernel = _core.kernel_of(forward, stage, backend, *self.axes[:2], self.mask)
        self.width = self.kernel.width(*self.axes)  # the head dimension at which it computes

    def forward(self, q, scale):
        """O, like q, and L."""
        at, library = self.at, self.at.library
        O, L = library.empty_like(q, at.out), library.empty(q.shape[:3], "float32", q)
        workspace = self._workspace()
        self.kernel.forward(*(place[:3] for place in at.places.values()), at.place("O", O)[:3], at.place("L", L)[0],
                            at.bf16, self.mask, scale, self._address(workspace), library.stream)
        if at.on_gpu:
            library.finish()
        return O, L

    def backward(self, tensors, lse, scale):
        """dQ, dK and dV, like these tensors, and with sinks dsinks."""
        at, library = self.at, self.at.library
        gradients = [library.empty_like(x) for x in tensors]
        dsinks = [library.empty((at.first.shape[1],), "float32", at.first)] if "sinks" in at.numbers else []
        workspace = self._workspace()
        Q, K, V, O, dO = (place[:3] for place in at.places.values())
        self.kernel.backward(Q, K, V, O, at.place("L", lse)[0], dO,
                             *(at.place(name, x)[:3] for name, x in zip(("dQ", "dK", "dV"), gradients)),
                             at.place("dsinks", dsinks[0])[0] if dsinks else 0, at.bf16, self.mask, scale,
                             self._address(workspace), library.stream)
        if at.on_gpu:
            library.finish()
        return *gradients, *dsinks

    def _workspace(self):
        if not self.at.on_gpu:
            return None
        return self.at.library.empty((max(16, self.kernel.workspace_bytes(*self.axes[:2])),), "uint8", self.at.first)

    def _address(self, workspace):
        return 0 if workspace is None else self.at.place("workspace", workspace)[0]


def _by_zero_columns(call, width, arrays, like, scale, **options):
    """call(...) of arrays with columns of zeros up to this head dimension, and of what it returns the columns that there
    should be. No product and no sum changes, but for the default scale, which is the narrow one's."""
    library = _arrays.library_of("Q", like[0])
    d = like[0].shape[3]
    results = call(*(library.widened(x, width) if x.ndim == 4 else x for x in arrays),
                   scale=d ** -0.5 if scale is None else scale, **options)
    return tuple(library.narrowed(x, shaped) if x.ndim == 4 else x for x, shaped in zip(results, like))
