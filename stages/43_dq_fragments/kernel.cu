// Stage 43: fused gradients. A block has a key tile, computes P and dS once, and uses dS three times: for dK,
// and from shared memory for dQ, whose rows belong to all blocks. They add to it by atomics in fp32. Five
// products instead of seven. FlashAttention-2 (arXiv 2307.08691), algorithm 2. The sums of dQ lie as a warp's
// registers hold them: the 16 bytes that a lane has of a fragment, after those of the lane before. So a lane
// adds 16 bytes at a time, and what a warp adds lies together. The last kernel puts the columns in order.

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int row_threads = 256;  // of a kernel that goes by rows

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int slices = 1;  // of 16 rows or 16 keys: what a warp owns
    static constexpr int warps = d <= 128 ? 4 : 2;
    static constexpr int threads = 32 * warps;
    static constexpr int resident = 8 / warps;  // blocks on a multiprocessor: a thread may hold 255 registers
    static constexpr int parts = d <= 128 ? 1 : 2;  // of the columns of dK and dV: registers hold one
    static constexpr int Br = 16 * slices * warps;  // query rows
    static constexpr int Bc = 16 * slices * warps;  // keys
};

template <class T, int d>
struct Shared {
    T Q[Tile<d>::Br][d], dO[Tile<d>::Br][d];
    T K[Tile<d>::Bc][d], V[Tile<d>::Bc][d];
    T dS[Tile<d>::Bc][64];  // transposed: rows are keys, and Br columns are queries
    float L[Tile<d>::Br], D[Tile<d>::Br];
};

/// The workspace of a head, with rows rounded up to whole tiles.
template <int d>
struct Workspace {
    float *L, *D;  // L in base 2; inf past the last row
    float4* dQ;    // dQ / scale, by fragments of 16 rows and 8 columns, as the lanes of a warp hold them

    __device__ Workspace(const Problem& p, int b, int h) {
        const std::int64_t rows = ceil_div(p.Nq, Tile<d>::Br) * Tile<d>::Br, all = rows * p.B * p.H,
                           head = (std::int64_t{b} * p.H + h) * rows;
        L = static_cast<float*>(p.workspace) + head;
        D = L + all;
        dQ = reinterpret_cast<float4*>(static_cast<float*>(p.workspace) + 2 * all + head * d);
    }

    /// What lane 0 holds of the fragment whose first row and column these are. The other lanes' follow.
    __device__ float4* fragment(int row, int column) const {
        return dQ + (row / 16 * (d / 8) + column / 8) * 32;
    }
};

/// Where a tile keeps the 16 bytes at this column of a row. Eight rows keep them at eight positions of a line
/// of 128 bytes, so ldmatrix has no bank conflicts.
template <class T, int rows, int d>
__device__ auto* at(T (&tile)[rows][d], int row, int column) {
    return &tile[row][column ^ row % 8 * 8];
}

/// Starts copying rows first, first + 1 ... of X (N, d) into a tile. Rows from N on become 0.
template <class T, int d, int rows>
__device__ void load_tile(T (&tile)[rows][d], const View& X, int b, int h, int first, int N) {
    const int row = threadIdx.x / (d / 8), column = threadIdx.x % (d / 8) * 8;
    const T* source = matrix<T>(X, b, h) + (first + row) * X.row + column;
#pragma unroll
    for (int n = 0; n < rows; n += Tile<d>::threads * 8 / d) {
        copy_async(at(tile, row + n, column), source + n * X.row, first + row + n < N);
    }
}

/// What belongs to query tile i: Q, dO, L and D.
template <class T, int d, int Br = Tile<d>::Br>
__device__ void load_queries(Shared<T, d>& shared, const Problem& p, int b, int h, int i) {
    load_tile(shared.Q, p.Q, b, h, i * Br, p.Nq);
    load_tile(shared.dO, p.dO, b, h, i * Br, p.Nq);
    if (threadIdx.x < Br / 4) {
        const Workspace<d> workspace(p, b, h);
        copy_async(&shared.L[4 * threadIdx.x], workspace.L + i * Br + 4 * threadIdx.x, true);
        copy_async(&shared.D[4 * threadIdx.x], workspace.D + i * Br + 4 * threadIdx.x, true);
    }
}

