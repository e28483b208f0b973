// Stage 12: pipelined copies. K and V go through a ring of tiles: a block asks for later tiles before it
// waits for this one. So one block per multiprocessor keeps the memory as busy as three, and leaves a third
// of the parts to merge.

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int Br = 16, Bc = 64;    // query rows and keys of a tile
constexpr int warps = 4;           // of a block
constexpr int slice = Bc / warps;  // keys of a tile that a warp takes
constexpr int threads = 32 * warps;
constexpr int pad = 8;  // rows start four 4-byte banks apart: ldmatrix has no conflicts

/// Tiles of the ring: what fills a multiprocessor's shared memory, for three blocks (d = 256: one).
template <int d>
constexpr int depth = d > 64 ? 2 : 4;

template <class T, int d>
struct Shared {
    T Q[Br][d + pad];
    T K[depth<d>][Bc][d + pad];  // tile j is in slot j % depth
    T V[depth<d>][Bc][d + pad];
};

/// Row r of the queries of key/value head h_kv: query i of head h. The heads of its group alternate.
struct PackedRow {
    int h, i;

    __device__ PackedRow(const Problem& p, int h_kv, int r) {
        const int group = p.H / p.Hkv;
        h = h_kv * group + r % group;
        i = r / group;
    }
    static __host__ __device__ int count(const Shape& s) { return s.H / s.Hkv * s.Nq; }
};

/// Starts copying packed rows first .. first + 15 of Q into a tile. Rows past the last become 0.
template <class T, int d>
__device__ void load_queries(T (&tile)[Br][d + pad], const Problem& p, int b, int h_kv, int first) {
#pragma unroll
    for (int n = 0; n < Br * d / 8; n += threads) {
        const int row = (n + threadIdx.x) / (d / 8), column = (n + threadIdx.x) % (d / 8) * 8;
        const bool valid = first + row < PackedRow::count(p);
        const auto [h, i] = PackedRow(p, h_kv, valid ? first + row : 0);
        copy_async(&tile[row][column], matrix<T>(p.Q, b, h) + i * p.Q.row + column, valid);
    }
}

/// Starts copying rows first .. first + 63 of X (N, d) into a tile. Rows from N on become 0.
template <class T, int d>
__device__ void load_tile(T (&tile)[64][d + pad], const T* X, std::int64_t stride, int first, int N) {
    const int row = threadIdx.x / (d / 8), column = threadIdx.x % (d / 8) * 8;
    const T* source = X + (first + row) * stride + column;
#pragma unroll
    for (int n = 0; n < 64; n += threads * 8 / d) {
        copy_async(&tile[row + n][column], source + n * stride, first + row + n < N);
    }
}

__device__ bool visible(const Problem& p, int row, int key) {
    return key < p.Nk && (!p.causal || key <= row + p.Nk - p.Nq);
}

/// S = Q K^T, (16, slice): the rows of the tile and this warp's keys of it (algorithm 1, line 8).
template <class T, int d>
__device__ void score(Shared<T, d>& shared, int j, float (&S)[slice / 8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < d; k += 16) {
        std::uint32_t q[4], kt[4];
        ldmatrix(q, &shared.Q[a_row(lane)][k + a_column(lane)]);
#pragma unroll
        for (int n = 0; n < slice; n += 16) {
            ldmatrix(kt, &shared.K[j % depth<d>][slice * warp + n + b_row(lane)][k + b_column(lane)]);
            mma<T>(S[n / 8], q, kt[0], kt[1]);
            mma<T>(S[n / 8 + 1], q, kt[2], kt[3]);
        }
    }
}

/// Turns the scores S (16, slice) with key tile j into P, and rescales O to the new m (algorithm 1, line 9).
/// Lanes hold rows g and g + 8.
template <int d>
__device__ void softmax(const Problem& p, int first_row, int j, bool masked, float (&S)[slice / 8][4],
                        float (&O)[d / 8][4], float (&m)[2], float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float scale = p.scale * log2_e;  // scores and m are in base 2
#pragma unroll
    for (int c = 0; c < slice / 2; ++c) S[c / 4][c % 4] *= scale;
    if (masked) {
        const int row = first_row + g, key = j * Bc + slice * warp + 2 * t, group = p.H / p.Hkv;
        const int query[2] = {row / group, (row + 8) / group};
#pragma unroll
        for (int c = 0; c < slice / 2; ++c) {
            if (!visible(p, query[row_of(c)], key + column_of(c))) S[c / 4][c % 4] = -inf;
        }
    }

    // m = max(m, rowmax(S))
    float alpha[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float row_max = -inf;
#pragma unroll
        for (int n = 0; n < slice / 8; ++n) row_max = fmaxf(row_max, fmaxf(S[n][2 * r], S[n][2 * r + 1]));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 1));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 2));
        const float m_old = m[r];
        m[r] = fmaxf(m[r], row_max);
        const float m_used = m[r] == -inf ? 0.0f : m[r];  // no key yet: exp(-inf - 0) = 0, not NaN
        alpha[r] = fast_exp2(m_old - m_used);

        // P = exp(S - m), in place of S
        float row_sum = 0.0f;
