// Stage 00: naive. Three kernels: S = Q K^T and P = softmax(S) are written to global memory, then O = P V.
// "Standard attention" of FlashAttention (arXiv 2205.14135), algorithm 0; on tensor cores, like all stages.

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int Br = 64, Bc = 64;  // query rows and keys of a tile
constexpr int threads = 128;     // 4 warps
constexpr int pad = 8;           // rows start four 4-byte banks apart: ldmatrix has no conflicts

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

/// S (B, H, Nq, Nk) in fp32 and P (B, H, Nq, Nk) in T, with Nk rounded up to whole tiles.
template <class T>
struct Scores {
    std::int64_t columns;
    float* S;
    T* P;

    __device__ explicit Scores(const Problem& p, int b, int h) : columns(ceil_div(p.Nk, Bc) * Bc) {
        const std::int64_t size = p.Nq * columns, head = std::int64_t{b} * p.H + h;
        S = static_cast<float*>(p.workspace) + head * size;
        P = reinterpret_cast<T*>(static_cast<float*>(p.workspace) + std::int64_t{p.B} * p.H * size) +
            head * size;
    }
};

/// S = scale Q K^T, -inf where masked. One block per 64 x 64 tile; a warp has 16 query rows of it.
template <class T, int d>
__global__ void __launch_bounds__(threads, resident_blocks) scores(const Problem p) {
    struct Shared {
        T Q[Br][d + pad], K[Bc][d + pad];
    };
    auto& shared = shared_memory<Shared>();
    const int Tc = ceil_div(p.Nk, Bc), i = blockIdx.x / Tc, j = blockIdx.x % Tc;
    const int h = blockIdx.y, b = blockIdx.z, h_kv = h / (p.H / p.Hkv);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

    load_tile<T, d>(shared.Q, matrix<T>(p.Q, b, h), p.Q.row, i * Br, p.Nq);
    load_tile<T, d>(shared.K, matrix<T>(p.K, b, h_kv), p.K.row, j * Bc, p.Nk);
    copy_wait();
    __syncthreads();  // all copies of Q and K have landed
    const bool masked = p.causal || (j + 1) * Bc > p.Nk;
    note_tile(shared, b, h, i, j, masked);
    const int row = i * Br + 16 * warp + g, key = j * Bc + 2 * t;
    if (row - g >= p.Nq) return;  // no rows

    float S[8][4] = {};  // (16, 64)
#pragma unroll
    for (int k = 0; k < d; k += 16) {
        std::uint32_t q[4], kt[4];
        ldmatrix(q, &shared.Q[16 * warp + a_row(lane)][k + a_column(lane)]);
#pragma unroll
        for (int n = 0; n < Bc; n += 16) {
            ldmatrix(kt, &shared.K[n + b_row(lane)][k + b_column(lane)]);
            mma<T>(S[n / 8], q, kt[0], kt[1]);
            mma<T>(S[n / 8 + 1], q, kt[2], kt[3]);
        }
    }

#pragma unroll
    for (int c = 0; c < 32; ++c) S[c / 4][c % 4] *= p.scale;
    if (masked) {
#pragma unroll
        for (int c = 0; c < 32; ++c) {
            if (!visible(p, row + 8 * row_of(c), key + column_of(c))) S[c / 4][c % 4] = -inf;
        }
    }

    const Scores<T> out(p, b, h);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (row + 8 * r >= p.Nq) continue;
        float* S_row = out.S + (row + 8 * r) * out.columns + key;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            store_pair(S_row + 8 * n, S[n][2 * r], S[n][2 * r + 1]);
        }
    }
}

