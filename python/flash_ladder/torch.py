"""The ladder in PyTorch: attention as an operator with gradients, under torch.compile and in CUDA graphs.

    from flash_ladder.torch import attention
    o = attention(q, k, v, causal=True)

A call on a GPU queues its kernels in the current stream, waits for nothing, and allocates its outputs and the stage's
workspace alone. The operators are torch.ops.flash_ladder.attention and .attention_backward.
"""

from contextlib import nullcontext
from typing import Optional, Tuple, Union

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import StageName, _arrays, _core, _kernel

__all__ = ["attention", "attention_backward"]

_library = torch.library.Library("flash_ladder", "DEF")
_library.define("attention(Tensor q, Tensor k, Tensor v, bool causal, float? scale, str? stage, str? backward_stage,"
                " str backend) -> (Tensor, Tensor)", tags=(torch.Tag.pt2_compliant_tag,))
_library.define("attention_backward(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor do, bool causal,"
                " float? scale, str? stage, str backend) -> (Tensor, Tensor, Tensor)",
                tags=(torch.Tag.pt2_compliant_tag,))
_attention = torch.ops.flash_ladder.attention.default
_attention_backward = torch.ops.flash_ladder.attention_backward.default
_bf16 = {torch.float16: False, torch.bfloat16: True}
_tensors = (Tensor, torch.nn.Parameter)
_nothing = nullcontext()
if hasattr(Tensor, "__dlpack_c_exchange_api__"):  # PyTorch 2.11
    _core.read_tensors_by(Tensor.__dlpack_c_exchange_api__)


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: Optional[float] = None,
              stage: Optional[StageName] = None, backward_stage: Optional[StageName] = None, return_lse: bool = False,
              backend: str = "cpu") -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """flash_ladder.attention of tensors, with gradients by q, k and v.

    q: (B, H, Nq, d); k, v: (B, Hkv, Nk, d), fp16 or bf16; in an autocast region they are cast to its type first.
    stage, backward_stage: as stage in flash_ladder.attention, for O and for the gradients; by default the last rungs.
    Returns O (B, H, Nq, d), or O and L (B, H, Nq), fp32. No gradient flows through L.
    """
    plain = _is_plain(q, k, v)
    if not plain:
        _require_tensors(Q=q, K=k, V=v)
    if not plain or torch._C._is_any_autocast_enabled():
        device = q.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    with_gradients = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if not plain or (with_gradients and return_lse):
        o, lse = _attention(q, k, v, causal, scale, _word(stage), _word(backward_stage), backend)
    elif with_gradients:
        return _with_gradients(q, k, v, (causal, scale, stage, backward_stage, backend))
    else:
        o, lse = _forward(q, k, v, causal, scale, stage, backend, "returned" if return_lse else "dropped")
    return (o, lse) if return_lse else o


def attention_backward(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, *, causal: bool = False,
                       scale: Optional[float] = None, stage: Optional[StageName] = None,
                       backend: str = "cpu") -> Tuple[Tensor, Tensor, Tensor]:
    """dQ, dK and dV of tensors: see flash_ladder.attention_backward."""
    _require_tensors(Q=q, K=k, V=v, O=o, L=lse, dO=do)
    return _attention_backward(q, k, v, o, lse, do, causal, scale, _word(stage), backend)


def _word(stage):
    return None if stage is None else str(stage)


def _is_plain(q, k, v):
    """Whether nobody watches: no compiler, no transform, no mode, no tensor that is more than a tensor. Then a call
    goes straight to its implementation, since the way through an operator in Python takes longer than all the rest."""
    return (type(q) in _tensors and type(k) in _tensors and type(v) in _tensors and
            not torch.compiler.is_compiling() and not torch._C._len_torch_dispatch_stack() and
            not torch._C._len_torch_function_stack() and torch._C._functorch.peek_interpreter_stack() is None)


def _require_tensors(**arrays):
    for name, x in arrays.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is {_arrays.kind(x)}; expected torch.Tensor")


def _refuse(q, others):
    """Says what does not fit, if anything does not."""
    for name, x in others.items():
        if x.dtype != q.dtype:
            raise TypeError(f"Q is {_arrays.dtype_name(q.dtype)} and {name} is {_arrays.dtype_name(x.dtype)}: "
                            "they must agree")
        if x.device != q.device:
            raise ValueError(f"Q is on {q.device} and {name} on {x.device}: they must agree")
        if x.dim() != 4:
            raise ValueError(f"{name} is {tuple(x.shape)}, of rank {x.dim()}; expected (B, H, N, d)")
    if q.dtype not in _bf16:
        raise TypeError(f"Q is {_arrays.dtype_name(q.dtype)}; expected float16 or bfloat16")


def _on_its_device(q):
    """Where kernels are launched must be the current device."""
    if not q.is_cuda or q.device.index == torch._C._cuda_getDevice():
        return _nothing
    return torch.cuda.device(q.device)


