// Stage 59: deterministic at d = 256. Blocks add the parts of a query tile of dQ in a fixed order: key tiles
// from the last one that the tile sees down to the first. Two counters for each query tile, one for the half
// of the columns of each warpgroup, say whose turn it is; a thread for each waits for them.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr int groups = 2;  // warpgroups that multiply
constexpr int threads = 128 * (1 + groups);
constexpr int row_threads = 256;  // of the kernels before and after
constexpr int depth = 2;          // slots of Q and dO

/// Named barriers, by what is true when they are complete. 0 is that of __syncthreads.
enum {
    P_full = 1,         // P has been written, and may be written no more until dS_full
    dS_full = 2,        // dS has been written
    K_empty = 3,        // no warp reads K or V any more
    warpgroup_full = 4  // by warpgroups: what its own warps write is complete
};

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int Br = 64;
    static constexpr int Bc = 64;
};

struct TileIndex {
    int batch, head, tile;
};

/// The order in which blocks take the key tiles of all key/value heads: the last one of each of `section`
/// heads, then the one before.
struct TileOrder {
    int Tc, heads, section;  // heads = B Hkv
    unsigned* taken;         // 0 before and after a launch

    /// The n-th of them
    __device__ TileIndex at(const Problem& p, int n) const {
        const int first = n / (section * Tc) * section, r = n % (section * Tc);
        const int together = min(section, heads - first), head = first + r % together;
        return {head / p.Hkv, head % p.Hkv, Tc - 1 - r / together};
    }
};

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    alignas(1024) T K[d / 64][64][64];  // then dK
    alignas(1024) T V[d / 64][64][64];  // then dV
    alignas(1024) T Q[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dO[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dS[Tile<d>::Br][64];       // rows are queries
    alignas(1024) std::uint32_t P[4][128][4];  // P^T, as the threads of a warpgroup hold it
    float L[depth][Tile<d>::Br], D[depth][Tile<d>::Br];
    int number;  // of the block, in the order in which they begin
    Mbarrier keys_full, full[depth], empty[depth], turn[groups], added[groups];
};

struct Maps {
    TensorMap Q, K, V, dO, dK, dV;
};

/// The address in fp32 sums (rows, d) of the 16 x 8 fragment at this row and column. Sums lie in panels of
/// 64 x 64, and in a panel as the lanes of a warp hold them: lane 0's float4, then those of the other lanes.
template <int d>
__device__ int fragment(int row, int column) {
    const int panel = row / 64 * (d / 64) + column / 64;
    return (panel * 32 + row % 64 / 16 * 8 + column % 64 / 8) * 32;
}

/// The workspace of a head, with rows rounded up to whole tiles.
template <int d>
struct Sums {
    float4* dQ;    // dQ / scale, by fragments
    float *L, *D;  // L in base 2; inf past the last row
    /// At the first rows of a query tile, by halves: how many key tiles are in its sums
    unsigned* added;

    __device__ Sums(const Problem& p, int b, int h) {
        const std::int64_t rows = ceil_div(p.Nq, Tile<d>::Br) * Tile<d>::Br, all = rows * p.B * p.H,
                           head = (std::int64_t{b} * p.H + h) * rows;
        float* first = static_cast<float*>(p.workspace);
        dQ = reinterpret_cast<float4*>(first + head * d);
        L = first + all * d + head;
        D = L + all;
        added = reinterpret_cast<unsigned*>(D + all);
    }
};

/// D = rowsum(dO o O) (algorithm 2, line 4), L in base 2, and dQ = 0, of no key tiles. d / 8 threads per row.
template <class T, int d>
__global__ void __launch_bounds__(row_threads) prepare(const Problem p) {
    constexpr int lanes = d / 8;
    const int row = blockIdx.x * (row_threads / lanes) + threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const int h = blockIdx.y, b = blockIdx.z;
    const Sums<d> sums(p, b, h);
    float D = 0.0f;
    if (row < p.Nq) {
        const auto read = [&](const View& X) {
            return load(reinterpret_cast<const uint4*>(matrix<T>(X, b, h) + row * X.row + 8 * lane));
        };
        const uint4 x = read(p.dO), y = read(p.O);
        const std::uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const float2 dO = unpack<T>(xs[n]), O = unpack<T>(ys[n]);
            D += dO.x * O.x + dO.y * O.y;
        }
    }
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) D += __shfl_xor_sync(~0u, D, step);
    if (row >= ceil_div(p.Nq, Tile<d>::Br) * Tile<d>::Br) return;
    if (lane == 0) {
        const float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + row;
        store(sums.L + row, row < p.Nq ? load(L) * log2_e : inf);
        store(sums.D + row, D);
        store(sums.added + row, 0u);
    }
    float4* dQ = sums.dQ + row * (d / 4) + lane;
    store(dQ, {0.0f, 0.0f, 0.0f, 0.0f});
    store(dQ + lanes, {0.0f, 0.0f, 0.0f, 0.0f});
}