/// D = rowsum(dO o O) (algorithm 2, line 4), and L in base 2. d / 8 threads per row.
template <class T, int d>
__global__ void __launch_bounds__(row_threads) prepare(const Problem p) {
    constexpr int lanes = d / 8;
    const int row = blockIdx.x * (row_threads / lanes) + threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const int h = blockIdx.y, b = blockIdx.z;
    const Workspace<d> workspace(p, b, h);
    float D = 0.0f;
    if (row < p.Nq) {
        const auto read = [&](const View& X) {
            return load(reinterpret_cast<const uint4*>(matrix<T>(X, b, h) + row * X.row + 8 * lane));
        };
        const uint4 x = read(p.dO), y = read(p.O);
        const auto add = [&](std::uint32_t dO_n, std::uint32_t O_n) {
            const float2 dO = unpack<T>(dO_n), O = unpack<T>(O_n);
            D += dO.x * O.x + dO.y * O.y;
        };
        add(x.x, y.x), add(x.y, y.y), add(x.z, y.z), add(x.w, y.w);
    }
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) D += __shfl_xor_sync(~0u, D, step);
    if (row >= ceil_div(p.Nq, Tile<d>::Br) * Tile<d>::Br) return;
    if (lane == 0) {
        const float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + row;
        store(workspace.L + row, row < p.Nq ? load(L) * log2_e : inf);
        store(workspace.D + row, D);
    }
    float4* dQ = workspace.dQ + row * (d / 4) + lane;
    store(dQ, {0.0f, 0.0f, 0.0f, 0.0f});
    store(dQ + lanes, {0.0f, 0.0f, 0.0f, 0.0f});
}

/// C = -x for an x of each column.
template <int slices, int pieces>
__device__ void start_below(float (&C)[slices][pieces][4], const float* x) {
#pragma unroll
    for (int n = 0; n < pieces; ++n) {
        const float2 x_n = load_pair(x + 8 * n + threadIdx.x % 4 * 2);
#pragma unroll
        for (int c = 0; c < 4 * slices; ++c) C[c / 4][n][c % 4] = c % 2 == 0 ? -x_n.x : -x_n.y;
    }
}

/// C += X Y^T for the slices from a row of X on and, as columns of C, rows of Y.
template <class T, int slices, int pieces, int d, int M, int N>
__device__ void add_product_of_rows(float (&C)[slices][pieces][4], const T (&X)[M][d], int first_of_X,
                                    const T (&Y)[N][d]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < d; k += 16) {
        std::uint32_t x[slices][4], y[4];
#pragma unroll
        for (int a = 0; a < slices; ++a) {
            ldmatrix(x[a], at(X, first_of_X + 16 * a + a_row(lane), k + a_column(lane)));
        }
#pragma unroll
        for (int n = 0; n < 8 * pieces; n += 16) {
            ldmatrix(y, at(Y, n + b_row(lane), k + b_column(lane)));
#pragma unroll
            for (int a = 0; a < slices; ++a) {
                mma<T>(C[a][n / 8], x[a], y[0], y[1]);
                mma<T>(C[a][n / 8 + 1], x[a], y[2], y[3]);
            }
        }
    }
}

/// C += A X, with A in this warp's registers.
template <class T, int slices, int pieces, int columns, int d, int N>
__device__ void add_product(float (&C)[slices][columns][4], const std::uint32_t (&A)[slices][pieces][4],
                            const T (&X)[N][d], int first_row, int first_column) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < pieces; ++k) {
#pragma unroll
        for (int n = 0; n < 8 * columns; n += 16) {
            std::uint32_t x[4];
            ldmatrix_transposed(x,
                                at(X, first_row + 16 * k + a_row(lane), first_column + n + a_column(lane)));
#pragma unroll
            for (int a = 0; a < slices; ++a) {
                mma<T>(C[a][n / 8], A[a][k], x[0], x[1]);
                mma<T>(C[a][n / 8 + 1], A[a][k], x[2], x[3]);
            }
        }
    }
}

/// Adds dS K to a tile's sums of dQ (algorithm 2, line 15). A warp has 32 rows, and 32 columns at a time.
template <class T, int d, int Bc = Tile<d>::Bc>
__device__ void add_to_dQ(Shared<T, d>& shared, float4* sums, int first_column) {
    constexpr int bands = Tile<d>::Br / 32;
    const int end = first_column + d / Tile<d>::parts;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp % bands * 32;
#pragma unroll 1  // one tile of dQ in registers at a time
    for (int column = first_column + warp / bands * 32; column < end; column += Tile<d>::warps / bands * 32) {
        float dQ[2][4][4] = {};
#pragma unroll
        for (int k = 0; k < Bc; k += 16) {
            std::uint32_t dS[2][1][4];
#pragma unroll
            for (int a = 0; a < 2; ++a) {
                ldmatrix_transposed(dS[a][0], at(shared.dS, k + b_row(lane), row + 16 * a + b_column(lane)));
            }
            add_product(dQ, dS, shared.K, k, column);
        }
#pragma unroll
        for (int c = 0; c < 8; ++c) {
            const float(&x)[4] = dQ[c / 4][c % 4];
            const int fragment = (row / 16 + c / 4) * (d / 8) + column / 8 + c % 4;
            atomic_add(sums + fragment * 32 + lane, {x[0], x[1], x[2], x[3]});
        }
    }
}

