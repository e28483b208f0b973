"""Stages 04, 05 and 06 in Triton: causal attention without and with the skip, and split-KV decoding. The names are
those of their kernel.cu.

    O, L = attention(q, k, v, causal=True, skip=False)  # 04: all key tiles, masked
    O, L = attention(q, k, v, causal=True)              # 05: key tiles above the diagonal never start
    O, L = decode(q, k, v)                              # 06: the keys are split across programs; a second kernel merges

FlashAttention-2 (arXiv 2307.08691), algorithm 1 and section 3.1.1; Flash-Decoding (T. Dao, D. Haziza, F. Massa,
G. Sizov, October 2023).
"""

import torch
import triton
import triton.language as tl

LOG2_E, LN_2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)
AT_A_TIME = tl.constexpr(16)  # parts that the merge loads together
compiled = {}  # for each kernel, by name, the machine code of its last launch


@triton.jit
def rows_of(X_ptr, strides, b, h, row, d: tl.constexpr):
    """Pointers to rows of X (B, heads, N, d): (rows, d). Offsets may pass 2^31."""
    X_ptr += b.to(tl.int64) * strides[0] + h.to(tl.int64) * strides[1]
    return X_ptr + (row.to(tl.int64) * strides[2])[:, None] + tl.arange(0, d)[None, :]


@triton.jit
def load_tile(X_ptr, strides, b, h, row, N, d: tl.constexpr):
    """Rows of X (B, heads, N, d) as a tile (rows, d). Rows from N on are 0."""
    return tl.load(rows_of(X_ptr, strides, b, h, row, d), mask=row[:, None] < N, other=0.0)


@triton.jit
def fold(Q, K, V, O, m, l, visible, scale, masked: tl.constexpr):
    """Folds a key tile K, V (Bc, d) into O (Br, d), m and l (Br), given Q (Br, d) and visible (Br, Bc): algorithm 1,
    lines 8 to 10."""
    S = tl.dot(Q, tl.trans(K)) * (scale * LOG2_E)  # (Br, Bc); scores and m count in base 2
    if masked:
        S = tl.where(visible, S, float("-inf"))
    m_old = m
    m = tl.maximum(m, tl.max(S, 1))
    m_used = tl.where(m == float("-inf"), 0.0, m)  # no key so far: exp(-inf - 0) = 0, not NaN
    alpha = tl.exp2(m_old - m_used)
    P = tl.exp2(S - m_used[:, None])
    l = alpha * l + tl.sum(P, 1)
    O = tl.dot(P.to(V.dtype), V, alpha[:, None] * O)
    return O, m, l


@triton.jit
def attention_kernel(Q_ptr, K_ptr, V_ptr, O_ptr, L_ptr, Q_strides, K_strides, V_strides, O_strides, O_s, m_s, l_s, H,
                     Hkv, Nq, Nk, scale, splits, d: tl.constexpr, Br: tl.constexpr, Bc: tl.constexpr,
                     causal: tl.constexpr, skip: tl.constexpr, split_kv: tl.constexpr):
    """A program for each query tile and part of the keys, head, batch entry. Q, O (B, H, Nq, d), K, V (B, Hkv, Nk, d),
    L (B, H, Nq). With split_kv O_s (splits, B, H, Nq, d), m_s and l_s (splits, B, H, Nq) get its part instead."""
    i, split = tl.program_id(0) // splits, tl.program_id(0) % splits
    h, b = tl.program_id(1), tl.program_id(2)
    h_kv = h // (H // Hkv)
    row = i * Br + tl.arange(0, Br)
    reach = i * Br + Nk - Nq if causal else Nk  # row i * Br sees no key beyond it
    if skip:
        Tc = tl.cdiv(tl.maximum(tl.minimum(Nk, reach + Br), 0), Bc)  # what the tile's last row sees
        unmasked = tl.maximum(tl.minimum(Nk, reach + 1), 0) // Bc  # key tiles that all its rows see
    else:
        Tc = tl.cdiv(Nk, Bc)
        unmasked = 0 if causal else Nk // Bc
    first, last = Tc * split // splits, Tc * (split + 1) // splits  # this program's key tiles
    unmasked = tl.minimum(tl.maximum(unmasked, first), last)

    O = tl.zeros([Br, d], tl.float32)
    m, l = tl.full([Br], float("-inf"), tl.float32), tl.zeros([Br], tl.float32)
    Q = load_tile(Q_ptr, Q_strides, b, h, row, Nq, d)
    for j in range(first, unmasked):
        key = j * Bc + tl.arange(0, Bc)
        K = load_tile(K_ptr, K_strides, b, h_kv, key, Nk, d)
        V = load_tile(V_ptr, V_strides, b, h_kv, key, Nk, d)
        O, m, l = fold(Q, K, V, O, m, l, True, scale, False)
    for j in range(unmasked, last):
        key = j * Bc + tl.arange(0, Bc)
        K = load_tile(K_ptr, K_strides, b, h_kv, key, Nk, d)
        V = load_tile(V_ptr, V_strides, b, h_kv, key, Nk, d)
        visible = key[None, :] < Nk
        if causal:
            visible = visible & (key[None, :] <= row[:, None] + Nk - Nq)
        O, m, l = fold(Q, K, V, O, m, l, visible, scale, True)

    at = (b.to(tl.int64) * H + h) * Nq + row  # in (B, H, Nq)
    if split_kv:
        part = split.to(tl.int64) * tl.num_programs(2) * H * Nq + at
        tl.store(O_s + part[:, None] * d + tl.arange(0, d)[None, :], O, mask=row[:, None] < Nq)
        tl.store(m_s + part, m, mask=row < Nq)
        tl.store(l_s + part, l, mask=row < Nq)
    else:
        O = (O * tl.where(l == 0, 0.0, 1 / l)[:, None]).to(Q.dtype)
        tl.store(rows_of(O_ptr, O_strides, b, h, row, d), O, mask=row[:, None] < Nq)
        tl.store(L_ptr + at, (m + tl.log2(l)) * LN_2, mask=row < Nq)


