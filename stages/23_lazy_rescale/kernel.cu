// Stage 14: lazy rescale. The row maximum m may lag behind by a factor of 2^8 before O and l are rescaled to
// a new one. Most tiles then need no shuffle and no rescale, and a score becomes an exponent in one
// multiply-add. FlashAttention-4 skips rescales by such a threshold (github.com/Dao-AILab/flash-attention).

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int Bc = 64;             // keys of a tile
constexpr int threads = 128;       // 4 warps
constexpr float threshold = 8.0f;  // P stays below 2^8, which fp16 holds
constexpr int pad = 8;             // rows start one 16-byte bank apart: ldmatrix has no conflicts

// Slices of 16 query rows per warp: two, unless O (16, d) of two is more than its registers hold.
template <int d>
constexpr int slices = d <= 128 ? 2 : 1;

template <int d>
constexpr int Br = 64 * slices<d>;  // query rows of a tile

template <class T, int d>
struct Shared {
    T Q[Br<d>][d + pad];
    T K[Bc][d + pad];
    T V[Bc][d + pad];
};

/// Starts copying rows first, first + 1 ... of X (N, d) into a tile. Rows from N on become 0.
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

/// Turns the scores S (16, 64) of a slice with key tile j into exponents S scale - m, with -inf where masked.
/// Lanes hold rows g and g + 8.
__device__ void shift(const Problem& p, int first_row, int j, bool masked, float (&S)[8][4],
                      const float (&m)[2]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float scale = p.scale * log2_e;  // exponents and m count in base 2
#pragma unroll
    for (int c = 0; c < 32; ++c) S[c / 4][c % 4] = S[c / 4][c % 4] * scale - m[c / 2 % 2];
    if (masked) {
        const int row = first_row + g, key = j * Bc + 2 * t;
#pragma unroll
        for (int c = 0; c < 32; ++c) {
            if (!visible(p, row + c / 2 % 2 * 8, key + c / 4 * 8 + c % 2)) S[c / 4][c % 4] = -inf;
        }
    }
}

/// The largest exponent of row g + 8 r in this lane.
__device__ float lane_max(const float (&S)[8][4], int r) {
    float row_max = -inf;
#pragma unroll
    for (int n = 0; n < 8; ++n) row_max = fmaxf(row_max, fmaxf(S[n][2 * r], S[n][2 * r + 1]));
    return row_max;
}

/// Raises m to the maximum of its row, and rescales the slice to it. The first tile sets m, even to less than
/// 0.
template <int d>
__device__ void rescale(bool first, float (&S)[8][4], float (&O)[d / 8][4], float (&m)[2], float (&l)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float rise = lane_max(S, r);
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 1));
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 2));
        rise = rise == -inf ? 0.0f : first ? rise : fmaxf(rise, 0.0f);  // no key so far: m stays 0
        const float alpha = first ? 0.0f : fast_exp2(-rise);
        m[r] += rise;
        l[r] *= alpha;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            S[n][2 * r] -= rise;
            S[n][2 * r + 1] -= rise;
        }
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            O[n][2 * r] *= alpha;
            O[n][2 * r + 1] *= alpha;
        }
    }
}

