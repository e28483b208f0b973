// Stage 23: lazy rescale. The row maximum m may lag behind by a factor of 2^8 before O and l are rescaled to
// a new one, and the four lanes of a row add up their parts of l at the end. Most tiles then need no shuffle
// and no rescale, and a score becomes an exponent in one multiply-add. FlashAttention-4 skips rescales by
// such a threshold (github.com/Dao-AILab/flash-attention).

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr float threshold = 8.0f;  // P stays below 2^8, which fp16 holds

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
    T Q[Tile<d>::Br][d];
    T K[Tile<d>::Bc][d];
    T V[Tile<d>::Bc][d];
};

/// Where a tile keeps the 16 bytes at this column of a row. Eight rows keep them at eight positions of a line
/// of 128 bytes, so ldmatrix has no bank conflicts.
template <class T, int rows, int d>
__device__ T* at(T (&tile)[rows][d], int row, int column) {
    return &tile[row][column ^ row % 8 * 8];
}

/// Starts copying rows first, first + 1 ... of X (N, d) into a tile. Rows from N on become 0.
template <class T, int d, int rows>
__device__ void load_tile(T (&tile)[rows][d], const T* X, std::int64_t stride, int first, int N) {
    const int row = threadIdx.x / (d / 8), column = threadIdx.x % (d / 8) * 8;
    const T* source = X + (first + row) * stride + column;
#pragma unroll
    for (int n = 0; n < rows; n += Tile<d>::threads * 8 / d) {
        copy_async(at(tile, row + n, column), source + n * stride, first + row + n < N);
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
            ldmatrix(q[a], at(shared.Q, 16 * (slices * warp + a) + a_row(lane), k + a_column(lane)));
        }
#pragma unroll
        for (int n = 0; n < Bc; n += 16) {
            ldmatrix(kt, at(shared.K, n + b_row(lane), k + b_column(lane)));
            for (int a = 0; a < slices; ++a) {
                mma<T>(S[a][n / 8], q[a], kt[0], kt[1]);
                mma<T>(S[a][n / 8 + 1], q[a], kt[2], kt[3]);
            }
        }
    }
}

/// Turns the scores S (16, Bc) of a slice with key tile j into exponents S scale - m, with -inf where masked.
/// Lanes hold rows g and g + 8.
template <int d, int Bc = Tile<d>::Bc>
__device__ void shift(const Problem& p, int first_row, int j, bool masked, float (&S)[Bc / 8][4],
                      const float (&m)[2]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float scale = p.scale * log2_e;  // exponents and m are in base 2
#pragma unroll
    for (int c = 0; c < Bc / 2; ++c) S[c / 4][c % 4] = S[c / 4][c % 4] * scale - m[row_of(c)];
    if (masked) {
        const int row = first_row + g, key = j * Bc + 2 * t;
#pragma unroll
        for (int c = 0; c < Bc / 2; ++c) {
            if (!visible(p, row + 8 * row_of(c), key + column_of(c))) S[c / 4][c % 4] = -inf;
        }
    }
}

/// The largest exponent of row g + 8 r in this lane.
template <int d, int Bc = Tile<d>::Bc>
__device__ float lane_max(const float (&S)[Bc / 8][4], int r) {
    float row_max = -inf;
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) row_max = fmaxf(row_max, fmaxf(S[n][2 * r], S[n][2 * r + 1]));
    return row_max;
}

/// Raises m to the maximum of its row, and rescales the slice to it. The first tile sets m, even to less than
/// 0.
template <int d, int Bc = Tile<d>::Bc>
__device__ void rescale(bool first, float (&S)[Bc / 8][4], float (&O)[d / 8][4], float (&m)[2],
                        float (&l)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float rise = lane_max<d>(S, r);
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 1));
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 2));
        rise = rise == -inf ? 0.0f : first ? rise : fmaxf(rise, 0.0f);  // no key so far: m stays 0
        const float alpha = first ? 0.0f : fast_exp2(-rise);
        m[r] += rise;
        l[r] *= alpha;
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
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