/// Starts copying query tile i of head h, the block's k-th: Q, dO, L and D.
template <int d, class Shared>
__device__ void load_queries(Shared& shared, const Problem& p, const Maps& maps, int b, int h, int i, int k) {
    const int slot = k % depth, row = i * Tile<d>::Br;
    const Sums<d> sums(p, b, h);
    Mbarrier* full = &shared.full[slot];
    mbarrier_try_wait(&shared.empty[slot], k / depth - 1);  // tile k - depth has been read
    mbarrier_expect(full, sizeof shared.Q[0] + sizeof shared.dO[0] + sizeof shared.L[0] + sizeof shared.D[0]);
    bulk_load(shared.Q[slot], &maps.Q, row, h, b, full);
    bulk_load(shared.dO[slot], &maps.dO, row, h, b, full);
    bulk_load(shared.L[slot], sums.L + row, sizeof shared.L[0], full);
    bulk_load(shared.D[slot], sums.D + row, sizeof shared.D[0], full);
}

/// Starts C = X Y^T, for this warpgroup's 64 rows of X and Br rows of Y.
template <class T, int d, int Br = Tile<d>::Br>
__device__ void multiply_rows(Descriptor X, Descriptor Y, float (&C)[Br / 2]) {
#pragma unroll
    for (int c = 0; c < d; c += 16) wgmma<T, Br, false>(C, X.column<64>(c), Y.column<Br>(c), c > 0);
    wgmma_commit();
}

/// C += A X for `rows` columns of A (64, Br), which is in registers, from `first` on, and as many rows of X
/// (Br, d). Starts it.
template <class T, int d, int rows = Tile<d>::Br, int Br = Tile<d>::Br>
__device__ void add_product(const std::uint32_t (&A)[Br / 4], const T (&X)[d / 64][Br][64], float (&C)[d / 2],
                            int first = 0) {
    const Descriptor x = matrix_descriptor(X, Br);
#pragma unroll
    for (int k = first; k < first + rows; k += 16) wgmma<T, d, true>(C, &A[k / 4], x.row(k), true);
    wgmma_commit();
}

/// Turns 64 columns of this warpgroup's S^T (64, Br), queries from 64 half on, into P^T = exp(scale S^T - L),
/// 0 where masked, and rounds them. Lanes hold keys g and g + 8 of their warp's 16.
template <class T, int Br>
__device__ void exponentiate(const Problem& p, int first_key, int first_row, bool masked, int half,
                             const float2 (&L)[8], float (&S)[Br / 2], std::uint32_t (&P)[Br / 4]) {
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4,
              end = 32 * half + 32;
    const float scale = p.scale * log2_e;
#pragma unroll
    for (int c = 32 * half; c < end; ++c) {
        S[c] = S[c] * scale - (c % 2 == 0 ? L[c % 32 / 4].x : L[c % 32 / 4].y);
    }
    if (masked) {
        int begin[2];  // the first of this lane's columns, queries, that sees the key
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int key = first_key + 16 * warp + g + 8 * r;
            begin[r] = key >= p.Nk ? Br : p.causal ? key - (p.Nk - p.Nq) - first_row - 2 * t : 0;
        }
#pragma unroll
        for (int c = 32 * half; c < end; ++c) {
            if (column_of(c) < begin[row_of(c)]) S[c] = -inf;
        }
    }
#pragma unroll
    for (int c = 32 * half; c < end; c += 2) {
        S[c] = fast_exp2(S[c]), S[c + 1] = fast_exp2(S[c + 1]);
        P[c / 2] = pack<T>(S[c], S[c + 1]);
    }
}

/// Writes this warpgroup's dS^T (64, Br) to shared memory as dS, rows by queries.
template <class T, int Br>
__device__ void write_transposed(const std::uint32_t (&dS)[Br / 4], T (&to)[Br][64]) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < Br; n += 16) {  // 16 keys by 16 queries
        const std::uint32_t x[4] = {dS[n / 4], dS[n / 4 + 1], dS[n / 4 + 2], dS[n / 4 + 3]};
        const int row = n + b_row(lane), key = 16 * warp + b_column(lane);
        stmatrix_transposed(&to[row][key ^ row % 8 * 8], x);
    }
}

