// Stage 61: packed sequences. Documents of any length lie one after the other in one sequence. A block finds
// the document of its query tile by a binary search, and its tiles of rows and of keys begin where the
// document does.

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

/// Starts copying rows first .. first + 63 of X into a tile. Rows from N on become 0.
template <class T, int d>
__device__ void load_tile(T (&tile)[64][d + pad], const T* X, std::int64_t stride, int first, int N) {
    const int row = threadIdx.x / (d / 8), column = threadIdx.x % (d / 8) * 8;
    const T* source = X + (first + row) * stride + column;
#pragma unroll
    for (int n = 0; n < 64; n += threads * 8 / d) {
        copy_async(&tile[row + n][column], source + n * stride, first + row + n < N);
    }
}

struct Range {
    int begin, end;
};

struct Document {
    Range rows, keys;
    int tile;  // of its rows: 0, 1, ...
};

/// The document of a block. The blocks of document k begin with rows[k] / Br + k: that leaves room for all of
/// its tiles, wherever it begins, without a sum over the documents before it.
__device__ Document document_of(const Problem& p, int block) {
    if (p.documents.count == 0) return {{0, p.Nq}, {0, p.Nk}, block};
    int k = 0, end = p.documents.count;
    while (k + 1 < end) {  // k's first block is at most this one, that of `end` is later
        const int middle = (k + end) / 2;
        (load(p.documents.rows + middle) / Br + middle <= block ? k : end) = middle;
    }
    const int *rows = p.documents.rows + k, *keys = p.documents.keys + k, first = load(rows);
    return {{first, load(rows + 1)}, {load(keys), load(keys + 1)}, block - first / Br - k};
}

/// The keys that a row sees. Neither bound decreases from one row to the next.
__device__ Range keys_of(const Problem& p, const Document& own, int row) {
    const int position = row - own.rows.end + own.keys.end;  // the last row is at the last key
    const int left = p.window.left, right = p.causal ? 0 : p.window.right;
    return {left < 0 ? own.keys.begin : max(own.keys.begin, position - left),
            right < 0 ? own.keys.end : min(own.keys.end, position + right + 1)};
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

/// Turns the scores S (16, Bc) with a key tile into P, and rescales O to the new m (algorithm 1, line 9).
/// Lanes hold rows g and g + 8.
template <int d>
__device__ void softmax(const Problem& p, const Document& own, int first_row, int first_key, bool masked,
                        float (&S)[Bc / 8][4], float (&O)[d / 8][4], float (&m)[2], float (&l)[2]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float scale = p.scale * log2_e;  // scores and m are in base 2
#pragma unroll
    for (int c = 0; c < Bc / 2; ++c) S[c / 4][c % 4] *= scale;
    if (masked) {
        const Range keys[2] = {keys_of(p, own, first_row + g), keys_of(p, own, first_row + g + 8)};
#pragma unroll
        for (int c = 0; c < Bc / 2; ++c) {
            const int key = first_key + 2 * t + column_of(c);
            if (key < keys[row_of(c)].begin || key >= keys[row_of(c)].end) S[c / 4][c % 4] = -inf;
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

/// Folds a key tile, given its S, into this warp's 16 rows (algorithm 1, lines 9 and 10).
template <class T, int d>
__device__ void fold(Shared<T, d>& shared, const Problem& p, const Document& own, int first_row,
                     int first_key, bool masked, float (&S)[Bc / 8][4], float (&O)[d / 8][4], float (&m)[2],
                     float (&l)[2]) {
    const int lane = threadIdx.x % 32;
    softmax<d>(p, own, first_row, first_key, masked, S, O, m, l);
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

/// Writes O / l (rows g and g + 8 of this warp) and L = m + log(l).
template <class T, int d>
__device__ void write_rows(const Problem& p, int b, int h, int first_row, int rows_end,
                           const float (&O)[d / 8][4], const float (&m)[2], const float (&l)[2]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + g + 8 * r;
        if (row >= rows_end) continue;
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
__global__ void __launch_bounds__(threads, resident_blocks) attention(const Problem p) {
    auto& shared = shared_memory<Shared<T, d>>();
    const int i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, h_kv = h / (p.H / p.Hkv);
    const Document own = document_of(p, i);
    const int tile_row = own.rows.begin + own.tile * Br, first_row = tile_row + 16 * (threadIdx.x / 32);
    if (tile_row >= own.rows.end) return;  // a block that the document does not need
    const Range first = keys_of(p, own, tile_row),
                last = keys_of(p, own, min(tile_row + Br, own.rows.end) - 1);  // of the tile's rows

    float O[d / 8][4] = {}, m[2] = {-inf, -inf}, l[2] = {};
    load_tile<T, d>(shared.Q, matrix<T>(p.Q, b, h), p.Q.row, tile_row, own.rows.end);
    for (int j = (first.begin - own.keys.begin) / Bc; j < ceil_div(last.end - own.keys.begin, Bc); ++j) {
        const int first_key = own.keys.begin + j * Bc;
        __syncthreads();  // the previous K and V have been read
        load_tile<T, d>(shared.K, matrix<T>(p.K, b, h_kv), p.K.row, first_key, own.keys.end);
        load_tile<T, d>(shared.V, matrix<T>(p.V, b, h_kv), p.V.row, first_key, own.keys.end);
        copy_wait();
        __syncthreads();  // all copies of Q, K and V have landed
        const bool masked =
            first_key < last.begin || first_key + Bc > first.end;  // not all rows see all keys
        note_tile(shared, b, h, i, j, masked);
        if (first_row >= own.rows.end) continue;  // no rows
        float S[Bc / 8][4] = {};
        score<T, d>(shared, S);
        fold<T, d>(shared, p, own, first_row, first_key, masked, S, O, m, l);
        note_rows(first_row, m, l);
    }
    write_rows<T, d>(p, b, h, first_row, own.rows.end, O, m, l);
}

template <class T, int d>
void forward(const Problem& p) {
    const int documents = p.documents.count;  // each may have a tile more than its share of Nq / Br
    const int blocks = documents == 0 ? ceil_div(p.Nq, Br) : p.Nq / Br + documents;
    launch(attention<T, d>, dim3(blocks, p.H, p.B), threads, sizeof(Shared<T, d>), p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(forward, Dims, .number = 61, .name = "packed_sequences", .parent = 60,
             .tilings = LADDER_TILES((Br, Bc), {64, 64}, {64, 64}),
             .change = "a block finds the document of its query tile; tiles begin where documents begin",
             .shows_in = "packed", .takes = {Feature::window, Feature::documents});

}  // namespace
