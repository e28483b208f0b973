// Stage 93: paper tiles. 01 with 256 keys in a tile: the released FlashAttention-1 takes as many at d = 64,
// and the paper's formula gives about as many at d = 128, for the shared memory of a block on Hopper. The
// exchange between warps, the barriers and the trips of O fall to a quarter. FlashAttention (arXiv
// 2205.14135), algorithm 1.

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int Br = 64, Bc = 256;  // query rows and keys of a tile
constexpr int threads = 128;      // 4 warps
constexpr int keys = Bc / 4;      // of a tile that a warp takes
constexpr int pad = 8;            // rows start four 4-byte banks apart: ldmatrix has no conflicts

template <class T, int d>
struct Shared {
    T Q[Br][d + pad];
    T K[Bc][d + pad];
    T V[Bc][d + pad];
    float row_max[4][16], row_sum[4][16];  // of a slice, over the keys of each warp
    float PV[4][16][d + pad];              // of a slice, over the keys of each warp
};

/// Starts copying as many rows of X (N, d) as the tile has, from row first. Rows from N on become 0.
template <class T, int d, int rows>
__device__ void load_tile(T (&tile)[rows][d + pad], const T* X, std::int64_t stride, int first, int N) {
    const int row = threadIdx.x / (d / 8), column = threadIdx.x % (d / 8) * 8;
    const T* source = X + (first + row) * stride + column;
#pragma unroll
    for (int n = 0; n < rows; n += threads * 8 / d) {
        copy_async(&tile[row + n][column], source + n * stride, first + row + n < N);
    }
}

__device__ bool visible(const Problem& p, int row, int key) {
    return key < p.Nk && (!p.causal || key <= row + p.Nk - p.Nq);
}

/// Folds key tile j into a slice of 16 rows of query tile i (algorithm 1, lines 9 to 12).
/// A warp takes 64 of the 256 keys; O (16, d / 4) are the columns that it sums up.
/// Lanes hold rows g and g + 8.
template <class T, int d>
__device__ void attend(Shared<T, d>& shared, const Problem& p, int i, int j, int slice, bool masked,
                       float (&O)[d / 32][4], float (&m)[2], float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float scale = p.scale * log2_e;  // scores and m are in base 2

    // S = Q K^T: (16, 64)
    float S[keys / 8][4] = {};
#pragma unroll
    for (int k = 0; k < d; k += 16) {
        std::uint32_t q[4], kt[4];
        ldmatrix(q, &shared.Q[16 * slice + a_row(lane)][k + a_column(lane)]);
#pragma unroll
        for (int n = 0; n < keys; n += 16) {
            ldmatrix(kt, &shared.K[keys * warp + n + b_row(lane)][k + b_column(lane)]);
            mma<T>(S[n / 8], q, kt[0], kt[1]);
            mma<T>(S[n / 8 + 1], q, kt[2], kt[3]);
        }
    }
#pragma unroll
    for (int c = 0; c < keys / 2; ++c) S[c / 4][c % 4] *= scale;
    if (masked) {
        const int row = i * Br + 16 * slice + g, key = j * Bc + keys * warp + 2 * t;
#pragma unroll
        for (int c = 0; c < keys / 2; ++c) {
            if (!visible(p, row + 8 * row_of(c), key + column_of(c))) S[c / 4][c % 4] = -inf;
        }
    }

    // m = max(m, rowmax(S)), over the keys of all warps
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float row_max = -inf;
#pragma unroll
        for (int n = 0; n < keys / 8; ++n) row_max = fmaxf(row_max, fmaxf(S[n][2 * r], S[n][2 * r + 1]));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 1));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 2));
        if (t == 0) store(&shared.row_max[warp][g + 8 * r], row_max);
    }
    __syncthreads();  // all maxima are complete; the previous slice's sums and products have been read
    float alpha[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float m_old = m[r];
#pragma unroll
        for (int w = 0; w < 4; ++w) m[r] = fmaxf(m[r], load(&shared.row_max[w][g + 8 * r]));
        const float m_used = m[r] == -inf ? 0.0f : m[r];  // no key yet: exp(-inf - 0) = 0, not NaN
        alpha[r] = fast_exp2(m_old - m_used);

        // P = exp(S - m), in place of S
        float row_sum = 0.0f;
#pragma unroll
        for (int n = 0; n < keys / 8; ++n) {
            S[n][2 * r] = fast_exp2(S[n][2 * r] - m_used);
            S[n][2 * r + 1] = fast_exp2(S[n][2 * r + 1] - m_used);
            row_sum += S[n][2 * r] + S[n][2 * r + 1];
        }
        row_sum += __shfl_xor_sync(~0u, row_sum, 1);
        row_sum += __shfl_xor_sync(~0u, row_sum, 2);
        if (t == 0) store(&shared.row_sum[warp][g + 8 * r], row_sum);
    }

    // P V over this warp's keys: (16, d)
