// Stage 64: dropout. Each element of P has a random byte, which Philox computes from the seed and the
// element's position. No mask is stored. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC
// 2011).

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int Br = 64, Bc = 64;  // query rows and keys of a tile
constexpr int threads = 128;     // 4 warps
constexpr int pad = 8;           // rows start four 4-byte banks apart: ldmatrix has no conflicts

template <class T, int d>
struct Shared {
    T Q[Br][d + pad];
    T K[Bc][d + pad];
    T V[Bc][d + pad];
};

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

struct Words {
    std::uint32_t of[4];
};

/// Philox4x32-10: four random words of a counter and a key.
__device__ Words philox(Words counter, std::uint64_t key) {
    auto x = std::uint32_t(key), y = std::uint32_t(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t even = std::uint64_t{0xD2511F53} * counter.of[0],
                            odd = std::uint64_t{0xCD9E8D57} * counter.of[2];
        counter = {{std::uint32_t(odd >> 32) ^ counter.of[1] ^ x, std::uint32_t(odd),
                    std::uint32_t(even >> 32) ^ counter.of[3] ^ y, std::uint32_t(even)}};
        x += 0x9E3779B9;  // the next round's key
        y += 0xBB67AE85;
    }
    return counter;
}

/// S = Q K^T, (16, Bc): this warp's rows and all keys of the tile (algorithm 1, line 8).
template <class T, int d>
__device__ void score(Shared<T, d>& shared, float (&S)[Bc / 8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
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
}

/// Turns the scores S (16, Bc) with key tile j into P, and rescales O to the new m (algorithm 1, line 9).
/// Lanes hold rows g and g + 8.
template <int d>
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

/// Sets the dropped elements of P (16, Bc) with key tile j to 0. A lane's 16 elements in 32 keys share one
/// counter, that of row g and key 2 t, and use one byte each.
__device__ void drop(const Problem& p, int b, int h, int first_row, int j, float (&P)[Bc / 8][4]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const std::uint32_t kept = p.dropout.kept << 24;  // compared with a byte that is shifted to the top
#pragma unroll
    for (int n = 0; n < Bc / 8; n += 4) {
        const Words random = philox({{std::uint32_t(j * Bc + 8 * n + 2 * t), std::uint32_t(first_row + g),
                                      std::uint32_t(h), std::uint32_t(b)}},
                                    p.dropout.seed);
#pragma unroll
        for (int c = 0; c < 16; ++c) {
            if (random.of[c / 4] << 8 * (3 - c % 4) >= kept) P[n + c / 4][c % 4] = 0.0f;
        }
    }
}

/// Folds key tile j, given its S, into this warp's 16 rows (algorithm 1, lines 9 and 10).
template <class T, int d>
__device__ void fold(Shared<T, d>& shared, const Problem& p, int b, int h, int first_row, int j, bool masked,
                     float (&S)[Bc / 8][4], float (&O)[d / 8][4], float (&m)[2], float (&l)[2]) {
    const int lane = threadIdx.x % 32;
    softmax<d>(p, first_row, j, masked, S, O, m, l);
    if (p.dropout.kept < 256) drop(p, b, h, first_row, j, S);  // l has the sum of all
#pragma unroll
    for (int k = 0; k < Bc / 8; k += 2) {
        std::uint32_t P[4];
        pack_operand<T>(P, S[k], S[k + 1]);
#pragma unroll
        for (int n = 0; n < d; n += 16) {
            std::uint32_t v[4];
            ldmatrix_transposed(v, &shared.V[8 * k + a_row(lane)][n + a_column(lane)]);
            mma<T>(O[n / 8], P, v[0], v[1]);
            mma<T>(O[n / 8 + 1], P, v[2], v[3]);
        }
    }
}

/// Writes O / (l kept / 256) (rows g and g + 8 of this warp) and L = m + log(l).
template <class T, int d>
__device__ void write_rows(const Problem& p, int b, int h, int first_row, const float (&O)[d / 8][4],
                           const float (&m)[2], const float (&l)[2]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + g + 8 * r;
        if (row >= p.Nq) continue;
        const float inverse_l = l[r] == 0.0f ? 0.0f : divide(256.0f, l[r] * p.dropout.kept);
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
__global__ void __launch_bounds__(threads, resident_blocks) attention(const Problem p) {
    auto& shared = shared_memory<Shared<T, d>>();
    const int i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, h_kv = h / (p.H / p.Hkv);
    const int reach = p.causal ? i * Br + p.Nk - p.Nq : p.Nk;  // row i * Br sees no key beyond it
    const int Tc = ceil_div(min(p.Nk, reach + Br), Bc);        // what the tile's last row sees

    const int first_row = i * Br + 16 * (threadIdx.x / 32);
    float O[d / 8][4] = {}, m[2] = {-inf, -inf}, l[2] = {};
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
        float S[Bc / 8][4] = {};
        score<T, d>(shared, S);
        fold<T, d>(shared, p, b, h, first_row, j, masked, S, O, m, l);
        note_rows(first_row, m, l);
    }
    write_rows<T, d>(p, b, h, first_row, O, m, l);
}

template <class T, int d>
void forward(const Problem& p) {
    launch(attention<T, d>, dim3(ceil_div(p.Nq, Br), p.H, p.B), threads, sizeof(Shared<T, d>), p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(forward, Dims, .number = 64, .name = "dropout", .parent = 5,
             .tilings = LADDER_TILES((Br, Bc), {64, 64}, {64, 64}),
             .change = "an element of P is dropped by a random byte that its position gives; no mask is stored",
             .shows_in = "dropout", .takes = {Feature::dropout});

}  // namespace