/// Writes C (64, d) of this warpgroup times a factor to a tile in shared memory.
template <class T, int d>
__device__ void write_tile(const float (&C)[d / 2], float factor, T (&to)[d / 64][64][64]) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < d / 2; c += 8) {
        std::uint32_t x[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) x[n] = pack<T>(C[c + 2 * n] * factor, C[c + 2 * n + 1] * factor);
        const int row = 16 * warp + a_row(lane), column = 2 * c % 64 + a_column(lane);
        stmatrix(&to[2 * c / 64][row][column ^ row % 8 * 8], x);
    }
}

/// Tells warpgroup G whenever it may add to dQ, and the next block when it has. One thread.
template <class T, int d>
__device__ void take_turns(Shared<T, d>& shared, const Problem& p, int b, int h, int first, int j, int total,
                           int G) {
    const int tiles = ceil_div(p.Nq, Tile<d>::Br) - first;
#pragma unroll 1  // each step waits: copies of the body would gain nothing
    for (int k = 0; k < total; ++k) {
        const int i = first + k % tiles;
        unsigned* added = Sums<d>(p, b, h + k / tiles).added + i * Tile<d>::Br + G;
        const int end = p.causal ? min(p.Nk, (i + 1) * Tile<d>::Br + p.Nk - p.Nq) : p.Nk;
        wait_for_count(added, ceil_div(end, Tile<d>::Bc) - 1 - j);  // the key tiles past j that it sees
        mbarrier_arrive(&shared.turn[G]);
        mbarrier_try_wait(&shared.added[G], k);
        raise_count(added);
    }
}

