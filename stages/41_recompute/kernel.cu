// Stage 41: recompute. Nothing of N x N is in memory: a block computes its tiles of P again from Q, K and L.
// dS needs of its row only D = rowsum(P o dP) = rowsum(dO o O), which one small kernel computes before. Then
// one kernel goes by query tiles and computes dQ, and one by key tiles, dK and dV: seven products in all.
// FlashAttention-2 (arXiv 2307.08691), algorithm 2, in two kernels so that no sum crosses blocks.

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int pad = 8;  // rows start one 16-byte bank apart: ldmatrix has no conflicts

/// All that depends on d.
template <int d>
struct Tile {
    static constexpr int Br = d <= 128 ? 64 : 32;   // query rows
    static constexpr int Bc = Br;                   // keys
    static constexpr int threads = 2 * Br;          // a warp has 16 rows or 16 keys
    static constexpr int parts = d <= 128 ? 1 : 2;  // of the columns of dK and dV: registers hold one
};

template <class T, int d>
struct Shared {
    T Q[Tile<d>::Br][d + pad], dO[Tile<d>::Br][d + pad];
    T K[Tile<d>::Bc][d + pad], V[Tile<d>::Bc][d + pad];
    float L[Tile<d>::Br], D[Tile<d>::Br];  // L in base 2; inf past the last row
};

/// Starts copying rows first, first + 1 ... of X (N, d) into a tile. Rows from N on become 0.
template <class T, int d, int rows = Tile<d>::Br>
__device__ void load_tile(T (&tile)[rows][d + pad], const T* X, std::int64_t stride, int first, int N) {
    const int row = threadIdx.x / (d / 8), column = threadIdx.x % (d / 8) * 8;
    const T* source = X + (first + row) * stride + column;
#pragma unroll
    for (int n = 0; n < rows; n += Tile<d>::threads * 8 / d) {
        copy_async(&tile[row + n][column], source + n * stride, first + row + n < N);
    }
}

/// What belongs to query tile i: Q, dO, L and D.
template <class T, int d, int Br = Tile<d>::Br>
__device__ void load_queries(Shared<T, d>& shared, const Problem& p, int b, int h, int i) {
    load_tile<T, d>(shared.Q, matrix<T>(p.Q, b, h), p.Q.row, i * Br, p.Nq);
    load_tile<T, d>(shared.dO, matrix<T>(p.dO, b, h), p.dO.row, i * Br, p.Nq);
    if (threadIdx.x < Br) {
        const int row = i * Br + threadIdx.x;
        const std::int64_t place = (std::int64_t{b} * p.H + h) * p.Nq + row;
        store(&shared.L[threadIdx.x], row < p.Nq ? load(p.L + place) * log2_e : inf);
        store(&shared.D[threadIdx.x], row < p.Nq ? load(static_cast<float*>(p.workspace) + place) : 0.0f);
    }
}

template <class T, int d, int Bc = Tile<d>::Bc>
__device__ void load_keys(Shared<T, d>& shared, const Problem& p, int b, int h_kv, int j) {
    load_tile<T, d>(shared.K, matrix<T>(p.K, b, h_kv), p.K.row, j * Bc, p.Nk);
    load_tile<T, d>(shared.V, matrix<T>(p.V, b, h_kv), p.V.row, j * Bc, p.Nk);
}

__device__ bool visible(const Problem& p, int row, int key) {
    return key < p.Nk && (!p.causal || key <= row + p.Nk - p.Nq);
}

/// Whether some row of query tile i does not see some key of key tile j.
template <int Br, int Bc>
__device__ bool is_masked(const Problem& p, int i, int j) {
    return (j + 1) * Bc > (p.causal ? min(p.Nk, i * Br + p.Nk - p.Nq + 1) : p.Nk);
}

/// D = rowsum(dO o O) (algorithm 2, line 4). One warp per row.
template <class T, int d>
__global__ void __launch_bounds__(Tile<d>::threads) row_sums(const Problem p) {
    const int i = blockIdx.x * (Tile<d>::threads / 32) + threadIdx.x / 32, h = blockIdx.y, b = blockIdx.z;
    const int lane = threadIdx.x % 32;
    if (i >= p.Nq) return;
    const T *dO = matrix<T>(p.dO, b, h) + i * p.dO.row, *O = matrix<T>(p.O, b, h) + i * p.O.row;
    float D = 0.0f;
#pragma unroll
    for (int column = 2 * lane; column < d; column += 64) {
        const float2 x = load_pair(dO + column), y = load_pair(O + column);
        D += x.x * y.x + x.y * y.y;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) D += __shfl_xor_sync(~0u, D, step);
    if (lane == 0) store(static_cast<float*>(p.workspace) + (std::int64_t{b} * p.H + h) * p.Nq + i, D);
}

