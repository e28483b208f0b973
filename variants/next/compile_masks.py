"""Compiles, without a GPU, what peers.py calls: python compile_masks.py columns|causal|four|tiles|scattered D HKV [back], in the root"""
import sys, time, importlib.util
import torch
was = torch.cuda.is_available; torch.cuda.is_available = lambda: True
spec = importlib.util.spec_from_file_location("peers", "harness/time/peers.py")
peers = importlib.util.module_from_spec(spec); spec.loader.exec_module(peers); torch.cuda.is_available = was
from torch.overrides import TorchFunctionMode
class OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda": kwargs["device"] = "cpu"
        return function(*args, **kwargs)
from torch._subclasses.fake_tensor import FakeTensorMode
import flash_attn.cute.interface as I
what, d, Hkv, back = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), len(sys.argv) > 4
N = 1024
with OnCpu():
    q = torch.empty(1, 1, N, d)
    if what in ("tiles", "scattered"):
        import random
        kinds, bits = [], []
        for i in range((N // 64) ** 2):
            k = random.choice([-1, 0] + [-2] * (1 if what == "tiles" else 6))
            if k == 0:
                k = len(bits) // 64; bits += [[random.getrandbits(32), random.getrandbits(32)] for _ in range(64)]
            kinds.append(k)
        o = peers.in_blocks(q, q, False, (None, None), tiles={"kinds": kinds, "bits": bits})
    else:
        cols = [[min(N, k + 200), N, 0, max(0, k - 100)] if what != "four" else [k, k + 9, 50, 60] for k in range(N)]
        o = peers.in_blocks(q, q, what == "causal", (None, None), columns=cols)
def show(t): return t.shape, t.stride(), t.dtype
for x in o["aux_tensors"]: print("aux", *show(x), file=sys.stderr)
for n in ("block_sparse_tensors", "block_sparse_tensors_bwd"):
    for x in o[n][:4]: print(n, *show(x), file=sys.stderr)
    print(o[n].block_size, file=sys.stderr)
with FakeTensorMode():
    gpu = lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda")
    o["aux_tensors"] = [gpu(t) for t in o["aux_tensors"]]
    for n in ("block_sparse_tensors", "block_sparse_tensors_bwd"):
        o[n] = o[n]._replace(**{f: gpu(getattr(o[n], f)) for f in o[n]._fields[:4]})
    q, k, v = (torch.empty(2, h, N, d, dtype=torch.bfloat16, device="cuda", requires_grad=back).transpose(1, 2) for h in (16, Hkv, Hkv))
    t = time.time(); out, lse = I.flash_attn_func(q, k, v, causal=False, **o); print("fwd %.1f s" % (time.time() - t), file=sys.stderr)
    if back:
        t = time.time()
        I._flash_attn_bwd(q.detach(), k.detach(), v.detach(), out.detach(), torch.empty_like(out).detach(), lse.detach(), None, False, 0.0,
                          mask_mod=o["mask_mod"], aux_tensors=o["aux_tensors"], block_sparse_tensors=o["block_sparse_tensors_bwd"])
        print("bwd %.1f s" % (time.time() - t), file=sys.stderr)
