// Stage 42: one kernel. A block has a key tile, computes P and dS once, and uses dS thrice: for dK, and from
// shared memory for dQ, whose rows belong to all blocks. They add to it by atomics in fp32. Five products
// instead of seven. FlashAttention-2 (arXiv 2307.08691), algorithm 2.

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int Br = 64, Bc = 64;  // query rows and keys of a tile
constexpr int threads = 128;     // 4 warps
constexpr int pad = 8;           // rows start one 16-byte bank apart: ldmatrix has no conflicts

template <class T, int d>
struct Shared {
    T Q[Br][d + pad], dO[Br][d + pad];
    T K[Bc][d + pad], V[Bc][d + pad];
    T dS[Bc][Br + pad];  // transposed: rows are keys
    float L[Br], D[Br];  // L in base 2; inf behind the last row
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

/// In the workspace: dQ / scale in fp32, (B, H, Nq, d).
__device__ float* sums(const Problem& p, int b, int h) {
    return static_cast<float*>(p.workspace) + (std::int64_t{b} * p.H + h) * p.Nq * p.d;
}

/// And behind it D, (B, H, Nq).
__device__ float* row_sum(const Problem& p, int b, int h) {
    return sums(p, p.B, 0) + (std::int64_t{b} * p.H + h) * p.Nq;
}

/// What belongs to query tile i: Q, dO, L and D.
template <class T, int d>
__device__ void load_queries(Shared<T, d>& shared, const Problem& p, int b, int h, int i) {
    load_tile<T, d>(shared.Q, matrix<T>(p.Q, b, h), p.Q.row, i * Br, p.Nq);
    load_tile<T, d>(shared.dO, matrix<T>(p.dO, b, h), p.dO.row, i * Br, p.Nq);
    if (threadIdx.x < Br) {
        const int row = i * Br + threadIdx.x;
        store(&shared.L[threadIdx.x],
              row < p.Nq ? load(p.L + (std::int64_t{b} * p.H + h) * p.Nq + row) * log2_e : inf);
        store(&shared.D[threadIdx.x], row < p.Nq ? load(row_sum(p, b, h) + row) : 0.0f);
    }
}

template <class T, int d>
__device__ void load_keys(Shared<T, d>& shared, const Problem& p, int b, int h_kv, int j) {
    load_tile<T, d>(shared.K, matrix<T>(p.K, b, h_kv), p.K.row, j * Bc, p.Nk);
    load_tile<T, d>(shared.V, matrix<T>(p.V, b, h_kv), p.V.row, j * Bc, p.Nk);
}

__device__ bool visible(const Problem& p, int row, int key) {
    return key < p.Nk && (!p.causal || key <= row + p.Nk - p.Nq);
}

/// Whether some row of query tile i does not see some key of key tile j.
__device__ bool is_masked(const Problem& p, int i, int j) {
    return (j + 1) * Bc > (p.causal ? min(p.Nk, i * Br + p.Nk - p.Nq + 1) : p.Nk);
}

/// D = rowsum(dO o O) (algorithm 2, line 4), and dQ = 0. One warp per row.
template <class T, int d>
__global__ void __launch_bounds__(threads) row_sums(const Problem p) {
    const int i = blockIdx.x * (threads / 32) + threadIdx.x / 32, h = blockIdx.y, b = blockIdx.z;
    const int lane = threadIdx.x % 32;
    if (i >= p.Nq) return;
    const T *dO = matrix<T>(p.dO, b, h) + i * p.dO.row, *O = matrix<T>(p.O, b, h) + i * p.O.row;
    float D = 0.0f;
#pragma unroll
    for (int column = 2 * lane; column < d; column += 64) {
        const float2 x = unpack<T>(load(reinterpret_cast<const std::uint32_t*>(dO + column))),
                     y = unpack<T>(load(reinterpret_cast<const std::uint32_t*>(O + column)));
        D += x.x * y.x + x.y * y.y;
        store(reinterpret_cast<float2*>(sums(p, b, h) + std::int64_t{i} * d + column), {0.0f, 0.0f});
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) D += __shfl_xor_sync(~0u, D, step);
    if (lane == 0) store(row_sum(p, b, h) + i, D);
}

/// X Y^T for this warp's 16 rows of X and the 64 of Y.
template <class T, int d>
__device__ void multiply_rows(const T (&X)[64][d + pad], const T (&Y)[64][d + pad], float (&C)[8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < 32; ++c) C[c / 4][c % 4] = 0.0f;
#pragma unroll
    for (int k = 0; k < d; k += 16) {
        std::uint32_t x[4], y[4];
        ldmatrix(x, &X[16 * warp + lane % 16][k + lane / 16 * 8]);
#pragma unroll
        for (int n = 0; n < 64; n += 16) {
            ldmatrix(y, &Y[n + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
            mma<T>(C[n / 8], x, y[0], y[1]);
            mma<T>(C[n / 8 + 1], x, y[2], y[3]);
        }
    }
}

/// C += A X for A (16, 64) in this warp's registers, rounded to T, and X (64, d).
template <class T, int d>
__device__ void add_product(const float (&A)[8][4], const T (&X)[64][d + pad], float (&C)[d / 8][4]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 8; k += 2) {
        const std::uint32_t a[4] = {pack<T>(A[k][0], A[k][1]), pack<T>(A[k][2], A[k][3]),  //
                                    pack<T>(A[k + 1][0], A[k + 1][1]), pack<T>(A[k + 1][2], A[k + 1][3])};
#pragma unroll
        for (int n = 0; n < d; n += 16) {
            std::uint32_t x[4];
            ldmatrix_transposed(x, &X[8 * k + lane % 16][n + lane / 16 * 8]);
            mma<T>(C[n / 8], a, x[0], x[1]);
            mma<T>(C[n / 8 + 1], a, x[2], x[3]);
        }
    }
}

/// Writes rows g and g + 8 of this warp times `factor`.
template <class T, int d>
__device__ void write_rows(const View& X, int b, int h, int first_row, int N, float factor,
                           const float (&C)[d / 8][4]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + 16 * (threadIdx.x / 32) + g + 8 * r;
        if (row >= N) continue;
        T* X_row = matrix<T>(X, b, h) + row * X.row + 2 * t;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            store(reinterpret_cast<std::uint32_t*>(X_row + 8 * n),
                  pack<T>(C[n][2 * r] * factor, C[n][2 * r + 1] * factor));
        }
    }
}