#pragma unroll
    for (int n = 0; n < d; n += 16) {
        float PV[2][4] = {};
#pragma unroll
        for (int k = 0; k < keys; k += 16) {
            std::uint32_t P[4], v[4];
            pack_operand<T>(P, S[k / 8], S[k / 8 + 1]);
            ldmatrix_transposed(v, &shared.V[keys * warp + k + a_row(lane)][n + a_column(lane)]);
            mma<T>(PV[0], P, v[0], v[1]);
            mma<T>(PV[1], P, v[2], v[3]);
        }
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            float* pair = &shared.PV[warp][g + 8 * row_of(2 * c)][n + column_of(2 * c) + 2 * t];
            store_pair(pair, PV[c / 2][c % 2 * 2], PV[c / 2][c % 2 * 2 + 1]);
        }
    }
    __syncthreads();  // all sums and products are complete; the maxima, Q, K and V have been read

    // l = alpha l + rowsum(P) and O = (alpha l_old O + P V) / l, over the keys of all warps
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float alpha_l = alpha[r] * l[r];
        l[r] = alpha_l;
#pragma unroll
        for (int w = 0; w < 4; ++w) l[r] += load(&shared.row_sum[w][g + 8 * r]);
        const float inverse_l = l[r] == 0.0f ? 0.0f : divide(1.0f, l[r]);
#pragma unroll
        for (int n = 0; n < d / 32; ++n) {
            O[n][2 * r] *= alpha_l;
            O[n][2 * r + 1] *= alpha_l;
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                const float* pair = &shared.PV[w][g + 8 * r][d / 4 * warp + 8 * n + 2 * t];
                const float2 PV = load_pair(pair);
                O[n][2 * r] += PV.x;
                O[n][2 * r + 1] += PV.y;
            }
            O[n][2 * r] *= inverse_l;
            O[n][2 * r + 1] *= inverse_l;
        }
    }
}

/// Writes O (rows g and g + 8 of a slice, this warp's columns) and L = m + log(l).
template <class T, int d>
__device__ void write_slice(const Problem& p, int b, int h, int first_row, const float (&O)[d / 32][4],
                            const float (&m)[2], const float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + g + 8 * r;
        if (row >= p.Nq) continue;
        T* O_row = matrix<T>(p.O, b, h) + row * p.O.row + d / 4 * warp + 2 * t;
#pragma unroll
        for (int n = 0; n < d / 32; ++n) {
            store_pair(O_row + 8 * n, O[n][2 * r], O[n][2 * r + 1]);
        }
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + row;
        if (warp == 0 && t == 0) store(L, (m[r] + log2f(l[r])) * ln_2);
    }
}

/// Reads what write_state kept of a slice. Workspace: O (B, H, Nq, d), m (B, H, Nq), l (B, H, Nq), in fp32.
template <int d>
__device__ void read_state(const Problem& p, int b, int h, int first_row, float (&O)[d / 32][4],
                           float (&m)[2], float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const std::int64_t rows = std::int64_t{p.B} * p.H * p.Nq;
    const float *O_kept = static_cast<const float*>(p.workspace), *m_kept = O_kept + rows * d,
                *l_kept = m_kept + rows;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (first_row + g + 8 * r >= p.Nq) continue;
        const std::int64_t row = (std::int64_t{b} * p.H + h) * p.Nq + first_row + g + 8 * r;
#pragma unroll
        for (int n = 0; n < d / 32; ++n) {
            const float* pair = O_kept + row * d + d / 4 * warp + 8 * n + 2 * t;
            const float2 o = load_pair(pair);
            O[n][2 * r] = o.x;
            O[n][2 * r + 1] = o.y;
        }
        m[r] = load(m_kept + row);
        l[r] = load(l_kept + row);
    }
}