/// P = softmax(S) and L, in three passes over a row: maximum, sum, quotient. One warp per row.
template <class T, int d>
__global__ void __launch_bounds__(threads) softmax(const Problem p) {
    const int i = blockIdx.x * (threads / 32) + threadIdx.x / 32, h = blockIdx.y, b = blockIdx.z;
    const int lane = threadIdx.x % 32;
    if (i >= p.Nq) return;
    const Scores<T> matrices(p, b, h);
    const float* S = matrices.S + i * matrices.columns;
    T* P = matrices.P + i * matrices.columns;

    float m = -inf;
    for (int j = 2 * lane; j < matrices.columns; j += 64) {
        const float2 s = load_pair(S + j);
        m = fmaxf(m, fmaxf(s.x, s.y));
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, step));
    const float m_used = m == -inf ? 0.0f : m;  // a row without keys: exp(-inf - 0) = 0, not NaN

    float l = 0.0f;
    for (int j = 2 * lane; j < matrices.columns; j += 64) {
        const float2 s = load_pair(S + j);
        l += fast_exp2((s.x - m_used) * log2_e) + fast_exp2((s.y - m_used) * log2_e);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) l += __shfl_xor_sync(~0u, l, step);
    const float inverse_l = l == 0.0f ? 0.0f : divide(1.0f, l);

    for (int j = 2 * lane; j < matrices.columns; j += 64) {
        const float2 s = load_pair(S + j);
        const float x = fast_exp2((s.x - m_used) * log2_e) * inverse_l,
                    y = fast_exp2((s.y - m_used) * log2_e) * inverse_l;
        store_pair(P + j, x, y);
    }
    if (lane == 0) store(p.L + (std::int64_t{b} * p.H + h) * p.Nq + i, m + log2f(l) * ln_2);
}

/// O = P V. One block per 64 rows; a warp has 16 of them.
template <class T, int d>
__global__ void __launch_bounds__(threads, resident_blocks) output(const Problem p) {
    struct Shared {
        T P[Br][Bc + pad], V[Bc][d + pad];
    };
    auto& shared = shared_memory<Shared>();
    const int i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, h_kv = h / (p.H / p.Hkv);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const Scores<T> in(p, b, h);

    float O[d / 8][4] = {};  // (16, d)
    for (int j = 0; j < in.columns / Bc; ++j) {
        __syncthreads();  // the previous P and V have been read
        load_tile<T, Bc>(shared.P, in.P + j * Bc, in.columns, i * Br, p.Nq);
        load_tile<T, d>(shared.V, matrix<T>(p.V, b, h_kv), p.V.row, j * Bc, p.Nk);
        copy_wait();
        __syncthreads();                           // P and V are complete, whichever thread wrote them
        if (i * Br + 16 * warp >= p.Nq) continue;  // no rows
#pragma unroll
        for (int k = 0; k < Bc; k += 16) {
            std::uint32_t P[4], v[4];
            ldmatrix(P, &shared.P[16 * warp + a_row(lane)][k + a_column(lane)]);
#pragma unroll
            for (int n = 0; n < d; n += 16) {
                ldmatrix_transposed(v, &shared.V[k + a_row(lane)][n + a_column(lane)]);
                mma<T>(O[n / 8], P, v[0], v[1]);
                mma<T>(O[n / 8 + 1], P, v[2], v[3]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = i * Br + 16 * warp + g + 8 * r;
        if (row >= p.Nq) continue;
        T* O_row = matrix<T>(p.O, b, h) + row * p.O.row + 2 * t;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            store_pair(O_row + 8 * n, O[n][2 * r], O[n][2 * r + 1]);
        }
    }
}

std::size_t workspace_bytes(const Shape& s, int) {
    const std::size_t elements = std::size_t(s.B) * s.H * s.Nq * ceil_div(s.Nk, Bc) * Bc;
    return elements * (sizeof(float) + sizeof(fp16));
}

template <class T, int d>
void forward(const Problem& p) {
    const int Tr = ceil_div(p.Nq, Br), Tc = ceil_div(p.Nk, Bc);
    launch(scores<T, d>, dim3(Tr * Tc, p.H, p.B), threads, 2 * sizeof(T[64][d + pad]), p);
    launch(softmax<T, d>, dim3(ceil_div(p.Nq, threads / 32), p.H, p.B), threads, 0, p);
    launch(output<T, d>, dim3(Tr, p.H, p.B), threads, sizeof(T[64][Bc + pad]) + sizeof(T[64][d + pad]), p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(forward, Dims, .number = 0, .name = "naive",
             .tilings = LADDER_TILES((Br, Bc), {64, 64}, {64, 64}),
             .change = "S and P in global memory, three kernels", .shows_in = "train",
             .workspace_bytes = workspace_bytes);

}  // namespace