/// A block computes dK and dV of a key tile, and adds to dQ of each query tile that sees it.
/// - Producer: copies K and V, then Q, dO, L and D of each query tile into the next slots of a ring.
/// - Warpgroup 0 accumulates dV: P^T from S^T = K Q^T, which it hands over (P_full), and dV += P^T dO.
/// - Warpgroup 1 accumulates dK: dS^T from dP^T = V dO^T and P^T, for both (dS_full), and dK += dS^T Q.
/// - Each multiplies half of the columns of dQ = dS K, and adds them to the sums when take_turns() lets it.
/// A slot's life: the producer waits for `empty` and starts the copies; `full` completes when all bytes have
/// arrived; consumers multiply, and all their threads arrive at `empty` after the last product that reads it.
template <class T, int d>
__global__ void __launch_bounds__(threads, 1)
    gradients(const Problem p, const __grid_constant__ Maps maps, const TileOrder order) {
    constexpr int Br = Tile<d>::Br, Bc = Tile<d>::Bc;
    const int Tr = ceil_div(p.Nq, Br);
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    if (threadIdx.x == 0) {
        store(&shared.number, int(atomicInc(order.taken, gridDim.x - 1)));
        mbarrier_init(&shared.keys_full, 1);
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.full[slot], 1);
            mbarrier_init(&shared.empty[slot], 128 * groups);
        }
        for (int g = 0; g < groups; ++g) {
            mbarrier_init(&shared.turn[g], 1);
            mbarrier_init(&shared.added[g], 128);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up, and the block has its number
    const TileIndex tile = order.at(p, uniform(load(&shared.number)));
    const int j = tile.tile, h_kv = tile.head, b = tile.batch, heads = p.H / p.Hkv;
    // The first query tile that sees a key, and how many tiles there are, over all heads of the group
    const int first = p.causal ? max(0, j * Bc - (p.Nk - p.Nq)) / Br : 0;
    const int total = (Tr - first) * heads, group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<24>();
        const int warp = threadIdx.x / 32;
        if (threadIdx.x % 32 > 0 || warp > groups) return;
        if (warp > 0) return take_turns<T, d>(shared, p, b, h_kv * heads, first, j, total, warp - 1);
        mbarrier_expect(&shared.keys_full, sizeof shared.K + sizeof shared.V);
        bulk_load(shared.K, &maps.K, j * Bc, h_kv, b, &shared.keys_full);
        bulk_load(shared.V, &maps.V, j * Bc, h_kv, b, &shared.keys_full);
        int i = first, h = h_kv * heads;
#pragma unroll 1  // each step waits: copies of the body would gain nothing
        for (int k = 0; k < total; ++k) {
            load_queries<d>(shared, p, maps, b, h, i, k);
            if (++i == Tr) i = first, ++h;
        }
        return;
    }

    claim_registers<240>();
    const int G = group - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, t = lane % 4;
    float sum[d / 2] = {};  // dV or dK, (64, d)
    int i = first, h = h_kv * heads;
    const auto add_to_dQ = [&](auto& A, int k, int slot) {  // and waits for all products
        float dQ[64];                                       // (64, 128)
        const Descriptor a = matrix_descriptor(shared.dS), x = matrix_descriptor(shared.K, 64).row(128 * G);
        wgmma_fence();
#pragma unroll
        for (int c = 0; c < Bc; c += 16) wgmma<T, 128, true>(dQ, a.column<64>(c), x.row(c), c > 0);
        wgmma_commit();
        wgmma_wait<0>(dQ);
        fence_operand(A), fence_operand(sum);
        mbarrier_arrive(&shared.empty[slot]);
        float4* to = Sums<d>(p, b, h).dQ + fragment<d>(i * Br + 16 * warp, 128 * G) + lane;
        mbarrier_try_wait(&shared.turn[G], k);
#pragma unroll
        for (int c = 0; c < 64; c += 4) {
            atomic_add(to + fragment<d>(0, 2 * c), {dQ[c], dQ[c + 1], dQ[c + 2], dQ[c + 3]});
        }
        mbarrier_arrive(&shared.added[G]);
        if (++i == Tr) i = first, ++h;
    };
    mbarrier_try_wait(&shared.keys_full, 0);
    if (G == 0) {
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
        for (int k = 0; k < total; ++k) {
            const int slot = uniform(k) % depth;
            float S[Br / 2];  // transposed: (64 keys, 64 queries)
            std::uint32_t P[Br / 4];
            mbarrier_try_wait(&shared.full[slot], k / depth);
            wgmma_fence();
            multiply_rows<T, d>(matrix_descriptor(shared.K), matrix_descriptor(shared.Q[slot]), S);
            const bool masked = (j + 1) * Bc > (p.causal ? min(p.Nk, i * Br + p.Nk - p.Nq + 1) : p.Nk);
            note_tile<64, Br>(b, h, i * Br, j, masked);
            wgmma_wait<0>(S);
            float2 L[8];
#pragma unroll
            for (int c = 0; c < 8; ++c) L[c] = load_pair(&shared.L[slot][8 * c + 2 * t]);
            exponentiate<T, Br>(p, j * Bc, i * Br, masked, 0, L, S, P);
#pragma unroll
            for (int c = 0; c < Br / 4; c += 4) {
                auto* to = reinterpret_cast<uint4*>(shared.P[c / 4][threadIdx.x % 128]);
                store(to, {P[c], P[c + 1], P[c + 2], P[c + 3]});
            }
            named_barrier_arrive(P_full, 128 * groups);
            wgmma_fence();
            add_product<T, d>(P, shared.dO[slot], sum);
            named_barrier_sync(dS_full, 128 * groups);
            add_to_dQ(P, k, slot);
        }
    } else {
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
        for (int k = 0; k < total; ++k) {
            const int slot = uniform(k) % depth;
            float dP[Br / 2];  // transposed: (64 keys, 64 queries)
            std::uint32_t dS[Br / 4];
            mbarrier_try_wait(&shared.full[slot], k / depth);
            wgmma_fence();
            multiply_rows<T, d>(matrix_descriptor(shared.V), matrix_descriptor(shared.dO[slot]), dP);
            wgmma_wait<0>(dP);
            named_barrier_sync(P_full, 128 * groups);
#pragma unroll
            for (int c = 0; c < Br / 2; c += 8) {
                const uint4 P = load(reinterpret_cast<const uint4*>(shared.P[c / 8][threadIdx.x % 128]));
                const std::uint32_t pairs[4] = {P.x, P.y, P.z, P.w};
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    const float* D_n = &shared.D[slot][2 * c + n / 2 * 8 + 2 * t];
                    const float2 D = load_pair(D_n), x = unpack<T>(pairs[n]);
                    dS[c / 2 + n] = pack<T>(x.x * (dP[c + 2 * n] - D.x), x.y * (dP[c + 2 * n + 1] - D.y));
                }
            }
            write_transposed(dS, shared.dS);
            fence_proxy_async();
            named_barrier_arrive(dS_full, 128 * groups);  // for the other warpgroup
            named_barrier_sync(warpgroup_full + G, 128);  // for this one
            wgmma_fence();
            add_product<T, d>(dS, shared.Q[slot], sum);
            add_to_dQ(dS, k, slot);
        }
    }
    named_barrier_sync(K_empty, 128 * groups);
    auto& gradient = G == 0 ? shared.V : shared.K;
    write_tile<T, d>(sum, G == 0 ? 1.0f : p.scale, gradient);
    fence_proxy_async();
    named_barrier_sync(warpgroup_full + G, 128);
    if (threadIdx.x % 128 == 0) {
        bulk_store(G == 0 ? &maps.dV : &maps.dK, gradient, 0, j * Bc, h_kv, b);
        bulk_commit();
        bulk_wait_read<0>();
    }
}

