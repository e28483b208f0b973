// Stage 07: scalar. FlashAttention-2 (arXiv 2307.08691), algorithm 1, line by line: a block for each query
// tile Q_i, one thread for each of its rows r, and fp32 arithmetic on single numbers. i and j count tiles; r
// is a row of Q_i, c a key of K_j, and x a column of Q, K, V and O. Line numbers are those of the paper.

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int Br = 64, Bc = 32;  // query rows and keys of a tile; a block has Br threads

/// The block's part of on-chip SRAM. S, O, m and l of a row are in the registers of its thread.
template <class T, int d>
struct Shared {
    T Q[Br][d + 2];        // each thread reads a row of its own: these start in different banks
    T K[Bc][d], V[Bc][d];  // all threads read the same row
    float P[Bc][Br];       // transposed: neighbouring threads, neighbouring banks
};

/// Copies rows first, first + 1, ... of X (N, d) into a tile; rows from N on become 0. A warp copies a row at
/// a time, and its lanes neighbouring pairs of numbers.
template <int d, class T, int rows, int width>
__device__ void load_tile(T (&tile)[rows][width], const T* X, std::int64_t stride, int first, int N) {
    for (int row = threadIdx.x / 32; row < rows; row += Br / 32) {
        for (int x = threadIdx.x % 32 * 2; x < d; x += 64) {
            const float2 pair = first + row < N ? load_pair(X + (first + row) * stride + x) : float2{0, 0};
            store_pair(&tile[row][x], pair.x, pair.y);
        }
    }
}

template <class T, int d>
__global__ void __launch_bounds__(Br) attention(const Problem p) {
    auto& shared = shared_memory<Shared<T, d>>();
    auto& [Q, K, V, P] = shared;
    const int i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, h_kv = h / (p.H / p.Hkv);  // line 3
    const int r = threadIdx.x, row = i * Br + r, Tc = ceil_div(p.Nk, Bc);

    // Line 4: load Q_i from HBM to on-chip SRAM
    load_tile<d>(Q, matrix<T>(p.Q, b, h), p.Q.row, i * Br, p.Nq);

    // Line 5: O[r][x] = 0, l[r] = 0, m[r] = -inf
    float O[d] = {}, l = 0.0f, m = -inf;

    for (int j = 0; j < Tc; ++j) {  // line 6
        // Line 7: load K_j and V_j from HBM to on-chip SRAM
        __syncthreads();  // all threads have read the previous K_j and V_j
        load_tile<d>(K, matrix<T>(p.K, b, h_kv), p.K.row, j * Bc, p.Nk);
        load_tile<d>(V, matrix<T>(p.V, b, h_kv), p.V.row, j * Bc, p.Nk);
        __syncthreads();  // Q_i, K_j and V_j are complete, whichever thread wrote them
        note_tile(shared, b, h, i, j, true);
        if (row >= p.Nq) continue;  // no row

        // Line 8: S[r][c] = scale * sum over x of Q[r][x] K[c][x]
        float S[Bc] = {};
        for (int x = 0; x < d; x += 2) {
            const float2 q = load_pair(&Q[r][x]);
            for (int c = 0; c < Bc; ++c) {
                const float2 k = load_pair(&K[c][x]);
                S[c] += q.x * k.x;
                S[c] += q.y * k.y;
            }
        }
        // S[r][c] = -inf where key j Bc + c does not exist, or the causal mask hides it from the row
        const int seen = (p.causal ? row + p.Nk - p.Nq + 1 : p.Nk) - j * Bc;
        for (int c = 0; c < Bc; ++c) S[c] = c < seen ? S[c] * p.scale : -inf;

        // Line 9: m'[r] = max(m[r], max over c of S[r][c])
        const float m_old = m;
        for (int c = 0; c < Bc; ++c) m = fmaxf(m, S[c]);
        const float m_used = m == -inf ? 0.0f : m;  // no key yet: exp(-inf - 0) = 0, not NaN

        // Line 9: P[r][c] = exp(S[r][c] - m'[r]), l'[r] = alpha l[r] + sum over c of P[r][c]
        // with alpha = exp(m[r] - m'[r])
        const float alpha = fast_exp2((m_old - m_used) * log2_e);
        l *= alpha;
        for (int c = 0; c < Bc; ++c) {
            S[c] = fast_exp2((S[c] - m_used) * log2_e);
            store(&P[c][r], S[c]);
            l += S[c];
        }

        // Line 10: O'[r][x] = alpha O[r][x] + sum over c of P[r][c] V[c][x]
        for (int x = 0; x < d; ++x) O[x] *= alpha;
        for (int c = 0; c < Bc; ++c) {
            const float P_rc = load(&P[c][r]);
            for (int x = 0; x < d; x += 2) {
                const float2 v = load_pair(&V[c][x]);
                O[x] += P_rc * v.x;
                O[x + 1] += P_rc * v.y;
            }
        }
    }
    if (row >= p.Nq) return;

    // Lines 12 and 14: O[r][x] = O[r][x] / l[r], to HBM
    T* O_row = matrix<T>(p.O, b, h) + row * p.O.row;
    const float inverse_l = l == 0.0f ? 0.0f : divide(1.0f, l);
    for (int x = 0; x < d; x += 2) store_pair(O_row + x, O[x] * inverse_l, O[x + 1] * inverse_l);
    // Lines 13 and 15: L[r] = m[r] + log(l[r]), to HBM
    store(p.L + (std::int64_t{b} * p.H + h) * p.Nq + row, m + logf(l));
}

template <class T, int d>
void forward(const Problem& p) {
    launch(attention<T, d>, dim3(ceil_div(p.Nq, Br), p.H, p.B), Br, sizeof(Shared<T, d>), p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(forward, Dims, .number = 7, .name = "scalar", .place = 0,
             .tilings = LADDER_TILES((Br, Bc), {64, 32}, {64, 32}),
             .change = "FlashAttention-2's algorithm 1, one thread a row, in scalar arithmetic",
             .shows_in = "train");

}  // namespace