/// S = Q K^T, (16, 64) for each of this warp's slices, with the key tile that is there (algorithm 1, line 8).
template <class T, int d>
__device__ void score(Shared<T, d>& shared, float (&S)[slices<d>][8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < d; k += 16) {
        std::uint32_t q[slices<d>][4], kt[4];
        for (int a = 0; a < slices<d>; ++a) {
            ldmatrix(q[a], &shared.Q[16 * (slices<d> * warp + a) + lane % 16][k + lane / 16 * 8]);
        }
#pragma unroll
        for (int n = 0; n < Bc; n += 16) {
            ldmatrix(kt, &shared.K[n + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
            for (int a = 0; a < slices<d>; ++a) {
                mma<T>(S[a][n / 8], q[a], kt[0], kt[1]);
                mma<T>(S[a][n / 8 + 1], q[a], kt[2], kt[3]);
            }
        }
    }
}

/// Folds key tile j, given its S, into this warp's slices (algorithm 1, lines 9 and 10).
/// A warp takes all 64 keys, and the O (16, d) of its slices are its own.
template <class T, int d>
__device__ void fold(Shared<T, d>& shared, const Problem& p, int first_row, int j, bool masked,
                     float (&S)[slices<d>][8][4], float (&O)[slices<d>][d / 8][4], float (&m)[slices<d>][2],
                     float (&l)[slices<d>][2]) {
    const int lane = threadIdx.x % 32;
    bool above = j == 0;  // is an exponent of this lane's above the threshold?
#pragma unroll
    for (int a = 0; a < slices<d>; ++a) {
        shift(p, first_row + 16 * a, j, masked, S[a], m[a]);
        above |= (lane_max(S[a], 0) > threshold) | (lane_max(S[a], 1) > threshold);
    }
    if (__any_sync(~0u, above)) {
#pragma unroll
        for (int a = 0; a < slices<d>; ++a) rescale<d>(j == 0, S[a], O[a], m[a], l[a]);
    }

    // P = exp(S - m), l += rowsum(P) over this lane's columns, O += P V
#pragma unroll
    for (int k = 0; k < 8; k += 2) {
        std::uint32_t P[slices<d>][4], v[4];
#pragma unroll
        for (int c = 0; c < 4 * slices<d>; ++c) {
            const float* exponent = &S[c / 4][k + c % 4 / 2][c % 2 * 2];
            const float P_0 = fast_exp2(exponent[0]), P_1 = fast_exp2(exponent[1]);
            l[c / 4][c % 2] += P_0 + P_1;
            P[c / 4][c % 4] = pack<T>(P_0, P_1);
        }
#pragma unroll
        for (int n = 0; n < d; n += 16) {
            ldmatrix_transposed(v, &shared.V[8 * k + lane % 16][n + lane / 16 * 8]);
            for (int a = 0; a < slices<d>; ++a) {
                mma<T>(O[a][n / 8], P[a], v[0], v[1]);
                mma<T>(O[a][n / 8 + 1], P[a], v[2], v[3]);
            }
        }
    }
}

/// Writes O / l (rows g and g + 8 of a slice) and L = m + log(l), where l is the sum over the four lanes of a
/// row.
template <class T, int d>
__device__ void write_rows(const Problem& p, int b, int h, int first_row, const float (&O)[d / 8][4],
                           const float (&m)[2], const float (&lane_l)[2]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float l = lane_l[r];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        const int row = first_row + g + 8 * r;
        if (row >= p.Nq) continue;
        const float inverse_l = l == 0.0f ? 0.0f : divide(1.0f, l);
        T* O_row = matrix<T>(p.O, b, h) + row * p.O.row + 2 * t;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            const std::uint32_t pair = pack<T>(O[n][2 * r] * inverse_l, O[n][2 * r + 1] * inverse_l);
            store(reinterpret_cast<std::uint32_t*>(O_row + 8 * n), pair);
        }
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + row;
        if (t == 0) store(L, (m[r] + log2f(l)) * ln_2);
    }
}

template <class T, int d>
__global__ void __launch_bounds__(threads, 2) attention(const Problem p) {
    auto& shared = shared_memory<Shared<T, d>>();
    const int i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, h_kv = h / (p.H / p.Hkv);
    const int diagonal = p.causal ? i * Br<d> + p.Nk - p.Nq : p.Nk;  // the last key that row i * Br sees
    const int Tc = ceil_div(min(p.Nk, diagonal + Br<d>), Bc);        // what the tile's last row sees

    const int first_row = i * Br<d> + 16 * slices<d> * (threadIdx.x / 32);
    float O[slices<d>][d / 8][4] = {}, m[slices<d>][2] = {}, l[slices<d>][2] = {};
    if (Tc > 0) {
        load_tile<T, d>(shared.Q, matrix<T>(p.Q, b, h), p.Q.row, i * Br<d>, p.Nq);
        load_tile<T, d>(shared.K, matrix<T>(p.K, b, h_kv), p.K.row, 0, p.Nk);
    }
    for (int j = 0; j < Tc; ++j) {
        copy_wait();
        __syncthreads();  // Q and K are there, whoever copied them; the previous V has been read
        load_tile<T, d>(shared.V, matrix<T>(p.V, b, h_kv), p.V.row, j * Bc, p.Nk);
        const bool masked = (j + 1) * Bc > min(p.Nk, diagonal + 1);
        note_tile(shared, b, h, i, j, masked);
        float S[slices<d>][8][4] = {};
        if (first_row < p.Nq) score<T, d>(shared, S);
        copy_wait();
        __syncthreads();  // V is there; K has been read
        if (j + 1 < Tc) load_tile<T, d>(shared.K, matrix<T>(p.K, b, h_kv), p.K.row, (j + 1) * Bc, p.Nk);
        if (first_row < p.Nq) fold<T, d>(shared, p, first_row, j, masked, S, O, m, l);
        note_lane_sums(first_row, m, l);
    }
#pragma unroll
    for (int a = 0; a < slices<d>; ++a) write_rows<T, d>(p, b, h, first_row + 16 * a, O[a], m[a], l[a]);
}

template <class T, int d>
void forward(const Problem& p) {
    launch(attention<T, d>, dim3(ceil_div(p.Nq, Br<d>), p.H, p.B), threads, sizeof(Shared<T, d>), p);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(
    forward, Dims, .number = 23, .name = "lazy_rescale", .parent = 22,
    .change = "m may lag behind by 2^8: no shuffle, no rescale, one multiply-add per score in most tiles",
    .shows_in = "train");

}  // namespace