/// Keeps a slice's O, m and l in global memory until the next key tile.
template <int d>
__device__ void write_state(const Problem& p, int b, int h, int first_row, const float (&O)[d / 32][4],
                            const float (&m)[2], const float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const std::int64_t rows = std::int64_t{p.B} * p.H * p.Nq;
    float *O_kept = static_cast<float*>(p.workspace), *m_kept = O_kept + rows * d, *l_kept = m_kept + rows;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (first_row + g + 8 * r >= p.Nq) continue;
        const std::int64_t row = (std::int64_t{b} * p.H + h) * p.Nq + first_row + g + 8 * r;
#pragma unroll
        for (int n = 0; n < d / 32; ++n) {
            float* pair = O_kept + row * d + d / 4 * warp + 8 * n + 2 * t;
            store_pair(pair, O[n][2 * r], O[n][2 * r + 1]);
        }
        if (warp == 0 && t == 0) {
            store(m_kept + row, m[r]);
            store(l_kept + row, l[r]);
        }
    }
}

template <class T, int d>
__global__ void __launch_bounds__(threads, resident_blocks) attention(const Problem p) {
    auto& shared = shared_memory<Shared<T, d>>();
    const int h = blockIdx.x, b = blockIdx.y, h_kv = h / (p.H / p.Hkv);
    const int Tr = ceil_div(p.Nq, Br), Tc = ceil_div(p.Nk, Bc);

    for (int j = 0; j < Tc; ++j) {
        load_tile<T, d>(shared.K, matrix<T>(p.K, b, h_kv), p.K.row, j * Bc, p.Nk);
        load_tile<T, d>(shared.V, matrix<T>(p.V, b, h_kv), p.V.row, j * Bc, p.Nk);
        for (int i = 0; i < Tr; ++i) {
            load_tile<T, d>(shared.Q, matrix<T>(p.Q, b, h), p.Q.row, i * Br, p.Nq);
            copy_wait();
            __syncthreads();  // all copies of Q, K and V have landed
            const bool masked = p.causal || (j + 1) * Bc > p.Nk;
            note_tile(shared, b, h, i, j, masked);
#pragma unroll
            for (int slice = 0; slice < 4; ++slice) {
                if (i * Br + 16 * slice >= p.Nq) break;  // no rows
                float O[d / 32][4] = {}, m[2] = {-inf, -inf}, l[2] = {};
                if (j > 0) read_state<d>(p, b, h, i * Br + 16 * slice, O, m, l);
                attend<T, d>(shared, p, i, j, slice, masked, O, m, l);
                note_rows(i * Br + 16 * slice, m, l);
                if (j < Tc - 1) {
                    write_state<d>(p, b, h, i * Br + 16 * slice, O, m, l);
                } else {
                    write_slice<T, d>(p, b, h, i * Br + 16 * slice, O, m, l);
                }
            }
        }
    }
}

/// O (B, H, Nq, d), m and l (B, H, Nq)
std::size_t workspace_bytes(const Shape& s, int) {
    return std::size_t(s.B) * s.H * s.Nq * (s.d + 2) * sizeof(float);
}

template <class T, int d>
void forward(const Problem& p) {
    launch(attention<T, d>, dim3(p.H, p.B), threads, sizeof(Shared<T, d>), p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(forward, Dims, .number = 93, .name = "paper_tiles", .parent = 1,
             .tilings = LADDER_TILES((Br, Bc), {64, 256}, {64, 256}),
             .change = "01 with 256 keys in a tile, near the paper's and the released kernel's",
             .shows_in = "narrow", .workspace_bytes = workspace_bytes);

}  // namespace