#pragma unroll
        for (int n = 0; n < slice / 8; ++n) {
            S[n][2 * r] = fast_exp2(S[n][2 * r] - m_used);
            S[n][2 * r + 1] = fast_exp2(S[n][2 * r + 1] - m_used);
            row_sum += S[n][2 * r] + S[n][2 * r + 1];
        }
        row_sum += __shfl_xor_sync(~0u, row_sum, 1);
        row_sum += __shfl_xor_sync(~0u, row_sum, 2);

        // l = alpha l + rowsum(P) and O = alpha O + P V
        l[r] = alpha[r] * l[r] + row_sum;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            O[n][2 * r] *= alpha[r];
            O[n][2 * r + 1] *= alpha[r];
        }
    }
}

/// Folds key tile j, given its S, into this warp's m, l and O (16, d), which are of its own keys (algorithm
/// 1, lines 9 and 10).
template <class T, int d>
__device__ void fold(Shared<T, d>& shared, const Problem& p, int first_row, int j, bool masked,
                     float (&S)[slice / 8][4], float (&O)[d / 8][4], float (&m)[2], float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    softmax<d>(p, first_row, j, masked, S, O, m, l);
#pragma unroll
    for (int k = 0; k < slice / 8; k += 2) {
        std::uint32_t P[4];
        pack_operand<T>(P, S[k], S[k + 1]);
#pragma unroll
        for (int n = 0; n < d; n += 16) {
            std::uint32_t v[4];
            ldmatrix_transposed(
                v, &shared.V[j % depth<d>][slice * warp + 8 * k + a_row(lane)][n + a_column(lane)]);
            mma<T>(O[n / 8], P, v[0], v[1]);
            mma<T>(O[n / 8 + 1], P, v[2], v[3]);
        }
    }
}

/// Merges the warps' m, l and O, each of its own keys. Of O each warp gets d / warps columns, first in its O.
template <class T, int d>
__device__ void merge_warps(Shared<T, d>& shared, float (&O)[d / 8][4], float (&m)[2], float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    static_assert(warps * (d / 8 + 1) * 32 * sizeof(float4) <= sizeof shared.K + sizeof shared.V);
    const auto place = [&](int w, int n) {  // lane by lane: O in d / 8 pieces, then m and l
        return reinterpret_cast<float4*>(shared.K) + (w * (d / 8 + 1) + n) * 32 + lane;
    };
    __syncthreads();  // every warp has read its last K and V, whose memory this is
#pragma unroll
    for (int n = 0; n < d / 8; ++n) store(place(warp, n), {O[n][0], O[n][1], O[n][2], O[n][3]});
    store(place(warp, d / 8), {m[0], m[1], l[0], l[1]});
    __syncthreads();  // every warp's results are complete
    for (int w = 0; w < warps; ++w) {
        const float4 found = load(place(w, d / 8));
        m[0] = fmaxf(m[0], found.x);
        m[1] = fmaxf(m[1], found.y);
    }
    l[0] = l[1] = 0.0f;
#pragma unroll
    for (int w = 0; w < warps; ++w) {
        const float4 found = load(place(w, d / 8));
        const float alpha[2] = {m[0] == -inf ? 0.0f : fast_exp2(found.x - m[0]),
                                m[1] == -inf ? 0.0f : fast_exp2(found.y - m[1])};
        l[0] += alpha[0] * found.z;
        l[1] += alpha[1] * found.w;
#pragma unroll
        for (int n = 0; n < d / 8 / warps; ++n) {
            const float4 O_w = load(place(w, d / 8 / warps * warp + n));
            O[n][0] = alpha[0] * O_w.x + (w > 0 ? O[n][0] : 0.0f);
            O[n][1] = alpha[0] * O_w.y + (w > 0 ? O[n][1] : 0.0f);
            O[n][2] = alpha[1] * O_w.z + (w > 0 ? O[n][2] : 0.0f);
            O[n][3] = alpha[1] * O_w.w + (w > 0 ? O[n][3] : 0.0f);
        }
    }
}