/// X Y^T for this warp's 16 rows of X and all rows of Y.
template <class T, int d, int rows = Tile<d>::Br>
__device__ void multiply_rows(const T (&X)[rows][d + pad], const T (&Y)[rows][d + pad],
                              float (&C)[rows / 8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < rows / 2; ++c) C[c / 4][c % 4] = 0.0f;
#pragma unroll
    for (int k = 0; k < d; k += 16) {
        std::uint32_t x[4], y[4];
        ldmatrix(x, &X[16 * warp + a_row(lane)][k + a_column(lane)]);
#pragma unroll
        for (int n = 0; n < rows; n += 16) {
            ldmatrix(y, &Y[n + b_row(lane)][k + b_column(lane)]);
            mma<T>(C[n / 8], x, y[0], y[1]);
            mma<T>(C[n / 8 + 1], x, y[2], y[3]);
        }
    }
}

/// C += A X for A (16, rows) in this warp's registers, rounded to T, and some columns of X (rows, d).
template <class T, int d, int columns, int rows = Tile<d>::Br>
__device__ void add_product(const float (&A)[rows / 8][4], const T (&X)[rows][d + pad], int first_column,
                            float (&C)[columns / 8][4]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < rows / 8; k += 2) {
        std::uint32_t a[4];
        pack_operand<T>(a, A[k], A[k + 1]);
#pragma unroll
        for (int n = 0; n < columns; n += 16) {
            std::uint32_t x[4];
            ldmatrix_transposed(x, &X[8 * k + a_row(lane)][first_column + n + a_column(lane)]);
            mma<T>(C[n / 8], a, x[0], x[1]);
            mma<T>(C[n / 8 + 1], a, x[2], x[3]);
        }
    }
}

/// Writes rows g and g + 8 of this warp times `factor`.
template <class T, int columns>
__device__ void write_rows(const View& X, int b, int h, int first_row, int N, float factor,
                           const float (&C)[columns / 8][4], int first_column = 0) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + 16 * (threadIdx.x / 32) + g + 8 * r;
        if (row >= N) continue;
        T* X_row = matrix<T>(X, b, h) + row * X.row + first_column + 2 * t;
#pragma unroll
        for (int n = 0; n < columns / 8; ++n) {
            store_pair(X_row + 8 * n, C[n][2 * r] * factor, C[n][2 * r + 1] * factor);
        }
    }
}

/// dQ = scale dS K. One block per query tile, of which a warp has 16 rows.
template <class T, int d, int Br = Tile<d>::Br, int Bc = Tile<d>::Bc>
__global__ void __launch_bounds__(Tile<d>::threads) query_gradient(const Problem p) {
    auto& shared = shared_memory<Shared<T, d>>();
    const int i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, h_kv = h / (p.H / p.Hkv);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int end = p.causal ? min(p.Nk, (i + 1) * Br + p.Nk - p.Nq) : p.Nk;  // of keys that a row sees

    load_queries(shared, p, b, h, i);
    float dQ[d / 8][4] = {};  // (16, d)
    for (int j = 0; j * Bc < end; ++j) {
        __syncthreads();  // the previous K and V have been read
        load_keys(shared, p, b, h_kv, j);
        copy_wait();
        __syncthreads();  // all copies of Q, dO, K and V have landed
        const bool masked = is_masked<Br, Bc>(p, i, j);
        note_tile(shared, b, h, i, j, masked);
        float P[Bc / 8][4], dP[Bc / 8][4];  // (16, Bc)
        multiply_rows<T, d>(shared.Q, shared.K, P);
        multiply_rows<T, d>(shared.dO, shared.V, dP);
#pragma unroll
        for (int c = 0; c < Bc / 2; ++c) {
            const int row = 16 * warp + g + 8 * row_of(c), key = 2 * t + column_of(c);
            float& x = P[c / 4][c % 4];
            x = fast_exp2(x * p.scale * log2_e - load(&shared.L[row]));
            if (masked && !visible(p, i * Br + row, j * Bc + key)) x = 0.0f;
            dP[c / 4][c % 4] = x * (dP[c / 4][c % 4] - load(&shared.D[row]));  // now dS
        }
        add_product<T, d, d>(dP, shared.K, 0, dQ);
    }
    write_rows<T, d>(p.dQ, b, h, i * Br, p.Nq, p.scale, dQ);
}

