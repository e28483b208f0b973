// Stage 20: wide warps. A warp owns 32 query rows instead of 16, so that each fragment of K and V that it
// reads serves twice as many mma. Tiles depend on d from here on, and d = 256 is among them.

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int pad = 8;  // rows start four 4-byte banks apart: ldmatrix has no conflicts

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int slices = d <= 128 ? 2 : 1;  // of 16 rows per warp: O of more fills its registers
    static constexpr int warps = 4;
    static constexpr int threads = 32 * warps;
    static constexpr int resident = 8 / warps;  // blocks; a multiprocessor has the registers of eight warps
    static constexpr int Br = 16 * slices * warps;
    static constexpr int Bc = d <= 64 ? 128 : 64;
};

template <class T, int d>
struct Shared {
    T Q[Tile<d>::Br][d + pad];
    T K[Tile<d>::Bc][d + pad];
    T V[Tile<d>::Bc][d + pad];
};

/// Starts copying rows first, first + 1 ... of X (N, d) into a tile. Rows from N on become 0.
template <class T, int d, int rows>
__device__ void load_tile(T (&tile)[rows][d + pad], const T* X, std::int64_t stride, int first, int N) {
    const int row = threadIdx.x / (d / 8), column = threadIdx.x % (d / 8) * 8;
    const T* source = X + (first + row) * stride + column;
#pragma unroll
    for (int n = 0; n < rows; n += Tile<d>::threads * 8 / d) {
        copy_async(&tile[row + n][column], source + n * stride, first + row + n < N);
    }
}

__device__ bool visible(const Problem& p, int row, int key) {
    return key < p.Nk && (!p.causal || key <= row + p.Nk - p.Nq);
}

/// S = Q K^T, (16, Bc) for each of this warp's slices, with the key tile in shared memory (algorithm 1, line
/// 8).
template <class T, int d, int slices = Tile<d>::slices, int Bc = Tile<d>::Bc>
__device__ void score(Shared<T, d>& shared, float (&S)[slices][Bc / 8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < d; k += 16) {
        std::uint32_t q[slices][4], kt[4];
        for (int a = 0; a < slices; ++a) {
            ldmatrix(q[a], &shared.Q[16 * (slices * warp + a) + a_row(lane)][k + a_column(lane)]);
        }
#pragma unroll
        for (int n = 0; n < Bc; n += 16) {
            ldmatrix(kt, &shared.K[n + b_row(lane)][k + b_column(lane)]);
            for (int a = 0; a < slices; ++a) {
                mma<T>(S[a][n / 8], q[a], kt[0], kt[1]);
                mma<T>(S[a][n / 8 + 1], q[a], kt[2], kt[3]);
            }
        }
    }
}

/// Turns the scores S (16, Bc) of a slice with key tile j into P, and rescales its O to the new m.
/// Lanes hold rows g and g + 8.
template <int d, int Bc = Tile<d>::Bc>
__device__ void softmax(const Problem& p, int first_row, int j, bool masked, float (&S)[Bc / 8][4],
                        float (&O)[d / 8][4], float (&m)[2], float (&l)[2]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float scale = p.scale * log2_e;  // scores and m are in base 2
#pragma unroll
    for (int c = 0; c < Bc / 2; ++c) S[c / 4][c % 4] *= scale;
    if (masked) {
        const int row = first_row + g, key = j * Bc + 2 * t;
#pragma unroll
        for (int c = 0; c < Bc / 2; ++c) {
            if (!visible(p, row + 8 * row_of(c), key + column_of(c))) S[c / 4][c % 4] = -inf;
        }
    }

    // m = max(m, rowmax(S))
    float alpha[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float row_max = -inf;
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) row_max = fmaxf(row_max, fmaxf(S[n][2 * r], S[n][2 * r + 1]));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 1));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 2));
        const float m_old = m[r];
        m[r] = fmaxf(m[r], row_max);
        const float m_used = m[r] == -inf ? 0.0f : m[r];  // no key yet: exp(-inf - 0) = 0, not NaN
        alpha[r] = fast_exp2(m_old - m_used);

        // P = exp(S - m), in place of S
        float row_sum = 0.0f;
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
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

