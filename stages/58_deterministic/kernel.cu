// Stage 58: deterministic. A query tile's dQ is added up in one order, the last key tile first: a counter
// says how many parts are in, and whose is next waits for it. So every run gives the same bits. Threads that
// do not multiply do the waiting. Blocks take key tiles in that order, so whom a block waits for has begun
// before it; under a mask they have also begun at an earlier query tile.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr int groups = 2;  // warpgroups that multiply, of 64 keys each
constexpr int threads = 128 * (1 + groups);
constexpr int row_threads = 256;  // of the kernels before and after
constexpr int depth = 2;          // slots of Q and dO

/// All that depends on d.
template <int d>
struct Tile {
    static constexpr int Br = d == 64 ? 128 : 64;
    static constexpr int Bc = d <= 128 ? 64 * groups : 64;
    static constexpr int parts = d <= 128 ? 1 : groups;  // that dQ of a query tile is added in, each in turn
};

/// Tiles are panels of 64 columns: rows of 128 bytes, swizzled as tensor maps and wgmma know it.
template <class T, int d>
struct Shared {
    alignas(1024) T K[groups][d / 64][64][64];  // then dK
    alignas(1024) T V[groups][d / 64][64][64];  // then dV
    alignas(1024) T Q[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dO[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dS[depth][groups][Tile<d>::Br][64];  // rows are queries, a panel the keys of a warpgroup
    alignas(1024) float dQ[groups][Tile<d>::Br / 16][d / 8][32][4];  // a warpgroup's, on their way out
    float L[depth][Tile<d>::Br], D[depth][Tile<d>::Br];
    int4 mine;  // the block's batch entry, head and key tile
    Mbarrier keys_full, full[depth], empty[depth], dQ_full[groups], dQ_empty[groups];
};

struct Maps {
    TensorMap Q, K, V, dO, dK, dV;
};

/// What the workspace holds of a head, its rows rounded up to whole tiles.
template <int d>
struct Sums {
    float4* dQ;       // dQ / scale, by fragments of 16 rows and 8 columns, as the lanes of a warp have them
    float *L, *D;     // L in base 2; inf past the last row
    unsigned* added;  // by parts of query tiles: how many key tiles are in the sums

    __device__ Sums(const Problem& p, int b, int h) {
        const int Tr = ceil_div(p.Nq, Tile<d>::Br);
        const std::int64_t rows = Tr * Tile<d>::Br, all = rows * p.B * p.H,
                           head = (std::int64_t{b} * p.H + h) * rows;
        float* first = static_cast<float*>(p.workspace);
        dQ = reinterpret_cast<float4*>(first + head * d);
        L = first + all * d + head;
        D = L + all;
        added = reinterpret_cast<unsigned*>(first + all * (d + 2)) +
                (std::int64_t{b} * p.H + h) * Tr * Tile<d>::parts;
    }

    /// What lane 0 has of the fragment whose first row and column these are. The other lanes' follow.
    __device__ float4* fragment(int row, int column) const {
        return dQ + (row / 16 * (d / 8) + column / 8) * 32;
    }
};

/// The key tiles of all key/value heads, in the order in which blocks take them: the last one of each of
/// `section` heads, then the one before.
struct KeyTiles {
    int Tc, heads, section, total;  // heads = B Hkv, total = Tc heads
    unsigned* taken;                // 0 before and after

    /// Batch entry, key/value head and key tile of number n
    __device__ int4 at(const Problem& p, int n) const {
        const int first = n / (section * Tc) * section, r = n % (section * Tc);
        const int together = min(section, heads - first), head = first + r % together;
        return make_int4(head / p.Hkv, head % p.Hkv, Tc - 1 - r / together, 0);
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
        constexpr int Br = Tile<d>::Br, parts = Tile<d>::parts;
        if (row % Br < parts) store(sums.added + row / Br * parts + row % Br, 0u);
    }
    float4* dQ = sums.dQ + row * (d / 4) + lane;
    store(dQ, {0.0f, 0.0f, 0.0f, 0.0f});
    store(dQ + lanes, {0.0f, 0.0f, 0.0f, 0.0f});
}

/// How many key tiles come before j in the sums of query tile i: those after it, as far as the tile sees
/// them.
template <int d>
__device__ int key_tiles_before(const Problem& p, int i, int j) {
    const int end = p.causal ? min(p.Nk, (i + 1) * Tile<d>::Br + p.Nk - p.Nq) : p.Nk;
    return ceil_div(end, Tile<d>::Bc) - 1 - j;
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

/// C = X Y^T for 64 rows of X, those of this warpgroup, and Br of Y. Starts it.
template <class T, int d, int Br = Tile<d>::Br>
__device__ void multiply_rows(const T (&X)[d / 64][64][64], const T (&Y)[d / 64][Br][64],
                              float (&C)[Br / 2]) {
    const Descriptor x = matrix_descriptor(X), y = matrix_descriptor(Y);
#pragma unroll
    for (int c = 0; c < d; c += 16) {
        wgmma<T, Br, false>(C, x.column<64>(c), y.column<Br>(c), c > 0);
    }
    wgmma_commit();
}

/// C += A X for A (64, Br) in registers and X (Br, d). Starts it.
template <class T, int d, int Br = Tile<d>::Br>
__device__ void add_product(const std::uint32_t (&A)[Br / 4], const T (&X)[d / 64][Br][64],
                            float (&C)[d / 2]) {
    const Descriptor x = matrix_descriptor(X, Br);
#pragma unroll
    for (int k = 0; k < Br; k += 16) wgmma<T, d, true>(C, &A[k / 4], x.row(k), true);
    wgmma_commit();
}

/// Turns this warpgroup's S^T (64, Br) into P^T = exp(scale S^T - L), 0 where masked. Lanes hold keys g and
/// g + 8 of their warp's 16.
template <int Br>
__device__ void exponentiate(const Problem& p, int first_key, int first_row, bool masked,
                             const float (&L)[Br], float (&S)[Br / 2]) {
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float scale = p.scale * log2_e;
#pragma unroll
    for (int c = 0; c < Br / 2; c += 4) {
        const float2 x = load_pair(&L[2 * c + 2 * t]);
#pragma unroll
        for (int n = 0; n < 4; ++n) S[c + n] = S[c + n] * scale - (n % 2 == 0 ? x.x : x.y);
    }
    if (masked) {
        int begin[2];  // the first of this lane's columns, queries, that sees the key
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int key = first_key + 16 * warp + g + 8 * r;
            begin[r] = key >= p.Nk ? Br : p.causal ? key - (p.Nk - p.Nq) - first_row - 2 * t : 0;
        }
#pragma unroll
        for (int c = 0; c < Br / 2; ++c) {
            if (column_of(c) < begin[row_of(c)]) S[c] = -inf;
        }
    }
#pragma unroll
    for (int c = 0; c < Br / 2; ++c) S[c] = fast_exp2(S[c]);
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

/// Adds what warpgroup G computes of dQ to the sums, each tile in its turn. One thread.
template <class T, int d>
__device__ void send_dQ(Shared<T, d>& shared, const Problem& p, int b, int h, int first, int j, int total,
                        int G) {
    const int tiles = ceil_div(p.Nq, Tile<d>::Br) - first;
#pragma unroll 1
    for (int k = G; k < total; k += groups) {
        const int i = first + k % tiles;
        const Sums<d> sums(p, b, h + k / tiles);
        mbarrier_try_wait(&shared.dQ_full[G], k / groups);
        wait_for_count(sums.added + i, key_tiles_before<d>(p, i, j));
        bulk_add(&sums.fragment(i * Tile<d>::Br, 0)->x, shared.dQ[G][0][0][0], sizeof shared.dQ[G]);
        bulk_commit();
        bulk_wait_read<0>();
        mbarrier_arrive(&shared.dQ_empty[G]);
        bulk_wait<0>();
        raise_count(sums.added + i);
    }
}

template <class T, int d>
__global__ void __launch_bounds__(threads, 1)
    gradients(const Problem p, const __grid_constant__ Maps maps, const KeyTiles tiles) {
    constexpr int Br = Tile<d>::Br, Bc = Tile<d>::Bc;
    const int Tr = ceil_div(p.Nq, Br);
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    if (threadIdx.x == 0) {
        store(&shared.mine, tiles.at(p, int(atomicInc(tiles.taken, tiles.total - 1))));
        mbarrier_init(&shared.keys_full, 1);
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.full[slot], 1);
            mbarrier_init(&shared.empty[slot], 128 * groups);
        }
        for (int g = 0; g < groups; ++g) {
            mbarrier_init(&shared.dQ_full[g], 128);
            mbarrier_init(&shared.dQ_empty[g], 1);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up, and the block has its key tile
    const int4 mine = load(&shared.mine);
    const int b = uniform(mine.x), h_kv = uniform(mine.y), j = uniform(mine.z), heads = p.H / p.Hkv;
    // The first query tile that sees a key, and how many tiles there are, over all heads of the group
    const int first = p.causal ? max(0, j * Bc - (p.Nk - p.Nq)) / Br : 0;
    const int total = (Tr - first) * heads, group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<24>();
        const int warp = threadIdx.x / 32;
        if (threadIdx.x % 32 > 0 || warp > groups) return;
        if (warp > 0) return send_dQ<T, d>(shared, p, b, h_kv * heads, first, j, total, warp - 1);
        mbarrier_expect(&shared.keys_full, sizeof shared.K + sizeof shared.V);
        for (int g = 0; g < groups; ++g) {
            bulk_load(shared.K[g], &maps.K, j * Bc + 64 * g, h_kv, b, &shared.keys_full);
            bulk_load(shared.V[g], &maps.V, j * Bc + 64 * g, h_kv, b, &shared.keys_full);
        }
        int i = first, h = h_kv * heads;
#pragma unroll 1
        for (int k = 0; k < total; ++k) {
            load_queries<d>(shared, p, maps, b, h, i, k);
            if (++i == Tr) i = first, ++h;
        }
        return;
    }

    claim_registers<240>();
    const int G = group - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, t = lane % 4;
    const int first_key = j * Bc + 64 * G;
    float dK[d / 2] = {}, dV[d / 2] = {};  // (64, d)
    mbarrier_try_wait(&shared.keys_full, 0);
    int k = 0, i = first, h = h_kv * heads;
    const auto fold = [&](auto computes) {
        constexpr bool computes_dq = decltype(computes)::value;
        const int slot = uniform(k) % depth;
        float S[Br / 2], dP[Br / 2];  // transposed: (64 keys, Br queries)
        std::uint32_t P[Br / 4], dS[Br / 4];
        mbarrier_try_wait(&shared.full[slot], k / depth);
        wgmma_fence();
        multiply_rows<T, d>(shared.K[G], shared.Q[slot], S);
        multiply_rows<T, d>(shared.V[G], shared.dO[slot], dP);
        const bool masked = (j + 1) * Bc > (p.causal ? min(p.Nk, i * Br + p.Nk - p.Nq + 1) : p.Nk);
        note_tile<64, Br>(b, h, i * Br, 2 * j + G, masked);
        wgmma_wait<1>(S);
        exponentiate(p, first_key, i * Br, masked, shared.L[slot], S);  // now P
        wgmma_wait<0>(dP);
#pragma unroll
        for (int c = 0; c < Br / 2; c += 4) {
            const float2 D = load_pair(&shared.D[slot][2 * c + 2 * t]);
            P[c / 2] = pack<T>(S[c], S[c + 1]);
            P[c / 2 + 1] = pack<T>(S[c + 2], S[c + 3]);
            dS[c / 2] = pack<T>(S[c] * (dP[c] - D.x), S[c + 1] * (dP[c + 1] - D.y));
            dS[c / 2 + 1] = pack<T>(S[c + 2] * (dP[c + 2] - D.x), S[c + 3] * (dP[c + 3] - D.y));
        }
        wgmma_fence();
        add_product<T, d>(P, shared.dO[slot], dV);
        write_transposed(dS, shared.dS[slot][G]);
        fence_proxy_async();
        if constexpr (!computes_dq) named_barrier_arrive(1 + slot, 128 * groups);  // our dS is complete
        wgmma_fence();
        add_product<T, d>(dS, shared.Q[slot], dK);
        wgmma_wait<0>(dK);
        fence_operand(P), fence_operand(dS), fence_operand(dV);
        mbarrier_arrive(&shared.empty[slot]);
        if constexpr (computes_dq) {
            named_barrier_sync(1 + slot, 128 * groups);  // dS of all keys is complete
            float dQ[Br / 64][d / 2];                    // (Br, d)
            const Descriptor a = matrix_descriptor(shared.dS[slot]), x = matrix_descriptor(shared.K, 64);
            wgmma_fence();
#pragma unroll
            for (int c = 0; c < Bc; c += 16) {
#pragma unroll
                for (int m = 0; m < Br / 64; ++m) {
                    wgmma<T, d, true>(dQ[m], a.column<Br>(c).row(64 * m), x.row(c / 64 * d + c % 64), c > 0);
                }
            }
            wgmma_commit();
            mbarrier_try_wait(&shared.dQ_empty[G], k / groups - 1);  // its sums before have been read
#pragma unroll
            for (int m = 0; m < Br / 64; ++m) {
                wgmma_wait<0>(dQ[m]);
#pragma unroll
                for (int c = 0; c < d / 2; c += 4) {
                    store(reinterpret_cast<float4*>(shared.dQ[G][4 * m + warp][c / 4][lane]),
                          {dQ[m][c], dQ[m][c + 1], dQ[m][c + 2], dQ[m][c + 3]});
                }
            }
            fence_proxy_async();
            mbarrier_arrive(&shared.dQ_full[G]);
        }
        if (++i == Tr) i = first, ++h;
        ++k;
    };
    const auto fold_all = [&](auto even, auto odd) {
#pragma unroll 1
        while (k + 1 < total) fold(even), fold(odd);
        if (k < total) fold(even);
    };
    if (G == 0) {
        fold_all(std::true_type{}, std::false_type{});
    } else {
        fold_all(std::false_type{}, std::true_type{});
    }
    named_barrier_sync(3, 128 * groups);  // no warp reads K any more
    write_tile<T, d>(dK, p.scale, shared.K[G]);
    write_tile<T, d>(dV, 1.0f, shared.V[G]);
    fence_proxy_async();
    named_barrier_sync(4 + G, 128);  // the warpgroup's rows of dK and dV are complete
    if (threadIdx.x % 128 == 0) {
        bulk_store(&maps.dK, shared.K[G], 0, first_key, h_kv, b);
        bulk_store(&maps.dV, shared.V[G], 0, first_key, h_kv, b);
        bulk_commit();
        bulk_wait_read<0>();
    }
}

/// All of a block at d = 256, which has 64 keys.
template <class T, int d>
struct WideShared {
    alignas(1024) T K[d / 64][64][64];  // then dK
    alignas(1024) T V[d / 64][64][64];  // then dV
    alignas(1024) T Q[depth][d / 64][64][64];
    alignas(1024) T dO[depth][d / 64][64][64];
    alignas(1024) T dS[64][64];                // rows are queries
    alignas(1024) std::uint32_t P[4][128][4];  // P^T, as the threads of a warpgroup have it
    float L[depth][64], D[depth][64];
    int4 mine;  // the block's batch entry, head and key tile
    Mbarrier keys_full, full[depth], empty[depth], turn[groups], added[groups];
};

/// Tells warpgroup G whenever it may add to dQ, and the next block when it has. One thread.
template <class T, int d>
__device__ void take_turns(WideShared<T, d>& shared, const Problem& p, int b, int h, int first, int j,
                           int total, int G) {
    const int tiles = ceil_div(p.Nq, Tile<d>::Br) - first;
#pragma unroll 1
    for (int k = 0; k < total; ++k) {
        const int i = first + k % tiles;
        unsigned* added = Sums<d>(p, b, h + k / tiles).added + i * groups + G;
        wait_for_count(added, key_tiles_before<d>(p, i, j));
        mbarrier_arrive(&shared.turn[G]);
        mbarrier_try_wait(&shared.added[G], k);
        raise_count(added);
    }
}

/// The same for d = 256, one block per key tile. Warpgroup 0 has dV and computes P, warpgroup 1 has dK and
/// computes dS.
template <class T, int d>
__global__ void __launch_bounds__(threads, 1)
    wide_gradients(const Problem p, const __grid_constant__ Maps maps, const KeyTiles tiles) {
    constexpr int Br = Tile<d>::Br, Bc = Tile<d>::Bc;
    const int Tr = ceil_div(p.Nq, Br);
    auto& shared = aligned_shared_memory<WideShared<T, d>>();
    if (threadIdx.x == 0) {
        store(&shared.mine, tiles.at(p, int(atomicInc(tiles.taken, tiles.total - 1))));
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
    __syncthreads();  // the mbarriers are set up, and the block has its key tile
    const int4 mine = load(&shared.mine);
    const int b = uniform(mine.x), h_kv = uniform(mine.y), j = uniform(mine.z), heads = p.H / p.Hkv;
    const int first = p.causal ? max(0, j * Bc - (p.Nk - p.Nq)) / Br : 0;
    const int total = (Tr - first) * heads, group = uniform(threadIdx.x / 128);
    int i = first, h = h_kv * heads;
    if (group == 0) {
        release_registers<24>();
        const int warp = threadIdx.x / 32;
        if (threadIdx.x % 32 > 0 || warp > groups) return;
        if (warp > 0) return take_turns<T, d>(shared, p, b, h_kv * heads, first, j, total, warp - 1);
        mbarrier_expect(&shared.keys_full, sizeof shared.K + sizeof shared.V);
        bulk_load(shared.K, &maps.K, j * Bc, h_kv, b, &shared.keys_full);
        bulk_load(shared.V, &maps.V, j * Bc, h_kv, b, &shared.keys_full);
#pragma unroll 1
        for (int k = 0; k < total; ++k) {
            load_queries<d>(shared, p, maps, b, h, i, k);
            if (++i == Tr) i = first, ++h;
        }
        return;
    }

    claim_registers<240>();
    const int G = group - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, t = lane % 4;
    float sum[d / 2] = {};                                  // dV or dK, (64, d)
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
        float4* to = Sums<d>(p, b, h).fragment(i * Br + 16 * warp, 128 * G) + lane;
        mbarrier_try_wait(&shared.turn[G], k);
#pragma unroll
        for (int c = 0; c < 64; c += 4) {
            atomic_add(to + c / 4 * 32, {dQ[c], dQ[c + 1], dQ[c + 2], dQ[c + 3]});
        }
        mbarrier_arrive(&shared.added[G]);
        if (++i == Tr) i = first, ++h;
    };
    mbarrier_try_wait(&shared.keys_full, 0);
    if (G == 0) {
#pragma unroll 1
        for (int k = 0; k < total; ++k) {
            const int slot = uniform(k) % depth;
            float S[Br / 2];  // transposed: (64 keys, 64 queries)
            std::uint32_t P[Br / 4];
            mbarrier_try_wait(&shared.full[slot], k / depth);
            wgmma_fence();
            multiply_rows<T, d>(shared.K, shared.Q[slot], S);
            const bool masked = (j + 1) * Bc > (p.causal ? min(p.Nk, i * Br + p.Nk - p.Nq + 1) : p.Nk);
            note_tile<64, Br>(b, h, i * Br, j, masked);
            wgmma_wait<0>(S);
            exponentiate(p, j * Bc, i * Br, masked, shared.L[slot], S);  // now P
#pragma unroll
            for (int c = 0; c < Br / 4; ++c) P[c] = pack<T>(S[2 * c], S[2 * c + 1]);
#pragma unroll
            for (int c = 0; c < Br / 4; c += 4) {
                auto* to = reinterpret_cast<uint4*>(shared.P[c / 4][threadIdx.x % 128]);
                store(to, {P[c], P[c + 1], P[c + 2], P[c + 3]});
            }
            named_barrier_arrive(1, 128 * groups);  // P is complete
            wgmma_fence();
            add_product<T, d>(P, shared.dO[slot], sum);
            named_barrier_sync(2, 128 * groups);  // dS is complete
            add_to_dQ(P, k, slot);
        }
    } else {
#pragma unroll 1
        for (int k = 0; k < total; ++k) {
            const int slot = uniform(k) % depth;
            float dP[Br / 2];  // transposed: (64 keys, 64 queries)
            std::uint32_t dS[Br / 4];
            mbarrier_try_wait(&shared.full[slot], k / depth);
            wgmma_fence();
            multiply_rows<T, d>(shared.V, shared.dO[slot], dP);
            wgmma_wait<0>(dP);
            named_barrier_sync(1, 128 * groups);  // P is complete
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
            named_barrier_arrive(2, 128 * groups);  // dS is complete, for the other warpgroup
            named_barrier_sync(4 + G, 128);         // and for this one
            wgmma_fence();
            add_product<T, d>(dS, shared.Q[slot], sum);
            add_to_dQ(dS, k, slot);
        }
    }
    named_barrier_sync(3, 128 * groups);  // no warp reads K or V any more
    auto& tile = G == 0 ? shared.V : shared.K;
    write_tile<T, d>(sum, G == 0 ? 1.0f : p.scale, tile);
    fence_proxy_async();
    named_barrier_sync(4 + G, 128);  // the warpgroup's dV or dK is complete
    if (threadIdx.x % 128 == 0) {
        bulk_store(G == 0 ? &maps.dV : &maps.dK, tile, 0, j * Bc, h_kv, b);
        bulk_commit();
        bulk_wait_read<0>();
    }
}

/// dQ = scale times its sums, rounded to T. A warp has four fragments, a lane the eight columns of one in
/// rows g and g + 8.
template <class T, int d>
__global__ void __launch_bounds__(row_threads) convert(const Problem p) {
    const int warp = (blockIdx.x * row_threads + threadIdx.x) / 32, lane = threadIdx.x % 32, g = lane / 4;
    const int first_row = warp / (d / 32) * 16, column = warp % (d / 32) * 32 + lane % 4 * 8;
    const int h = blockIdx.y, b = blockIdx.z;
    if (first_row >= p.Nq) return;
    const float4* sum = Sums<d>(p, b, h).fragment(first_row, column) + 4 * g;
    std::uint32_t upper[4], lower[4];  // of rows g and g + 8
#pragma unroll
    for (int t = 0; t < 4; ++t) {
        const float4 x = load(sum + t);
        upper[t] = pack<T>(x.x * p.scale, x.y * p.scale);
        lower[t] = pack<T>(x.z * p.scale, x.w * p.scale);
    }
    T* dQ = matrix<T>(p.dQ, b, h) + (first_row + g) * p.dQ.row + column;
    if (first_row + g < p.Nq) store(reinterpret_cast<uint4*>(dQ), {upper[0], upper[1], upper[2], upper[3]});
    if (first_row + g + 8 < p.Nq) {
        store(reinterpret_cast<uint4*>(dQ + 8 * p.dQ.row), {lower[0], lower[1], lower[2], lower[3]});
    }
}

std::size_t counter_bytes(const Shape&, int) {
    return sizeof(unsigned);  // KeyTiles::taken
}

std::size_t workspace_bytes(const Shape& s, int) {
    const int Br = s.d == 64 ? Tile<64>::Br : Tile<128>::Br;  // and of 256
    const int parts = s.d <= 128 ? Tile<128>::parts : Tile<256>::parts;
    const std::size_t tiles = std::size_t(s.B) * s.H * ceil_div(s.Nq, Br);
    return tiles * (Br * (s.d + 2) * sizeof(float) + parts * sizeof(unsigned)) + counter_bytes(s, 0);  // Sums
}

template <class T, int d>
void backward(const Problem& p) {
    constexpr int Br = Tile<d>::Br;
    const int rows = ceil_div(p.Nq, Br) * Br, Tc = ceil_div(p.Nk, Tile<d>::Bc);
    const Maps maps = {
        tensor_map<T, d>(p.Q, p.B, p.H, p.Nq, Br),    tensor_map<T, d>(p.K, p.B, p.Hkv, p.Nk, 64),
        tensor_map<T, d>(p.V, p.B, p.Hkv, p.Nk, 64),  tensor_map<T, d>(p.dO, p.B, p.H, p.Nq, Br),
        tensor_map<T, d>(p.dK, p.B, p.Hkv, p.Nk, 64), tensor_map<T, d>(p.dV, p.B, p.Hkv, p.Nk, 64)};
    launch(prepare<T, d>, dim3(ceil_div(rows * d / 8, row_threads), p.H, p.B), row_threads, 0, p);
    const double bytes = 8.0 * p.Nq * d * p.H / p.Hkv;  // of Q, dO and dQ, per key/value head
    const int heads = p.B * p.Hkv, section = int(std::clamp((16 << 20) / bytes, 1.0, double(heads)));
    std::byte* end = static_cast<std::byte*>(p.workspace) + workspace_bytes(p, p.sm_count);
    const KeyTiles tiles = {Tc, heads, section, Tc * heads, reinterpret_cast<unsigned*>(end) - 1};
    if constexpr (d <= 128) {
        launch(gradients<T, d>, dim3(tiles.total), threads, sizeof(Shared<T, d>), p, maps, tiles);
    } else {
        launch(wide_gradients<T, d>, dim3(tiles.total), threads, sizeof(WideShared<T, d>), p, maps, tiles);
    }
    launch(convert<T, d>, dim3(ceil_div(rows * d / 16, row_threads), p.H, p.B), row_threads, 0, p);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(backward, Dims, .number = 58, .name = "deterministic", .parent = 57,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2},
                                     {64, 64, 2}),
             .change = "dQ is added in a fixed order: each run gives the same bits", .shows_in = "backward",
             .pass = Pass::backward, .diff_budget = 140, .workspace_bytes = workspace_bytes,
             .counter_bytes = counter_bytes);

}  // namespace