/// Writes rows g and g + 8 of each slice times `factor` to rows of X (N, d).
template <class T, int slices, int columns>
__device__ void write_rows(T* X, std::int64_t stride, int first_row, int N, float factor,
                           const float (&C)[slices][columns][4]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int c = 0; c < 2 * slices * columns; ++c) {
        const int n = c % columns, r = c / columns % 2, a = c / columns / 2,
                  row = first_row + 16 * a + g + 8 * r;
        const float* pair = &C[a][n][2 * r];
        if (row < N) store_pair(X + row * stride + 8 * n + 2 * t, pair[0] * factor, pair[1] * factor);
    }
}

/// P^T = exp(S^T scale - L) of the slices from a key on and the columns from a query row on, as first
/// operands of a product. 0 where masked.
template <class T, int slices, int pieces>
__device__ void exponentiate(const Problem& p, bool masked, int key, int row, const float* L,
                             float (&S)[slices][2 * pieces][4], std::uint32_t (&P)[slices][pieces][4]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < 2 * pieces; ++n) {
        const float2 L_n = load_pair(L + 8 * n + 2 * t);
#pragma unroll
        for (int c = 0; c < 4 * slices; ++c)
            S[c / 4][n][c % 4] = S[c / 4][n][c % 4] * (p.scale * log2_e) - (c % 2 == 0 ? L_n.x : L_n.y);
    }
    if (masked) {
#pragma unroll
        for (int c = 0; c < 8 * slices * pieces; ++c) {
            const int a = c / (8 * pieces), n = c / 4 % (2 * pieces);
            const int row_c = row + 8 * n + 2 * t + c % 2, key_c = key + 16 * a + g + 8 * row_of(c);
            if (key_c >= p.Nk || (p.causal && key_c > row_c + p.Nk - p.Nq)) S[a][n][c % 4] = -inf;
        }
    }
#pragma unroll
    for (int c = 0; c < 4 * slices * pieces; ++c) {
        const int a = c / (4 * pieces), n = c / 2 % (2 * pieces), r = c % 2;
        const float* pair = &S[a][n][2 * r];
        P[a][n / 2][n % 2 * 2 + r] = pack<T>(fast_exp2(pair[0]), fast_exp2(pair[1]));
    }
}

/// dS^T = P^T o (dP^T - D), as P^T is a first operand of products, in its place; and into a tile, for dQ.
template <class T, int slices, int pieces, int Bc>
__device__ void differentiate(const float (&dP_less_D)[slices][2 * pieces][4],
                              std::uint32_t (&P)[slices][pieces][4], T (&tile)[Bc][64], int key) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int c = 0; c < 4 * slices * pieces; ++c) {
        const int a = c / (4 * pieces), n = c / 2 % (2 * pieces), r = c % 2;
        std::uint32_t& dS = P[a][n / 2][n % 2 * 2 + r];
        const float2 x = unpack<T>(dS);
        dS = pack<T>(x.x * dP_less_D[a][n][2 * r], x.y * dP_less_D[a][n][2 * r + 1]);
        T* pair = at(tile, key + 16 * a + g + 8 * r, 8 * n) + 2 * t;
        store(reinterpret_cast<std::uint32_t*>(pair), dS);
    }
}

