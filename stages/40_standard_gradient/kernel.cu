// Stage 40: standard attention's gradient. P, dP and dS are written to global memory, as autograd would: P
// and dP = dO V^T, then dS = P o (dP - rowsum(P o dP)) row by row, then dQ = dS K, dK = dS^T Q and dV = P^T
// dO. FlashAttention (arXiv 2205.14135), algorithm 3; P comes from L, which the forward pass left.

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

/// (B, H, Nq, Nk) each, with Nk rounded up to whole tiles: dP in fp32, P and dS in T.
template <class T>
struct Matrices {
    std::int64_t columns;
    float* dP;
    T *P, *dS;

    __device__ Matrices(const Problem& p, int b, int h) : columns(ceil_div(p.Nk, Bc) * Bc) {
        const std::int64_t size = p.Nq * columns, all = std::int64_t{p.B} * p.H * size,
                           head = (std::int64_t{b} * p.H + h) * size;
        dP = static_cast<float*>(p.workspace) + head;
        P = reinterpret_cast<T*>(static_cast<float*>(p.workspace) + all) + head;
        dS = P + all;
    }
};

/// C += X Y^T for this warp's 16 rows of X and the 64 of Y: the product of S = Q K^T and of dP = dO V^T.
template <class T, int d>
__device__ void add_product_of_rows(float (&C)[8][4], const T (&X)[64][d + pad], const T (&Y)[64][d + pad]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < d; k += 16) {
        std::uint32_t x[4], y[4];
        ldmatrix(x, &X[16 * warp + a_row(lane)][k + a_column(lane)]);
#pragma unroll
        for (int n = 0; n < 64; n += 16) {
            ldmatrix(y, &Y[n + b_row(lane)][k + b_column(lane)]);
            mma<T>(C[n / 8], x, y[0], y[1]);
            mma<T>(C[n / 8 + 1], x, y[2], y[3]);
        }
    }
}

/// P = exp(scale Q K^T - L), 0 where masked, and dP = dO V^T. One block per 64 x 64 tile.
template <class T, int d>
__global__ void __launch_bounds__(threads, resident_blocks) scores(const Problem p) {
    struct Shared {
        T Q[Br][d + pad], K[Bc][d + pad];  // then dO and V
    };
    auto& shared = shared_memory<Shared>();
    const int Tc = ceil_div(p.Nk, Bc), i = blockIdx.x / Tc, j = blockIdx.x % Tc;
    const int h = blockIdx.y, b = blockIdx.z, h_kv = h / (p.H / p.Hkv);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row = i * Br + 16 * warp + g, key = j * Bc + 2 * t;
    const Matrices<T> out(p, b, h);

    float S[8][4] = {}, dP[8][4] = {};  // (16, 64)
    load_tile<T, d>(shared.Q, matrix<T>(p.Q, b, h), p.Q.row, i * Br, p.Nq);
    load_tile<T, d>(shared.K, matrix<T>(p.K, b, h_kv), p.K.row, j * Bc, p.Nk);
    copy_wait();
    __syncthreads();  // all copies of Q and K have landed
    note_tile(shared, b, h, i, j, true);
    add_product_of_rows<T, d>(S, shared.Q, shared.K);
    __syncthreads();  // Q and K have been read
    load_tile<T, d>(shared.Q, matrix<T>(p.dO, b, h), p.dO.row, i * Br, p.Nq);
    load_tile<T, d>(shared.K, matrix<T>(p.V, b, h_kv), p.V.row, j * Bc, p.Nk);
    copy_wait();
    __syncthreads();  // dO and V have arrived
    add_product_of_rows<T, d>(dP, shared.Q, shared.K);

#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int i_r = row + 8 * r;
        if (i_r >= p.Nq) continue;
        const float L = load(p.L + (std::int64_t{b} * p.H + h) * p.Nq + i_r);
        float* dP_row = out.dP + i_r * out.columns + key;
        T* P_row = out.P + i_r * out.columns + key;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            float P[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                const bool seen = visible(p, i_r, key + 8 * n + c);
                P[c] = seen ? fast_exp2((S[n][2 * r + c] * p.scale - L) * log2_e) : 0.0f;
            }
            store_pair(P_row + 8 * n, P[0], P[1]);
            store_pair(dP_row + 8 * n, dP[n][2 * r], dP[n][2 * r + 1]);
        }
    }
}

/// dS = P o (dP - rowsum(P o dP)), the gradient of the softmax. One warp per row.
template <class T, int d>
__global__ void __launch_bounds__(threads) softmax_gradient(const Problem p) {
    const int i = blockIdx.x * (threads / 32) + threadIdx.x / 32, h = blockIdx.y, b = blockIdx.z;
    const int lane = threadIdx.x % 32;
    if (i >= p.Nq) return;
    const Matrices<T> matrices(p, b, h);
    const float* dP = matrices.dP + i * matrices.columns;
    const T* P = matrices.P + i * matrices.columns;
    T* dS = matrices.dS + i * matrices.columns;

    float D = 0.0f;
    for (int j = 2 * lane; j < matrices.columns; j += 64) {
        const float2 x = load_pair(P + j), dx = load_pair(dP + j);
        D += x.x * dx.x + x.y * dx.y;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) D += __shfl_xor_sync(~0u, D, step);

    for (int j = 2 * lane; j < matrices.columns; j += 64) {
        const float2 x = load_pair(P + j), dx = load_pair(dP + j);
        store_pair(dS + j, x.x * (dx.x - D), x.y * (dx.y - D));
    }
}