/// Folds key tile j, given its S, into this warp's slices (algorithm 1, lines 9 and 10).
/// A warp takes all keys of the tile, and the O (16, d) of its slices are its own.
template <class T, int d, int slices = Tile<d>::slices, int Bc = Tile<d>::Bc>
__device__ void fold(Shared<T, d>& shared, const Problem& p, int first_row, int j, bool masked,
                     float (&S)[slices][Bc / 8][4], float (&O)[slices][d / 8][4], float (&m)[slices][2],
                     float (&l)[slices][2]) {
    const int lane = threadIdx.x % 32;
    bool above = j == 0;  // is an exponent of this lane's above the threshold?
#pragma unroll
    for (int a = 0; a < slices; ++a) {
        shift<d>(p, first_row + 16 * a, j, masked, S[a], m[a]);
        above |= (lane_max<d>(S[a], 0) > threshold) | (lane_max<d>(S[a], 1) > threshold);
    }
    if (__any_sync(~0u, above)) {
#pragma unroll
        for (int a = 0; a < slices; ++a) rescale<d>(j == 0, S[a], O[a], m[a], l[a]);
    }

    // P = exp(S - m), l += rowsum(P) over this lane's columns, O += P V
#pragma unroll
    for (int k = 0; k < Bc / 8; k += 2) {
        std::uint32_t P[slices][4], v[4];
#pragma unroll
        for (int c = 0; c < 4 * slices; ++c) {
            const float* exponent = &S[c / 4][k + c % 4 / 2][c % 2 * 2];
            const float P_0 = fast_exp2(exponent[0]), P_1 = fast_exp2(exponent[1]);
            l[c / 4][c % 2] += P_0 + P_1;
            P[c / 4][c % 4] = pack<T>(P_0, P_1);
        }
#pragma unroll
        for (int n = 0; n < d; n += 16) {
            ldmatrix_transposed(v, at(shared.V, 8 * k + a_row(lane), n + a_column(lane)));
            for (int a = 0; a < slices; ++a) {
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
            store_pair(O_row + 8 * n, O[n][2 * r] * inverse_l, O[n][2 * r + 1] * inverse_l);
        }
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + row;
        if (t == 0) store(L, (m[r] + log2f(l)) * ln_2);
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
    float O[slices][d / 8][4] = {}, m[slices][2] = {}, l[slices][2] = {};
    if (Tc > 0) {
        load_tile<T, d>(shared.Q, matrix<T>(p.Q, b, h), p.Q.row, i * Br, p.Nq);
        load_tile<T, d>(shared.K, matrix<T>(p.K, b, h_kv), p.K.row, 0, p.Nk);
    }
    for (int j = 0; j < Tc; ++j) {
        copy_wait();
        __syncthreads();  // all copies of Q and K have landed; the previous V has been read
        load_tile<T, d>(shared.V, matrix<T>(p.V, b, h_kv), p.V.row, j * Bc, p.Nk);
        const bool masked = (j + 1) * Bc > min(p.Nk, reach + 1);
        note_tile(shared, b, h, i, j, masked);
        float S[slices][Bc / 8][4] = {};
        if (first_row < p.Nq) score<T, d>(shared, S);
        copy_wait();
        __syncthreads();  // V has arrived; K has been read
        if (j + 1 < Tc) load_tile<T, d>(shared.K, matrix<T>(p.K, b, h_kv), p.K.row, (j + 1) * Bc, p.Nk);
        if (first_row < p.Nq) fold<T, d>(shared, p, first_row, j, masked, S, O, m, l);
        note_lane_sums(first_row, m, l);
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
LADDER_STAGE(
    forward, Dims, .number = 23, .name = "lazy_rescale", .parent = 22,
    .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc), {128, 128}, {128, 64}, {64, 64}),
    .change =
        "m may lag behind by 8 in base 2: no shuffle, no rescale, one multiply-add per score in most tiles",
    .shows_in = "train", .rounds_large_scores = true);

}  // namespace