def _room(kernel, q, k, L_bytes=0, keeps_L=False):
    """Memory that begins with L, memory with the stage's workspace, which calls on a CPU do without, and where the two
    begin. It is one allocation, since each takes time, but a large workspace is not kept with L."""
    L_bytes = (L_bytes + 255) // 256 * 256
    workspace_bytes = kernel.workspace_bytes(q, k) if q.is_cuda else 0
    if L_bytes + workspace_bytes == 0:
        return None, None, 0, 0
    if keeps_L and workspace_bytes > L_bytes:
        L, workspace = (q.new_empty(size, dtype=torch.uint8) for size in (L_bytes, workspace_bytes))
        return L, workspace, L.data_ptr(), workspace.data_ptr()
    room = q.new_empty(L_bytes + workspace_bytes, dtype=torch.uint8)
    first = room.data_ptr()
    return room, room, first, first + L_bytes


def _stream(q):
    return torch._C._cuda_getCurrentRawStream(q.device.index) if q.is_cuda else 0


def _forward(q, k, v, causal, scale, stage, backend, L_is):
    """O, and L, "returned" as a tensor (B, H, Nq), "kept" at the beginning of some memory, or "dropped"."""
    dtype = q.dtype
    if not (dtype is k.dtype is v.dtype and dtype in _bf16 and q.device == k.device == v.device and
            q.dim() == k.dim() == v.dim() == 4):
        _refuse(q, {"Q": q, "K": k, "V": v})
    with _on_its_device(q):
        B, H, Nq, d = q.shape
        kernel = _kernel(True, stage, "gpu" if q.is_cuda else backend, Nq, d)
        o = torch.empty_like(q)
        if L_is == "returned":
            _, room, _, workspace = _room(kernel, q, k)
            lse = q.new_empty((B, H, Nq), dtype=torch.float32)  # q.shape[:3] takes longer
            L = lse.data_ptr()
        else:
            lse, room, L, workspace = _room(kernel, q, k, 4 * B * H * Nq, L_is == "kept")
        kernel.forward(q, k, v, o, L, _bf16[dtype], causal, scale, workspace, _stream(q))
        return o, lse


def _backward(q, k, v, o, L, do, causal, scale, stage, backend):
    """dQ, dK and dV. L: memory that begins with it."""
    if not do.is_contiguous() and (do.stride(-1) != 1 or any(stride % 8 for stride in do.stride()[:3])):
        do = do.contiguous()  # the gradient of a sum is one number, expanded
    with _on_its_device(q):
        kernel = _kernel(False, stage, "gpu" if q.is_cuda else backend, q.shape[2], q.shape[3])
        _, room, _, workspace = _room(kernel, q, k)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        kernel.backward(q, k, v, o, L.data_ptr(), do, dq, dk, dv, _bf16[q.dtype], causal, scale, workspace, _stream(q))
        return dq, dk, dv


def _run_forward(q, k, v, causal, scale, stage, backward_stage, backend):
    return _forward(q, k, v, causal, scale, stage, backend, "returned")


def _run_backward(q, k, v, o, lse, do, causal, scale, stage, backend):
    if not (q.dtype is k.dtype is v.dtype is o.dtype is do.dtype and q.dtype in _bf16 and
            q.device == k.device == v.device == o.device == do.device and
            q.dim() == k.dim() == v.dim() == o.dim() == do.dim() == 4):
        _refuse(q, {"Q": q, "K": k, "V": v, "O": o, "dO": do})
    if not (lse.dtype is torch.float32 and lse.shape == q.shape[:3] and lse.device == q.device):
        _arrays.check_lse(lse, q)
    return _backward(q, k, v, o, lse.contiguous(), do, causal, scale, stage, backend)


def _fake_forward(q, k, v, causal, scale, stage, backward_stage, backend):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake_backward(q, k, v, o, lse, do, causal, scale, stage, backend):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx, inputs, output):
    q, k, v, causal, scale, stage, backward_stage, backend = inputs
    o, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)  # no kernel that fills a gradient of L with zeros
    ctx.save_for_backward(q, k, v, o, lse)
    ctx.rest = causal, scale, backward_stage, backend


def _gradients(ctx, do, dlse):
    if do is None:
        return (None,) * 8
    return *_attention_backward(*ctx.saved_tensors, do, *ctx.rest), None, None, None, None, None


class _LadderAttention(torch.autograd.Function):
    """The operator and its gradients without the operator. Its outputs and inputs are few, since each takes time."""

    @staticmethod
    def forward(ctx, q, k, v, rest):
        causal, scale, stage, backward_stage, backend = rest
        o, L = _forward(q, k, v, causal, scale, stage, backend, "kept")
        ctx.save_for_backward(q, k, v, o, L)
        ctx.rest = causal, scale, backward_stage, backend
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx, do):
        return *_backward(*ctx.saved_tensors, do, *ctx.rest), None


# Function.apply() looks for transforms first, as _is_plain() has done, and takes 3 microseconds for it.
_with_gradients = super(torch.autograd.Function, _LadderAttention).apply


for _device in ("CPU", "CUDA"):
    _library.impl("attention", _run_forward, _device)
    _library.impl("attention_backward", _run_backward, _device)
torch.library.register_fake(_attention, _fake_forward, lib=_library)
torch.library.register_fake(_attention_backward, _fake_backward, lib=_library)
torch.library.register_autograd(_attention, _gradients, setup_context=_keep, lib=_library)