template <class T, int d>
struct Operands {
    T A[64][64 + pad], B[64][d + pad];
};

/// C += A B for this warp's 16 rows of A (64, 64), or of A^T if it is `transposed`, and B (64, d).
template <bool transposed, class T, int d>
__device__ void add_product(float (&C)[d / 8][4], const Operands<T, d>& shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 64; k += 16) {
        std::uint32_t a[4], b[4];
        if constexpr (transposed) {
            ldmatrix_transposed(a, &shared.A[k + b_row(lane)][16 * warp + b_column(lane)]);
        } else {
            ldmatrix(a, &shared.A[16 * warp + a_row(lane)][k + a_column(lane)]);
        }
#pragma unroll
        for (int n = 0; n < d; n += 16) {
            ldmatrix_transposed(b, &shared.B[k + a_row(lane)][n + a_column(lane)]);
            mma<T>(C[n / 8], a, b[0], b[1]);
            mma<T>(C[n / 8 + 1], a, b[2], b[3]);
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
            store_pair(X_row + 8 * n, C[n][2 * r] * factor, C[n][2 * r + 1] * factor);
        }
    }
}

/// dQ = scale dS K. One block per 64 query rows.
template <class T, int d>
__global__ void __launch_bounds__(threads, resident_blocks) query_gradient(const Problem p) {
    auto& shared = shared_memory<Operands<T, d>>();
    const int i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, h_kv = h / (p.H / p.Hkv);
    const Matrices<T> in(p, b, h);
    float dQ[d / 8][4] = {};  // (16, d)
    for (int j = 0; j < ceil_div(p.Nk, Bc); ++j) {
        __syncthreads();  // the previous tiles have been read
        load_tile<T, 64>(shared.A, in.dS + j * Bc, in.columns, i * Br, p.Nq);
        load_tile<T, d>(shared.B, matrix<T>(p.K, b, h_kv), p.K.row, j * Bc, p.Nk);
        copy_wait();
        __syncthreads();  // dS and K have arrived
        add_product<false>(dQ, shared);
    }
    write_rows<T, d>(p.dQ, b, h, i * Br, p.Nq, p.scale, dQ);
}

/// dK = scale dS^T Q and dV = P^T dO, over all query heads that share K and V. One block per 64 keys.
template <class T, int d>
__global__ void __launch_bounds__(threads, resident_blocks) key_gradients(const Problem p) {
    auto& shared = shared_memory<Operands<T, d>>();
    const int j = blockIdx.x, h_kv = blockIdx.y, b = blockIdx.z, group = p.H / p.Hkv;
    // C += A^T B over the query tiles of head h, for this block's columns of A
    const auto add_head = [&](float(&C)[d / 8][4], const T* A, std::int64_t columns, const View& B, int h) {
        for (int i = 0; i < ceil_div(p.Nq, Br); ++i) {
            __syncthreads();  // the previous tiles have been read
            load_tile<T, 64>(shared.A, A + j * Bc, columns, i * Br, p.Nq);
            load_tile<T, d>(shared.B, matrix<T>(B, b, h), B.row, i * Br, p.Nq);
            copy_wait();
            __syncthreads();  // both have arrived
            add_product<true>(C, shared);
        }
    };
    float dK[d / 8][4] = {};  // (16, d)
    for (int h = h_kv * group; h < (h_kv + 1) * group; ++h) {
        const Matrices<T> in(p, b, h);
        add_head(dK, in.dS, in.columns, p.Q, h);
    }
    write_rows<T, d>(p.dK, b, h_kv, j * Bc, p.Nk, p.scale, dK);
    float dV[d / 8][4] = {};  // (16, d)
    for (int h = h_kv * group; h < (h_kv + 1) * group; ++h) {
        const Matrices<T> in(p, b, h);
        add_head(dV, in.P, in.columns, p.dO, h);
    }
    write_rows<T, d>(p.dV, b, h_kv, j * Bc, p.Nk, 1.0f, dV);
}

std::size_t workspace_bytes(const Shape& s, int) {
    const std::size_t elements = std::size_t(s.B) * s.H * s.Nq * ceil_div(s.Nk, Bc) * Bc;
    return elements * (sizeof(float) + 2 * sizeof(fp16));
}

template <class T, int d>
void backward(const Problem& p) {
    const int Tr = ceil_div(p.Nq, Br), Tc = ceil_div(p.Nk, Bc);
    launch(scores<T, d>, dim3(Tr * Tc, p.H, p.B), threads, 2 * sizeof(T[64][d + pad]), p);
    launch(softmax_gradient<T, d>, dim3(ceil_div(p.Nq, threads / 32), p.H, p.B), threads, 0, p);
    launch(query_gradient<T, d>, dim3(Tr, p.H, p.B), threads, sizeof(Operands<T, d>), p);
    launch(key_gradients<T, d>, dim3(Tc, p.Hkv, p.B), threads, sizeof(Operands<T, d>), p);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(backward, Dims, .number = 40, .name = "standard_gradient", .parent = -1,
             .tilings = LADDER_TILES((Br, Bc), {64, 64}, {64, 64}, {64, 64}),
             .change = "standard attention's gradient: P, dP and dS in global memory, four kernels",
             .shows_in = "backward", .pass = Pass::backward, .diff_budget = 0,
             .workspace_bytes = workspace_bytes);

}  // namespace