/// Adds dS K to the sums of dQ, for 16 of the tile's query rows (algorithm 2, line 15).
template <class T, int d>
__device__ void add_to_dQ(Shared<T, d>& shared, const Problem& p, int b, int h, int i) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float dQ[d / 8][4] = {};  // (16, d)
#pragma unroll
    for (int k = 0; k < Bc; k += 16) {
        std::uint32_t dS[4], x[4];
        ldmatrix_transposed(dS, &shared.dS[k + lane % 8 + lane / 16 * 8][16 * warp + lane / 8 % 2 * 8]);
#pragma unroll
        for (int n = 0; n < d; n += 16) {
            ldmatrix_transposed(x, &shared.K[k + lane % 16][n + lane / 16 * 8]);
            mma<T>(dQ[n / 8], dS, x[0], x[1]);
            mma<T>(dQ[n / 8 + 1], dS, x[2], x[3]);
        }
    }
#pragma unroll
    for (int c = 0; c < d / 2; ++c) {
        const int row = i * Br + 16 * warp + g + c / 2 % 2 * 8, column = c / 4 * 8 + 2 * t + c % 2;
        if (row < p.Nq) atomic_add(sums(p, b, h) + std::int64_t{row} * d + column, dQ[c / 4][c % 4]);
    }
}