/// X (B, heads, N, d) = `factor` times its sums, rounded to T. A warp converts four fragments, a lane the
/// eight columns of one in rows g and g + 8.
template <class T, int d>
__global__ void __launch_bounds__(row_threads)
    convert(const View X, int N, std::int64_t rows, const float4* sums, float factor) {
    const int warp = (blockIdx.x * row_threads + threadIdx.x) / 32, lane = threadIdx.x % 32, g = lane / 4;
    const int first_row = warp / (d / 32) * 16, column = warp % (d / 32) * 32 + lane % 4 * 8;
    const int h = blockIdx.y, b = blockIdx.z;
    if (first_row >= N) return;
    const float4* sum = sums + (b * gridDim.y + h) * rows * (d / 4) + fragment<d>(first_row, column) + 4 * g;
    std::uint32_t upper[4], lower[4];  // of rows g and g + 8
#pragma unroll
    for (int t = 0; t < 4; ++t) {
        const float4 x = load(sum + t);
        upper[t] = pack<T>(x.x * factor, x.y * factor);
        lower[t] = pack<T>(x.z * factor, x.w * factor);
    }
    T* x = matrix<T>(X, b, h) + (first_row + g) * X.row + column;
    if (first_row + g < N) store(reinterpret_cast<uint4*>(x), {upper[0], upper[1], upper[2], upper[3]});
    if (first_row + g + 8 < N) {
        store(reinterpret_cast<uint4*>(x + 8 * X.row), {lower[0], lower[1], lower[2], lower[3]});
    }
}

std::size_t counter_bytes(const Shape&, int) {
    return sizeof(unsigned);  // TileOrder::taken
}

std::size_t workspace_bytes(const Shape& s, int) {
    constexpr int Br = Tile<256>::Br;
    return std::size_t(s.B) * s.H * ceil_div(s.Nq, Br) * Br * (s.d + 3) * sizeof(float) +
           counter_bytes(s, 0);  // Sums
}

template <class T, int d>
void backward(const Problem& p) {
    constexpr int Br = Tile<d>::Br;
    const int rows = ceil_div(p.Nq, Br) * Br, Tc = ceil_div(p.Nk, Tile<d>::Bc);
    const double bytes = 8.0 * p.Nq * d * p.H / p.Hkv;  // of Q, dO and dQ, per key/value head
    const int heads = p.B * p.Hkv, section = int(std::clamp((16 << 20) / bytes, 1.0, double(heads)));
    std::byte* end = static_cast<std::byte*>(p.workspace) + workspace_bytes(p, p.sm_count);
    const TileOrder order = {Tc, heads, section, reinterpret_cast<unsigned*>(end) - 1};
    const Maps maps = {
        tensor_map<T, d>(p.Q, p.B, p.H, p.Nq, Br),    tensor_map<T, d>(p.K, p.B, p.Hkv, p.Nk, 64),
        tensor_map<T, d>(p.V, p.B, p.Hkv, p.Nk, 64),  tensor_map<T, d>(p.dO, p.B, p.H, p.Nq, Br),
        tensor_map<T, d>(p.dK, p.B, p.Hkv, p.Nk, 64), tensor_map<T, d>(p.dV, p.B, p.Hkv, p.Nk, 64)};
    launch(prepare<T, d>, dim3(ceil_div(rows, row_threads / (d / 8)), p.H, p.B), row_threads, 0, p);
    launch(gradients<T, d>, dim3(Tc * heads), threads, sizeof(Shared<T, d>), p, maps, order);
    launch(convert<T, d>, dim3(ceil_div(rows, row_threads / (d / 16)), p.H, p.B), row_threads, 0, p.dQ, p.Nq,
           rows, static_cast<const float4*>(p.workspace), p.scale);
}

using Dims = HeadDims<256>;
LADDER_STAGE(backward, Dims, .number = 59, .name = "deterministic_wide", .parent = 57,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {64, 64, 2}),
             .change = "d = 256: dQ is added in a fixed order, each half of its columns in turns",
             .shows_in = "backward-wide", .pass = Pass::backward, .most_lines = 500,  // adds dQ in turns
             .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
