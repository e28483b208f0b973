"""On a GPU, in the project's root: python3 check_masks.py [PEERS]. Compares O, dQ, dK and dV of what peers.py's calls return,
with column bounds and with tiles, with attention in fp32 under the same dense mask; then times FlashAttention-4 at N = 8192
with blocks of 64 x 64 and 128 x 128 (CHECK_TIMES=0 leaves that out). Exit code 1 if something is wrong or did not run."""
import importlib, importlib.util, math, os, random, sys, time
import torch
spec = importlib.util.spec_from_file_location("peers", "harness/time/peers.py")
peers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peers)
names = sys.argv[1:] or ["FlashAttention-4"]
none = (None, None)
bad = 0
def say(*words): print(*words, file=sys.stderr, flush=True)

def pieces(n, count):
    begin = [0]
    while begin[-1] < n:
        mean = n // count
        begin.append(min(n, begin[-1] + (mean if random.random() < 0.5 else random.randrange(1, 2 * mean))))
    return list(zip(begin, begin[1:]))

def columns(pattern, n):
    """For each key LTS, LTE, UTS, UTE, as harness/problem/columns.cpp draws them, Nq = Nk."""
    bounds = [[n, n, 0, 0] for _ in range(n)]
    if pattern == "documents":
        for begin, end in pieces(n, 8):
            for k in range(begin, end): bounds[k] = [end, n, 0, begin]
    elif pattern == "shared_question":
        for begin, end in pieces(n, 4):
            answer = max(1, (end - begin) // 5)
            for k in range(begin, end):
                part = (k - begin) // answer
                bounds[k] = [end if part == 0 else min(end, begin + (part + 1) * answer), n, 0, k]
    elif pattern == "global_window":
        first, window = max(1, n // 64), max(1, n // 16)
        row = lambda at: max(0, min(n, at))
        for k in range(first, n): bounds[k] = [max(row(k + window), row(first)), n, row(first), row(k - window + 1)]
    else:  # random: also rows that see nothing
        run = None
        for k in range(n):
            if run is None or random.random() < 0.01: run = [random.randrange(n + 1) for _ in range(4)]
            bounds[k] = list(run)
    return bounds

def dense_columns(bounds, n, causal):
    row, key = torch.arange(n, device="cuda")[:, None], torch.arange(n, device="cuda")[None]
    LTS, LTE, UTS, UTE = torch.tensor(bounds, device="cuda").T
    seen = ~((row >= LTS) & (row < LTE)) & ~((row >= UTS) & (row < UTE))
    return seen & (key <= row) if causal else seen

def tiles(pattern, n):
    kinds, bits, full = [], [], 2**64 - 1
    for i in range(n // 64):
        nothing = pattern == "random" and random.randrange(6) == 0
        for j in range(n // 64):
            luck = random.randrange(8)
            if pattern == "quarter": words = [full if luck % 4 == 0 else 0] * 64
            elif pattern == "diagonal_and_random":
                words = [full if luck % 4 == 0 and j < i else 0 if j != i else 2**(r + 1) - 1 for r in range(64)]
            elif nothing or luck < 3: words = [0] * 64
            elif luck < 5: words = [full] * 64
            else: words = [random.choice([full, 0, 1 << random.randrange(64), full << 32 & full, full >> 32,
                                          random.getrandbits(64)]) for _ in range(64)]
            kinds.append(-2 if not any(words) else -1 if all(w == full for w in words) else len(bits) // 64)
            if kinds[-1] >= 0: bits += [[w & 0xffffffff, w >> 32] for w in words]
    return {"kinds": kinds, "bits": bits}

def attention(q, k, v, seen):
    g = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
    S = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(~seen, -1e30)
    return (S.softmax(-1) * seen) @ v  # 0 for a row that sees nothing

def check(name, label, n, H, Hkv, d, seen, causal, **mask):
    global bad
    torch.manual_seed(1)
    inputs = [torch.randn(1, h, n, d, dtype=torch.bfloat16, device="cuda", requires_grad=True) for h in (H, Hkv, Hkv)]
    exact = [x.detach().float().requires_grad_() for x in inputs]
    dO = torch.randn(1, H, n, d, dtype=torch.bfloat16, device="cuda")
    wanted = attention(*exact, seen)
    wanted = [wanted.detach(), *torch.autograd.grad(wanted, exact, dO.float())]
    for computes in ("O", "gradients"):
        try:
            start = time.time()
            call = peers.MAKERS[name](*inputs, causal, none, **mask)
            if computes == "O":
                with torch.no_grad(): O = call()
                results = [O]
            else:
                O = call()
                flat = name != "flex"  # (B, N, heads, d)
                results = [O, *torch.autograd.grad(O, inputs, dO.transpose(1, 2) if flat else dO)]
            if name != "flex": results[0] = results[0].transpose(1, 2)
            torch.cuda.synchronize()
            empty = ~seen.any(1)
            words, ok = [], True
            for what, got, want in zip(("O", "dQ", "dK", "dV"), results, wanted):
                error, scale = (got.float() - want).abs(), want.abs().max().item()
                nan = got.isnan().sum().item()
                ok &= nan == 0 and error.max().item() < 0.02 * max(1, scale)
                words.append(f"{what} {error.nan_to_num(9).max().item():.4f} of {scale:.2f}" + (f" {nan} NaN" if nan else ""))
            bad += not ok
            say("ok " if ok else "BAD", name, label, f"d={d} {H}/{Hkv}", computes, "; ".join(words), f"{empty.sum().item()} empty rows",
                f"{time.time() - start:.1f} s")
        except Exception as why:
            bad += 1
            say("no ", name, label, computes, type(why).__name__, peers.one_line(why)[:300])

def main():
    n = 1024
    for name in names:
        for pattern, causal in (("documents", False), ("shared_question", False), ("documents", True), ("global_window", False),
                                ("random", False)):
            random.seed(2)
            bounds = columns(pattern, n)
            check(name, f"columns {pattern}{' causal' * causal}", n, 2, 2, 128, dense_columns(bounds, n, causal), causal,
                  columns=bounds)
        random.seed(3)
        check(name, "columns documents", n, 4, 1, 64, dense_columns(bounds := columns("documents", n), n, False), False, columns=bounds)
        for pattern, H, Hkv, d in (("quarter", 2, 2, 128), ("random", 2, 2, 128), ("diagonal_and_random", 4, 1, 128), ("random", 2, 2, 64), ("quarter", 4, 1, 64)):
            random.seed(4)
            lists = tiles(pattern, n)
            seen = torch.tensor([[False]], device="cuda").expand(n, n).clone()
            for t, kind in enumerate(lists["kinds"]):  # bit by bit, not as peers.py does it
                i, j = t // (n // 64) * 64, t % (n // 64) * 64
                if kind == -1: seen[i:i + 64, j:j + 64] = True
                if kind >= 0:
                    words = [low | high << 32 for low, high in lists["bits"][kind * 64:kind * 64 + 64]]
                    seen[i:i + 64, j:j + 64] = torch.tensor([[word >> b & 1 for b in range(64)] for word in words]).bool()
            check(name, f"tiles {pattern}", n, H, Hkv, d, seen, False, tiles=lists)
    if "FlashAttention-4" in names and os.environ.get("CHECK_TIMES", "1") != "0":
        times()
    say("all ok" if not bad else f"{bad} wrong")
    sys.exit(bad > 0)

def times(n=8192):
    """Milliseconds of the forward pass, B = 2, H = 16, d = 128: with the blocks that peers.py chooses, and with others."""
    library = importlib.import_module("flash_attn.cute")
    sparsity = importlib.import_module("flash_attn.cute.block_sparsity")
    q, k, v = (torch.randn(2, 16, n, 128, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    clock = peers.Clock()
    for label, mask in (("quarter", dict(tiles=tiles("quarter", n))), ("random", dict(tiles=tiles("random", n))), ("diagonal_and_random", dict(tiles=tiles("diagonal_and_random", n))),
                        ("documents", dict(columns=columns("documents", n))), ("no mask", {})):
        try:
            options = peers.in_blocks(q, k, False, none, **mask) if mask else {}
            ways = {"no mask": options}
            if mask:
                chosen = options["block_sparse_tensors"].block_size
                seen = peers.dense_mask(mask["tiles"], n, n) if "tiles" in mask else dense_columns(mask["columns"], n, False)
                ways = {f"{side} x {side}{' as peers.py' * (chosen == (side, side))}": options | {"block_sparse_tensors":
                        sparsity.BlockSparseTensorsTorch(*peers.block_lists(seen, side, side), block_size=(side, side))}
                        for side in (64, 128)}
            for way, options in ways.items():
                call = lambda: library.flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), **options)
                for _ in range(3): call()
                say("time", label, way, f"{min(clock.milliseconds(call) for _ in range(7)):.3f} ms")
        except Exception as why:
            say("no  time", label, type(why).__name__, peers.one_line(why)[:300])

with torch.cuda.stream(torch.cuda.Stream()):
    main()