/// dK = scale dS^T Q and dV = P^T dO, over all query heads that share K and V, and what these keys add to dQ.
/// One block per 64 keys, of which a warp has 16: it computes S^T and dP^T, so that P^T and dS^T are in
/// registers where the products want them.
template <class T, int d>
__global__ void __launch_bounds__(threads) gradients(const Problem p) {
    auto& shared = shared_memory<Shared<T, d>>();
    const int j = blockIdx.x, h_kv = blockIdx.y, b = blockIdx.z, group = p.H / p.Hkv;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int first = p.causal ? max(0, j * Bc - (p.Nk - p.Nq)) : 0;  // the first row that sees a key

    load_keys(shared, p, b, h_kv, j);
    float dK[d / 8][4] = {}, dV[d / 8][4] = {};  // (16, d)
    for (int h = h_kv * group; h < (h_kv + 1) * group; ++h) {
        for (int i = first / Br; i * Br < p.Nq; ++i) {
            __syncthreads();  // the previous Q, dO and dS have been read
            load_queries(shared, p, b, h, i);
            copy_wait();
            __syncthreads();  // Q, dO, K and V are there, whoever copied them
            const bool masked = is_masked(p, i, j);
            note_tile(shared, b, h, i, j, masked);
            float P[8][4], dP[8][4];  // (16 keys, 64 queries)
            multiply_rows<T, d>(shared.K, shared.Q, P);
            multiply_rows<T, d>(shared.V, shared.dO, dP);
#pragma unroll
            for (int c = 0; c < 32; ++c) {
                const int key = 16 * warp + g + c / 2 % 2 * 8, row = c / 4 * 8 + 2 * t + c % 2;
                float& x = P[c / 4][c % 4];
                x = fast_exp2(x * p.scale * log2_e - load(&shared.L[row]));
                if (masked && !visible(p, i * Br + row, j * Bc + key)) x = 0.0f;
                dP[c / 4][c % 4] = x * (dP[c / 4][c % 4] - load(&shared.D[row]));  // now dS
            }
            add_product<T, d>(P, shared.dO, dV);
            add_product<T, d>(dP, shared.Q, dK);
#pragma unroll
            for (int c = 0; c < 32; c += 2) {
                T* pair = &shared.dS[16 * warp + g + c / 2 % 2 * 8][c / 4 * 8 + 2 * t];
                store(reinterpret_cast<std::uint32_t*>(pair),
                      pack<T>(dP[c / 4][c % 4], dP[c / 4][c % 4 + 1]));
            }
            __syncthreads();  // dS is there
            add_to_dQ(shared, p, b, h, i);
        }
    }
    write_rows<T, d>(p.dK, b, h_kv, j * Bc, p.Nk, p.scale, dK);
    write_rows<T, d>(p.dV, b, h_kv, j * Bc, p.Nk, 1.0f, dV);
}

/// dQ = scale times its sums, rounded to T. One warp per row.
template <class T, int d>
__global__ void __launch_bounds__(threads) convert(const Problem p) {
    const int i = blockIdx.x * (threads / 32) + threadIdx.x / 32, h = blockIdx.y, b = blockIdx.z;
    if (i >= p.Nq) return;
    const float* sum = sums(p, b, h) + std::int64_t{i} * d;
    T* dQ = matrix<T>(p.dQ, b, h) + i * p.dQ.row;
#pragma unroll
    for (int column = threadIdx.x % 32 * 2; column < d; column += 64) {
        const float2 x = load(reinterpret_cast<const float2*>(sum + column));
        store(reinterpret_cast<std::uint32_t*>(dQ + column), pack<T>(x.x * p.scale, x.y * p.scale));
    }
}

std::size_t workspace_bytes(const Shape& s, int) {
    return std::size_t(s.B) * s.H * s.Nq * (1 + s.d) * sizeof(float);  // D and dQ
}

template <class T, int d>
void backward(const Problem& p) {
    const dim3 by_rows(ceil_div(p.Nq, threads / 32), p.H, p.B);
    launch(row_sums<T, d>, by_rows, threads, 0, p);
    launch(gradients<T, d>, dim3(ceil_div(p.Nk, Bc), p.Hkv, p.B), threads, sizeof(Shared<T, d>), p);
    launch(convert<T, d>, by_rows, threads, 0, p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(backward, Dims, .number = 42, .name = "fused_gradients", .parent = 41,
             .change = "one kernel by key tiles, which adds to dQ by atomics: five products for seven",
             .shows_in = "backward", .pass = Pass::backward, .diff_budget = 120, .repeats_exactly = false,
             .workspace_bytes = workspace_bytes);

}  // namespace