/// Folds key tile j, given its S, into this warp's slices (algorithm 1, lines 9 and 10).
/// A warp takes all keys of the tile, and the O (16, d) of its slices are its own.
template <class T, int d, int slices = Tile<d>::slices, int Bc = Tile<d>::Bc>
__device__ void fold(Shared<T, d>& shared, const Problem& p, int first_row, int j, bool masked,
                     float (&S)[slices][Bc / 8][4], float (&O)[slices][d / 8][4], float (&m)[slices][2],
                     float (&l)[slices][2]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int a = 0; a < slices; ++a) {
        softmax<d>(p, first_row + 16 * a, j, masked, S[a], O[a], m[a], l[a]);
    }
#pragma unroll
    for (int k = 0; k < Bc / 8; k += 2) {
        std::uint32_t P[slices][4], v[4];
        for (int a = 0; a < slices; ++a) pack_operand<T>(P[a], S[a][k], S[a][k + 1]);
#pragma unroll
        for (int n = 0; n < d; n += 16) {
            ldmatrix_transposed(v, &shared.V[8 * k + a_row(lane)][n + a_column(lane)]);
            for (int a = 0; a < slices; ++a) {
                mma<T>(O[a][n / 8], P[a], v[0], v[1]);
                mma<T>(O[a][n / 8 + 1], P[a], v[2], v[3]);
            }
        }
    }
}

/// Writes O / l (rows g and g + 8 of a slice) and L = m + log(l).
template <class T, int d>
__device__ void write_rows(const Problem& p, int b, int h, int first_row, const float (&O)[d / 8][4],
                           const float (&m)[2], const float (&l)[2]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + g + 8 * r;
        if (row >= p.Nq) continue;
        const float inverse_l = l[r] == 0.0f ? 0.0f : divide(1.0f, l[r]);
        T* O_row = matrix<T>(p.O, b, h) + row * p.O.row + 2 * t;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            store_pair(O_row + 8 * n, O[n][2 * r] * inverse_l, O[n][2 * r + 1] * inverse_l);
        }
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + row;
        if (t == 0) store(L, (m[r] + log2f(l[r])) * ln_2);
    }
}

template <class T, int d>
__global__ void __launch_bounds__(Tile<d>::threads, Tile<d>::resident) attention(const Problem p) {
    constexpr int slices = Tile<d>::slices, Br = Tile<d>::Br, Bc = Tile<d>::Bc;
    auto& shared = shared_memory<Shared<T, d>>();
    const int i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, h_kv = h / (p.H / p.Hkv);
    const int reach = p.causal ? i * Br + p.Nk - p.Nq : p.Nk;  // row i * Br sees no key beyond it
    const int Tc = ceil_div(min(p.Nk, reach + Br), Bc);        // what the tile's last row sees

    const int first_row = i * Br + 16 * slices * (threadIdx.x / 32);
    float O[slices][d / 8][4] = {}, m[slices][2], l[slices][2] = {};
    for (int a = 0; a < slices; ++a) m[a][0] = m[a][1] = -inf;
    load_tile<T, d>(shared.Q, matrix<T>(p.Q, b, h), p.Q.row, i * Br, p.Nq);
    for (int j = 0; j < Tc; ++j) {
        __syncthreads();  // the previous K and V have been read
        load_tile<T, d>(shared.K, matrix<T>(p.K, b, h_kv), p.K.row, j * Bc, p.Nk);
        load_tile<T, d>(shared.V, matrix<T>(p.V, b, h_kv), p.V.row, j * Bc, p.Nk);
        copy_wait();
        __syncthreads();  // all copies of Q, K and V have landed
        const bool masked = (j + 1) * Bc > min(p.Nk, reach + 1);
        note_tile(shared, b, h, i, j, masked);
        if (first_row >= p.Nq) continue;  // no rows
        float S[slices][Bc / 8][4] = {};
        score<T, d>(shared, S);
        fold<T, d>(shared, p, first_row, j, masked, S, O, m, l);
        note_rows(first_row, m, l);
    }
#pragma unroll
    for (int a = 0; a < slices; ++a) write_rows<T, d>(p, b, h, first_row + 16 * a, O[a], m[a], l[a]);
}

template <class T, int d>
void forward(const Problem& p) {
    const dim3 grid(ceil_div(p.Nq, Tile<d>::Br), p.H, p.B);
    launch(attention<T, d>, grid, Tile<d>::threads, sizeof(Shared<T, d>), p);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 20, .name = "wide_warps", .parent = 5,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc), {128, 128}, {128, 64}, {64, 64}),
             .change = "a warp owns 32 query rows, so that what it reads of K and V serves twice the mma",
             .shows_in = "train");

}  // namespace