/// dK = scale dS^T Q and dV = P^T dO, over all query heads that share K and V, and what the keys add to dQ.
/// One block per key tile and part of the columns. A warp computes S^T and dP^T of its keys, so that P^T and
/// dS^T are in registers where the products want them.
template <class T, int d, int Br = Tile<d>::Br, int Bc = Tile<d>::Bc>
__global__ void __launch_bounds__(Tile<d>::threads, Tile<d>::resident) gradients(const Problem p) {
    constexpr int slices = Tile<d>::slices, parts = Tile<d>::parts, columns = d / parts;
    auto& shared = shared_memory<Shared<T, d>>();
    const int j = blockIdx.x / parts, first_column = blockIdx.x % parts * columns;
    const int h_kv = blockIdx.y, b = blockIdx.z, group = p.H / p.Hkv;
    const int first = p.causal ? max(0, j * Bc - (p.Nk - p.Nq)) : 0;  // the first row that sees a key
    const int key = 16 * slices * (threadIdx.x / 32);

    load_tile(shared.K, p.K, b, h_kv, j * Bc, p.Nk);
    load_tile(shared.V, p.V, b, h_kv, j * Bc, p.Nk);
    float dK[slices][columns / 8][4] = {}, dV[slices][columns / 8][4] = {};
    for (int h = h_kv * group; h < (h_kv + 1) * group; ++h) {
        for (int i = first / Br; i * Br < p.Nq; ++i) {
            load_queries(shared, p, b, h, i);
            copy_wait();
            __syncthreads();  // all copies of Q, dO, K and V have landed
            const bool masked = (j + 1) * Bc > (p.causal ? min(p.Nk, i * Br + p.Nk - p.Nq + 1) : p.Nk);
            note_tile(shared, b, h, i, j, masked);
            float S[slices][Br / 8][4] = {}, dP[slices][Br / 8][4];
            std::uint32_t A[slices][Br / 16][4];  // P^T, then dS^T
            add_product_of_rows(S, shared.K, key, shared.Q);
            start_below(dP, shared.D);
            add_product_of_rows(dP, shared.V, key, shared.dO);
            exponentiate<T>(p, masked, j * Bc + key, i * Br, shared.L, S, A);
            add_product(dV, A, shared.dO, 0, first_column);
            differentiate(dP, A, shared.dS, key);
            add_product(dK, A, shared.Q, 0, first_column);
            __syncthreads();  // dS is complete; Q and dO have been read
            add_to_dQ(shared, Workspace<d>(p, b, h).fragment(i * Br, 0), first_column);
        }
    }
    T *dK_part = matrix<T>(p.dK, b, h_kv) + first_column, *dV_part = matrix<T>(p.dV, b, h_kv) + first_column;
    write_rows(dK_part, p.dK.row, j * Bc + key, p.Nk, p.scale, dK);
    write_rows(dV_part, p.dV.row, j * Bc + key, p.Nk, 1.0f, dV);
}

/// dQ = scale times its sums, rounded to T. A warp has four fragments, a lane the eight columns of one in
/// rows g and g + 8.
template <class T, int d>
__global__ void __launch_bounds__(row_threads) convert(const Problem p) {
    const int warp = (blockIdx.x * row_threads + threadIdx.x) / 32, lane = threadIdx.x % 32, g = lane / 4;
    const int first_row = warp / (d / 32) * 16, column = warp % (d / 32) * 32 + lane % 4 * 8;
    const int h = blockIdx.y, b = blockIdx.z, row = first_row + g;
    if (first_row >= p.Nq) return;
    const float4* sum = Workspace<d>(p, b, h).fragment(first_row, column) + 4 * g;
    std::uint32_t upper[4], lower[4];  // of rows g and g + 8
#pragma unroll
    for (int t = 0; t < 4; ++t) {
        const float4 x = load(sum + t);
        upper[t] = pack<T>(x.x * p.scale, x.y * p.scale);
        lower[t] = pack<T>(x.z * p.scale, x.w * p.scale);
    }
    T* dQ = matrix<T>(p.dQ, b, h) + row * p.dQ.row + column;
    if (row < p.Nq) store(reinterpret_cast<uint4*>(dQ), {upper[0], upper[1], upper[2], upper[3]});
    if (row + 8 < p.Nq)
        store(reinterpret_cast<uint4*>(dQ + 8 * p.dQ.row), {lower[0], lower[1], lower[2], lower[3]});
}

std::size_t workspace_bytes(const Shape& s, int) {
    return std::size_t(s.B) * s.H * ceil_div(s.Nq, 64) * 64 * (s.d + 2) * sizeof(float);  // Workspace
}

template <class T, int d>
void backward(const Problem& p) {
    const int rows = ceil_div(p.Nq, Tile<d>::Br) * Tile<d>::Br;
    const int blocks = ceil_div(p.Nk, Tile<d>::Bc) * Tile<d>::parts;
    const dim3 by_rows(ceil_div(rows * d / 8, row_threads), p.H, p.B);
    launch(prepare<T, d>, by_rows, row_threads, 0, p);
    launch(gradients<T, d>, dim3(blocks, p.Hkv, p.B), Tile<d>::threads, sizeof(Shared<T, d>), p);
    launch(convert<T, d>, dim3(ceil_div(rows * d / 16, row_threads), p.H, p.B), row_threads, 0, p);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(
    backward, Dims, .number = 43, .name = "dq_fragments", .parent = 41,
    .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc), {64, 64}, {64, 64}, {32, 32}),
    .change = "one kernel by key tiles, which adds to dQ by 16-byte atomics: five products for seven",
    .shows_in = "backward", .pass = Pass::backward,
    .diff_budget = 90,  // a fifth product, and the order of its sums: without it atomics cost more
    .repeats_exactly = false, .workspace_bytes = workspace_bytes);

}  // namespace