/// Writes O / l (rows g and g + 8, this warp's columns) and L = m + log(l).
template <class T, int d>
__device__ void write_rows(const Problem& p, int b, int h_kv, int first_row, const float (&O)[d / 8][4],
                           const float (&m)[2], const float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + g + 8 * r;
        if (row >= PackedRow::count(p)) continue;
        const auto [h, i] = PackedRow(p, h_kv, row);
        const float inverse_l = l[r] == 0.0f ? 0.0f : divide(1.0f, l[r]);
        T* O_row = matrix<T>(p.O, b, h) + i * p.O.row + d / warps * warp + 2 * t;
#pragma unroll
        for (int n = 0; n < d / 8 / warps; ++n) {
            store_pair(O_row + 8 * n, O[n][2 * r] * inverse_l, O[n][2 * r + 1] * inverse_l);
        }
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + i;
        if (warp == 0 && t == 0) store(L, (m[r] + log2f(l[r])) * ln_2);
    }
}

/// Parts of the keys: as many as give each multiprocessor one block; one tile at least in each.
__host__ __device__ int split_count(const Shape& s, int sm_count) {
    const std::int64_t blocks = std::int64_t{s.B} * s.Hkv * ceil_div(PackedRow::count(s), Br);
    return max(1, min(ceil_div(s.Nk, Bc), static_cast<int>(sm_count / blocks)));
}

/// Workspace of the parts: O (splits, B, H, Nq, d), not divided by l, then m and l (splits, B, H, Nq, 2).
struct Parts {
    float *O, *m_l;
    std::int64_t rows;  // of one part
    int splits;

    __device__ explicit Parts(const Problem& p)
        : O(static_cast<float*>(p.workspace)),
          rows(std::int64_t{p.B} * p.H * p.Nq),
          splits(split_count(p, p.sm_count)) {
        m_l = O + splits * rows * p.d;
    }
};

/// Writes O, m and l to a part, in fp32.
template <int d>
__device__ void write_part(const Problem& p, int b, int h_kv, int first_row, int split,
                           const float (&O)[d / 8][4], const float (&m)[2], const float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const Parts parts(p);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (first_row + g + 8 * r >= PackedRow::count(p)) continue;
        const auto [h, i] = PackedRow(p, h_kv, first_row + g + 8 * r);
        const std::int64_t row = split * parts.rows + (std::int64_t{b} * p.H + h) * p.Nq + i;
#pragma unroll
        for (int n = 0; n < d / 8 / warps; ++n) {
            store_pair(parts.O + row * d + d / warps * warp + 8 * n + 2 * t, O[n][2 * r], O[n][2 * r + 1]);
        }
        if (warp == 0 && t == 0) store_pair(parts.m_l + 2 * row, m[r], l[r]);
    }
}

/// Merges the parts of a row as if each were a key tile: m is the largest m_s, l the sum of exp(m_s - m) l_s,
/// and O likewise. One warp per row, a lane for d / 32 columns. Parts come 16 at a time: none of their loads
/// waits for another.
template <class T, int d>
__global__ void __launch_bounds__(threads) merge(const Problem p) {
    const int i = blockIdx.x * (threads / 32) + threadIdx.x / 32, h = blockIdx.y, b = blockIdx.z;
    const int lane = threadIdx.x % 32;
    if (i >= p.Nq) return;
    const Parts parts(p);
    const std::int64_t row = (std::int64_t{b} * p.H + h) * p.Nq + i;

    float m = -inf, l = 0.0f;
    float2 O[d / 64] = {};  // columns 2 lane and 2 lane + 1 of each 64
    for (int first = 0; first < parts.splits; first += 16) {
        float2 m_l[16], O_s[16][d / 64];
        const float m_old = m;
#pragma unroll
        for (int s = 0; s < 16; ++s) {
            const bool valid = first + s < parts.splits;
            const std::int64_t part = (first + s) * parts.rows + row;
            m_l[s] = valid ? load_pair(parts.m_l + 2 * part) : float2{-inf, 0.0f};
            m = fmaxf(m, m_l[s].x);
#pragma unroll
            for (int n = 0; n < d / 64; ++n) {
                O_s[s][n] = valid ? load_pair(parts.O + part * d + 64 * n + 2 * lane) : float2{};
            }
        }
        const float m_used = m == -inf ? 0.0f : m;  // no part has a key: exp(-inf - 0) = 0, not NaN
        const float alpha = fast_exp2(m_old - m_used);
        l *= alpha;
        for (float2& pair : O) pair = {alpha * pair.x, alpha * pair.y};
#pragma unroll
        for (int s = 0; s < 16; ++s) {
            const float alpha_s = fast_exp2(m_l[s].x - m_used);
            l += alpha_s * m_l[s].y;
#pragma unroll
            for (int n = 0; n < d / 64; ++n)
                O[n] = {O[n].x + alpha_s * O_s[s][n].x, O[n].y + alpha_s * O_s[s][n].y};
        }
    }
    const float inverse_l = l == 0.0f ? 0.0f : divide(1.0f, l);
    T* O_row = matrix<T>(p.O, b, h) + i * p.O.row + 2 * lane;
#pragma unroll
    for (int n = 0; n < d / 64; ++n) {
        store_pair(O_row + 64 * n, O[n].x * inverse_l, O[n].y * inverse_l);
    }
    if (lane == 0) store(p.L + row, (m + log2f(l)) * ln_2);
}