/// dK = scale dS^T Q and dV = P^T dO, over all query heads that share K and V. One block per key tile and
/// part of the columns. A warp has 16 keys: it computes S^T and dP^T, so that P^T and dS^T are in registers
/// where the products want them.
template <class T, int d, int Br = Tile<d>::Br, int Bc = Tile<d>::Bc>
__global__ void __launch_bounds__(Tile<d>::threads) key_gradients(const Problem p) {
    auto& shared = shared_memory<Shared<T, d>>();
    constexpr int parts = Tile<d>::parts, columns = d / parts;
    const int j = blockIdx.x / parts, first_column = blockIdx.x % parts * columns;
    const int h_kv = blockIdx.y, b = blockIdx.z, group = p.H / p.Hkv;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int first = p.causal ? max(0, j * Bc - (p.Nk - p.Nq)) : 0;  // the first row that sees a key

    load_keys(shared, p, b, h_kv, j);
    float dK[columns / 8][4] = {}, dV[columns / 8][4] = {};  // (16, columns)
    for (int h = h_kv * group; h < (h_kv + 1) * group; ++h) {
        for (int i = first / Br; i * Br < p.Nq; ++i) {
            __syncthreads();  // the previous Q and dO have been read
            load_queries(shared, p, b, h, i);
            copy_wait();
            __syncthreads();  // all copies of Q, dO, K and V have landed
            const bool masked = is_masked<Br, Bc>(p, i, j);
            note_tile(shared, b, h, i, j, masked);
            float P[Br / 8][4], dP[Br / 8][4];  // (16 keys, Br queries)
            multiply_rows<T, d>(shared.K, shared.Q, P);
            multiply_rows<T, d>(shared.V, shared.dO, dP);
#pragma unroll
            for (int c = 0; c < Br / 2; ++c) {
                const int key = 16 * warp + g + 8 * row_of(c), row = 2 * t + column_of(c);
                float& x = P[c / 4][c % 4];
                x = fast_exp2(x * p.scale * log2_e - load(&shared.L[row]));
                if (masked && !visible(p, i * Br + row, j * Bc + key)) x = 0.0f;
                dP[c / 4][c % 4] = x * (dP[c / 4][c % 4] - load(&shared.D[row]));  // now dS
            }
            add_product<T, d, columns>(P, shared.dO, first_column, dV);
            add_product<T, d, columns>(dP, shared.Q, first_column, dK);
        }
    }
    write_rows<T, columns>(p.dK, b, h_kv, j * Bc, p.Nk, p.scale, dK, first_column);
    write_rows<T, columns>(p.dV, b, h_kv, j * Bc, p.Nk, 1.0f, dV, first_column);
}

std::size_t workspace_bytes(const Shape& s, int) {
    return std::size_t(s.B) * s.H * s.Nq * sizeof(float);  // D
}

template <class T, int d>
void backward(const Problem& p) {
    constexpr int threads = Tile<d>::threads, parts = Tile<d>::parts;
    launch(row_sums<T, d>, dim3(ceil_div(p.Nq, threads / 32), p.H, p.B), threads, 0, p);
    launch(query_gradient<T, d>, dim3(ceil_div(p.Nq, Tile<d>::Br), p.H, p.B), threads, sizeof(Shared<T, d>),
           p);
    launch(key_gradients<T, d>, dim3(ceil_div(p.Nk, Tile<d>::Bc) * parts, p.Hkv, p.B), threads,
           sizeof(Shared<T, d>), p);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(
    backward, Dims, .number = 41, .name = "recompute", .parent = 40,
    .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc), {64, 64}, {64, 64}, {32, 32}),
    .change = "P is computed again from L, by query tiles and by key tiles: nothing of N x N in memory",
    .shows_in = "backward", .pass = Pass::backward, .diff_budget = 0, .workspace_bytes = workspace_bytes);

}  // namespace