@triton.jit
def merge_kernel(O_ptr, L_ptr, O_strides, O_s, m_s, l_s, H, Nq, splits, d: tl.constexpr):
    """A program for each row merges its parts as if each were a key tile, 16 at a time: none of their loads waits for
    another. O (B, H, Nq, d), L (B, H, Nq), O_s (splits, B, H, Nq, d), m_s and l_s (splits, B, H, Nq)."""
    i, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (b.to(tl.int64) * H + h) * Nq + i
    O, m, l = tl.zeros([d], tl.float32), float("-inf"), 0.0
    for first in range(0, splits, AT_A_TIME):
        s = first + tl.arange(0, AT_A_TIME)
        part = s.to(tl.int64) * tl.num_programs(2) * H * Nq + at
        O_part = tl.load(O_s + part[:, None] * d + tl.arange(0, d)[None, :], mask=s[:, None] < splits, other=0.0)
        m_part = tl.load(m_s + part, mask=s < splits, other=float("-inf"))  # (16)
        l_part = tl.load(l_s + part, mask=s < splits, other=0.0)
        m_old = m
        m = tl.maximum(m, tl.max(m_part, 0))
        m_used = tl.where(m == float("-inf"), 0.0, m)  # no part has a key: exp(-inf - 0) = 0, not NaN
        alpha, alpha_s = tl.exp2(m_old - m_used), tl.exp2(m_part - m_used)
        l = alpha * l + tl.sum(alpha_s * l_part, 0)
        O = alpha * O + tl.sum(alpha_s[:, None] * O_part, 0)
    O_ptr += b.to(tl.int64) * O_strides[0] + h.to(tl.int64) * O_strides[1] + i.to(tl.int64) * O_strides[2]
    tl.store(O_ptr + tl.arange(0, d), (O * tl.where(l == 0, 0.0, 1 / l)).to(O_ptr.dtype.element_ty))
    tl.store(L_ptr + at, (m + tl.log2(l)) * LN_2)


def attention(q, k, v, causal=False, scale=None, skip=True, splits=1, Br=64, Bc=64, num_warps=4, num_stages=1):
    """O, like q, and L (B, H, Nq), fp32, of q (B, H, Nq, d), k and v (B, Hkv, Nk, d), fp16 or bf16, d = 64 or 128, with
    rows of adjacent elements. With causal, row i sees the keys j <= i + Nk - Nq; without keys O = 0 and L = -inf."""
    (B, H, Nq, d), (Hkv, Nk) = q.shape, k.shape[1:3]
    if d not in (64, 128) or H % Hkv or k.shape != v.shape or any(x.stride(3) != 1 for x in (q, k, v)):
        raise ValueError(f"Q is {tuple(q.shape)}, K {tuple(k.shape)}, V {tuple(v.shape)}: see attention.__doc__")
    O, L = torch.empty_like(q), q.new_empty(B, H, Nq, dtype=torch.float32)
    O_s = L.new_empty(splits, B, H, Nq, d) if splits > 1 else L
    m_s, l_s = L.new_empty(2, splits, B, H, Nq) if splits > 1 else (L, L)
    strides = [x.stride()[:3] for x in (q, k, v, O)]
    compiled["attention"] = attention_kernel[triton.cdiv(Nq, Br) * splits, H, B](
        q, k, v, O, L, *strides, O_s, m_s, l_s, H, Hkv, Nq, Nk, d**-0.5 if scale is None else scale, splits, d, Br, Bc,
        causal, skip, splits > 1, num_warps=num_warps, num_stages=num_stages)
    if splits > 1:
        compiled["merge"] = merge_kernel[Nq, H, B](O, L, strides[3], O_s, m_s, l_s, H, Nq, splits, d, num_warps=1)
    return O, L


def decode(q, k, v, causal=False, scale=None, sm_count=None, **tile):
    """The same, with the keys in as many parts as give each multiprocessor three programs, of a tile at least each."""
    sm_count = sm_count or torch.cuda.get_device_properties(q.device).multi_processor_count
    programs = q.shape[0] * q.shape[1] * triton.cdiv(q.shape[2], tile.get("Br", 64))
    splits = max(1, min(triton.cdiv(k.shape[2], tile.get("Bc", 64)), 3 * sm_count // programs))
    return attention(q, k, v, causal, scale, splits=splits, **tile)