template <class T, int d>
__global__ void __launch_bounds__(threads, d > 128 ? 1 : resident_blocks) attention(const Problem p) {
    auto& shared = shared_memory<Shared<T, d>>();
    const int splits = split_count(p, p.sm_count), split = blockIdx.x % splits;
    const int i = blockIdx.x / splits, h_kv = blockIdx.y, b = blockIdx.z, group = p.H / p.Hkv;
    // The last keys that the tile's first and last rows see
    const int reach = p.causal ? i * Br / group + p.Nk - p.Nq : p.Nk;
    const int last_reach = p.causal ? (i * Br + Br - 1) / group + p.Nk - p.Nq : p.Nk;
    const int Tc = ceil_div(min(p.Nk, last_reach + 1), Bc);
    const int first = Tc * split / splits, last = Tc * (split + 1) / splits;  // this block's key tiles

    float O[d / 8][4] = {}, m[2] = {-inf, -inf}, l[2] = {};
    load_queries<T, d>(shared.Q, p, b, h_kv, i * Br);
    const auto load = [&](int j) {  // one group of copies, empty past the last tile
        if (j < last) {
            load_tile<T, d>(shared.K[j % depth<d>], matrix<T>(p.K, b, h_kv), p.K.row, j * Bc, p.Nk);
            load_tile<T, d>(shared.V[j % depth<d>], matrix<T>(p.V, b, h_kv), p.V.row, j * Bc, p.Nk);
        }
        copy_commit();
    };
    for (int j = first; j < first + depth<d>; ++j) load(j);  // Q is in the first group
    for (int j = first; j < last; ++j) {
        copy_wait<depth<d> - 1>();
        __syncthreads();  // all copies of Q, and of K and V of tile j, have landed
        const bool masked = (j + 1) * Bc > min(p.Nk, reach + 1);
        note_tile(shared, b, h_kv, i, j, masked, group);
        float S[slice / 8][4] = {};
        score<T, d>(shared, j, S);
        fold<T, d>(shared, p, i * Br, j, masked, S, O, m, l);
        note_rows(i * Br, m, l);
        __syncthreads();  // K and V of tile j have been read: their slot is free
        load(j + depth<d>);
    }
    merge_warps<T, d>(shared, O, m, l);
    if (threadIdx.x < 32) note_rows(i * Br, m, l);
    if (splits == 1) {
        write_rows<T, d>(p, b, h_kv, i * Br, O, m, l);
    } else {
        write_part<d>(p, b, h_kv, i * Br, split, O, m, l);
    }
}

std::size_t workspace_bytes(const Shape& s, int sm_count) {
    const int splits = split_count(s, sm_count);
    return splits == 1 ? 0 : std::size_t(splits) * s.B * s.H * s.Nq * (s.d + 2) * sizeof(float);
}

template <class T, int d>
void forward(const Problem& p) {
    const int splits = split_count(p, p.sm_count);
    launch(attention<T, d>, dim3(ceil_div(PackedRow::count(p), Br) * splits, p.Hkv, p.B), threads,
           sizeof(Shared<T, d>), p);
    if (splits > 1) launch(merge<T, d>, dim3(ceil_div(p.Nq, threads / 32), p.H, p.B), threads, 0, p);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 12, .name = "pipelined_copies", .parent = 11,
             .formerly = "13_fewer_parts",
             .tilings = LADDER_TILES((Br, Bc, depth<d>), {16, 64, 4}, {16, 64, 2}, {16, 64, 2}),
             .change = "a ring of K and V tiles in flight: one block per SM does what three did",
             .shows_in = "decode", .batch_invariant = false, .workspace_bytes = workspace_bytes);

}  // namespace
