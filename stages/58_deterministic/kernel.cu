// Stage 58: deterministic. Key tiles add their parts of dQ in a fixed order, each in its turn. Blocks take
// key tiles in the same order, so that none waits for one that has not begun.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr int groups = 2;  // warpgroups that multiply, of 64 keys each
constexpr int threads = 128 * (1 + groups);
constexpr int row_threads = 256;  // of the kernels before and after
constexpr int depth = 2;          // slots of Q and dO, and warps that send dQ

/// Named barriers, by what is true when they are complete. 0 is that of __syncthreads.
enum {
    dS_full = 1,         // dS of all keys has been written
    K_empty = 2,         // no warp reads K any more
    gradients_full = 3,  // by warpgroups: its rows of dK and dV have been written
    dQ_full = 5,         // by slots and warpgroups: its part of dQ has been written
    dQ_empty = 9         // by warpgroups: its part of dQ has been read
};

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int Br = d == 64 ? 128 : 64;
    static constexpr int Bc = 64 * groups;
};

/// A key tile, and the direction in which its block visits query tiles
struct TileIndex {
    int batch, head, tile;
    bool downward;
};

/// Which of a group's `all` visits is the first one of this part, for all key tiles the same. This key tile
/// has all visits but the `hidden` first ones, or downward the last ones.
__host__ __device__ int first_visit(bool downward, int all, int hidden, int part, int parts) {
    const int n = all * part / parts;
    return downward ? min(n, all - hidden) : max(n, hidden);
}

/// With all blocks running at once, a key tile begins so many visits after the first one of its part, and
/// returns there after the last one: two after the key tile before it, which then finds its turn come, or
/// less if its part is short.
__host__ __device__ int lead(int tile, int Tc, int total) {
    return tile * min(total, 2 * Tc) / Tc;
}

/// The order in which blocks take the key tiles of all key/value heads: the last one of each of `section`
/// heads, then the one before. They add their parts of dQ in the same order, and visit query tiles upward.
/// The last heads go downward, from the first key tile on: under a mask the longest blocks then begin first.
struct TileOrder {
    int Tc, heads, section;               // heads = B Hkv
    int downward;                         // so many heads, a multiple of `section` or all
    bool staggered = false;               // all blocks run at once, and there is no mask
    int parts = 1;                        // consecutive blocks that share the query tiles of a key tile
    float4 *dK = nullptr, *dV = nullptr;  // (parts, B, Hkv, Tc Bc, d), by fragments; dK / scale
    unsigned* taken = nullptr;            // 0 before and after a launch

    /// Number n of them. Counted from the last one, so that all sections but the first are whole.
    __host__ __device__ TileIndex at(const Shape& p, int n) const {
        const int m = heads * Tc - 1 - n, first = m / (section * Tc) * section, r = m % (section * Tc);
        const int together = min(section, heads - first), head = first + r % together, j = r / together;
        const bool down = first < downward;
        return {head / p.Hkv, head % p.Hkv, down ? Tc - 1 - j : j, down};
    }
};

/// A query tile of a head of the group
struct QueryTile {
    int head, tile;
};

/// The query tiles that a block visits: one of each head of the group, then the next one of each
struct Visits {
    int heads, Tr, begin, end;  // heads of the group; numbers of its visits
    bool downward;

    __device__ QueryTile at(int n) const { return {n % heads, downward ? Tr - 1 - n / heads : n / heads}; }
    __device__ int next(int n) const { return n + 1 == end ? begin : n + 1; }
};

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    alignas(1024) T K[groups][d / 64][64][64];  // then dK
    alignas(1024) T V[groups][d / 64][64][64];  // then dV
    alignas(1024) T Q[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dO[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dS[depth][groups][Tile<d>::Br][64];  // rows are queries, a panel the keys of a warpgroup
    alignas(1024) float dQ[groups][4][8][32][4];         // of each warp, on their way out: 32 of each lane
    float L[depth][Tile<d>::Br], D[depth][Tile<d>::Br];
    QueryTile visited[depth];  // by slots: head and number of the tile that is copied to it
    int number;                // of the block, in the order in which they begin
    Mbarrier keys_full, full[depth], empty[depth];
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
    float4* dQ;       // dQ / scale, by fragments
    float *L, *D;     // L in base 2; inf past the last row
    unsigned* added;  // at the first row of a query tile: how many key tiles are in its sums

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

/// D = rowsum(dO o O) (algorithm 2, line 4), L in base 2, and dQ = 0. d / 8 threads per row.
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
    store(&shared.visited[slot], QueryTile{h, i});
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

/// Reads what belongs to this lane's columns of S^T (64, 64): two in eight of 64 floats in shared memory.
__device__ void read_columns(const float* from, float2 (&to)[8]) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int c = 0; c < 8; ++c) to[c] = load_pair(from + 8 * c + 2 * t);
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

/// How many key tiles come before this one in the sums of the query tile of its n-th visit
template <int d>
__device__ int turn(const Problem& p, const TileOrder& order, const TileIndex& tile, const Visits& visits,
                    int n) {
    if (tile.downward) return tile.tile;  // all that precede it see the query tile, too
    const int rows = (n / visits.heads + 1) * Tile<d>::Br;
    const int seen = p.causal ? min(p.Nk, rows + p.Nk - p.Nq) : p.Nk;
    int first = ceil_div(seen, Tile<d>::Bc) - 1;  // the last key tile that it sees
    if (order.staggered) {                        // the last one that begins at it or before
        n = (n + 1 - visits.begin) * order.Tc - 1;
        first = min(first, n / min(visits.end - visits.begin, 2 * order.Tc));
    }
    return first - tile.tile + (first < tile.tile ? order.Tc : 0);
}

/// Adds each warpgroup's part of dQ to the sums of all query tiles that the block visits, when it is the turn
/// of its key tile. The first visit is number n. Two warps call it, and each sends every other tile: one
/// waits for its turn while the additions of the other are on their way to memory.
template <class T, int d>
__device__ void send_dQ(Shared<T, d>& shared, const Problem& p, const TileOrder& order, const TileIndex& tile,
                        const Visits& visits, int n) {
    constexpr int Br = Tile<d>::Br;
    const bool sends = threadIdx.x % 32 == 0;
    const int slot = threadIdx.x / 32 - 1, rows = visits.Tr * Br;
    const Sums<d> sums(p, tile.batch, tile.head * visits.heads);  // of the group's first head
#pragma unroll 1  // each step waits: copies of the body would gain nothing
    for (int k = 0; k < visits.end - visits.begin; ++k, n = visits.next(n)) {
        if (k % depth != slot) continue;
        const QueryTile to = visits.at(n);
        const int row = to.head * rows + to.tile * Br;
        unsigned* added = sums.added + row;
        if (sends) wait_for_count(added, turn<d>(p, order, tile, visits, n));
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            named_barrier_sync(dQ_full + groups * slot + g, 128 + 32);
            float4* dQ = sums.dQ + fragment<d>(row + (d == 64 ? 64 * g : 0), d == 64 ? 0 : 64 * g);
            if (sends) bulk_add(&dQ->x, &shared.dQ[g][0][0][0][0], sizeof shared.dQ[g]), bulk_commit();
        }
        if (sends) bulk_wait_read<1>();
        __syncwarp();
        named_barrier_arrive(dQ_empty, 128 + 32);
        if (sends) bulk_wait_read<0>();
        __syncwarp();
        named_barrier_arrive(dQ_empty + 1, 128 + 32);
        if (sends) bulk_wait<0>(), raise_count(added);
    }
}

/// A block computes dK and dV of a key tile, and adds to dQ of each query tile that sees it.
/// - Producer: copies K and V, then Q, dO, L and D of each query tile into the next slots of a ring.
/// - Consumers, a warpgroup for 64 keys: P^T from S^T = K Q^T, dS^T from dP^T = V dO^T, both in registers;
///   dV += P^T dO and dK += dS^T Q. Both write dS to shared memory (dS_full), and each multiplies its half of
///   dQ = dS K, which it writes to shared memory (dQ_full).
/// - Senders, two warps: add that to the sums in this key tile's turn; then it may be overwritten (dQ_empty).
/// A slot's life: the producer waits for `empty` and starts the copies; `full` completes when all bytes have
/// arrived; consumers multiply, and all their threads arrive at `empty` after the last product that reads it.
template <class T, int d, bool split>
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
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up, and the block has its number
    const int number = uniform(load(&shared.number)), parts = split ? order.parts : 1;
    const TileIndex tile = order.at(p, number / parts);
    const int j = tile.tile, h_kv = tile.head, b = tile.batch, heads = p.H / p.Hkv, all = Tr * heads;
    // Visits before the first tile that sees a key are hidden.
    const int first = p.causal ? max(0, j * Bc - (p.Nk - p.Nq)) / Br : 0, part = number % parts;
    const int begin = first_visit(tile.downward, all, first * heads, part, parts);
    const int total = first_visit(tile.downward, all, first * heads, part + 1, parts) - begin;
    const int group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<24>();
        const Visits visits = {heads, Tr, begin, begin + total, tile.downward};
        int n = begin + (order.staggered ? lead(j, order.Tc, total) : 0);
        if (threadIdx.x / 32 == 1 || threadIdx.x / 32 == 2) send_dQ(shared, p, order, tile, visits, n);
        if (threadIdx.x > 0) return;
        mbarrier_expect(&shared.keys_full, sizeof shared.K + sizeof shared.V);
        for (int g = 0; g < groups; ++g) {
            bulk_load(shared.K[g], &maps.K, j * Bc + 64 * g, h_kv, b, &shared.keys_full);
            bulk_load(shared.V[g], &maps.V, j * Bc + 64 * g, h_kv, b, &shared.keys_full);
        }
#pragma unroll 1  // each step waits: copies of the body would gain nothing
        for (int k = 0; k < total; ++k, n = visits.next(n)) {
            const QueryTile queries = visits.at(n);
            load_queries<d>(shared, p, maps, b, h_kv * heads + queries.head, queries.tile, k);
        }
        return;
    }

    claim_registers<240>();
    const int G = group - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, t = lane % 4;
    const int first_key = j * Bc + 64 * G;
    float dK[d / 2] = {}, dV[d / 2] = {};  // (64, d)
    mbarrier_try_wait(&shared.keys_full, 0);
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
    for (int k = 0; k < total; ++k) {
        const int slot = uniform(k) % depth;
        float S[Br / 2], dP[Br / 2];  // transposed: (64 keys, Br queries)
        std::uint32_t P[Br / 4], dS[Br / 4];
        mbarrier_try_wait(&shared.full[slot], k / depth);
        float2 L[8];                                    // of this lane's columns, 64 queries at a time
        if (d == 128) read_columns(shared.L[slot], L);  // or ptxas may read it after most products
        wgmma_fence();
        multiply_rows<T, d>(matrix_descriptor(shared.K[G]), matrix_descriptor(shared.Q[slot]), S);
        multiply_rows<T, d>(matrix_descriptor(shared.V[G]), matrix_descriptor(shared.dO[slot]), dP);
        const QueryTile visited = load(&shared.visited[slot]);
        const int i = visited.tile;
        const bool masked = (j + 1) * Bc > (p.causal ? min(p.Nk, i * Br + p.Nk - p.Nq + 1) : p.Nk);
        note_tile<64, Br>(b, visited.head, i * Br, 2 * j + G, masked);
#pragma unroll
        for (int half = 0; half < Br / 64; ++half) {  // 64 queries at a time
            if (d == 64) read_columns(&shared.L[slot][64 * half], L);
            if (half == 0) wgmma_wait<1>(S);
            exponentiate<T, Br>(p, first_key, i * Br, masked, half, L, S, P);  // S is P^T, too
            wgmma_fence();
            add_product<T, d, 64>(P, shared.dO[slot], dV, 64 * half);
            if (half == 0) wgmma_wait<1>(dP);
#pragma unroll
            for (int c = 32 * half; c < 32 * half + 32; c += 4) {
                const float2 D = load_pair(&shared.D[slot][2 * c + 2 * t]);
                dS[c / 2] = pack<T>(S[c] * (dP[c] - D.x), S[c + 1] * (dP[c + 1] - D.y));
                dS[c / 2 + 1] = pack<T>(S[c + 2] * (dP[c + 2] - D.x), S[c + 3] * (dP[c + 3] - D.y));
            }
        }
        write_transposed(dS, shared.dS[slot][G]);
        fence_proxy_async();
        named_barrier_sync(dS_full, 128 * groups);  // and no warp still reads dS of the previous tile
        wgmma_fence();
        float dQ[32];  // (64, 64): of two, by rows or by columns
        const int row = d == 64 ? 64 * G : 0, column = d == 64 ? 0 : 64 * G;
        const Descriptor a = matrix_descriptor(shared.dS[slot]).row(row);
        const Descriptor x = matrix_descriptor(shared.K, 64).row(column);  // its panel of 64 rows
#pragma unroll
        for (int c = 0; c < Bc; c += 16) {
            wgmma<T, 64, true>(dQ, a.column<Br>(c), x.row(c / 64 * d + c % 64), c > 0);
        }
        wgmma_commit();
        add_product<T, d>(dS, shared.Q[slot], dK);
        wgmma_wait<1>(dQ);
        auto& out = shared.dQ[G][warp];
        if (k > 0) named_barrier_sync(dQ_empty + G, 128 + 32);  // dQ of the previous tile has been read
#pragma unroll
        for (int c = 0; c < 32; c += 4) {
            store(reinterpret_cast<float4*>(out[c / 4][lane]), {dQ[c], dQ[c + 1], dQ[c + 2], dQ[c + 3]});
        }
        fence_proxy_async();
        named_barrier_arrive(dQ_full + groups * slot + G, 128 + 32);
        wgmma_wait<0>(dK);
        fence_operand(P), fence_operand(dS), fence_operand(dV);
        mbarrier_arrive(&shared.empty[slot]);
    }
    if (total > 0) named_barrier_sync(dQ_empty + G, 128 + 32);
    if constexpr (split) {
        const std::int64_t slot = part * order.heads + b * p.Hkv + h_kv, rows = order.Tc * Bc;
        const std::int64_t to = slot * rows * (d / 4) + fragment<d>(first_key + 16 * warp, 0) + lane;
#pragma unroll
        for (int c = 0; c < d / 2; c += 4) {
            store(order.dK + to + fragment<d>(0, 2 * c), {dK[c], dK[c + 1], dK[c + 2], dK[c + 3]});
            store(order.dV + to + fragment<d>(0, 2 * c), {dV[c], dV[c + 1], dV[c + 2], dV[c + 3]});
        }
        return;
    }
    named_barrier_sync(K_empty, 128 * groups);
    write_tile<T, d>(dK, p.scale, shared.K[G]);
    write_tile<T, d>(dV, 1.0f, shared.V[G]);
    fence_proxy_async();
    named_barrier_sync(gradients_full + G, 128);
    if (threadIdx.x % 128 == 0) {
        bulk_store(&maps.dK, shared.K[G], 0, first_key, h_kv, b);
        bulk_store(&maps.dV, shared.V[G], 0, first_key, h_kv, b);
        bulk_commit();
        bulk_wait_read<0>();
    }
}

/// X (B, heads, N, d) = `factor` times the sum of its parts, rounded to T. A warp converts four fragments, a
/// lane the eight columns of one in rows g and g + 8.
template <class T, int d>
__global__ void __launch_bounds__(row_threads)
    convert(const View X, int N, std::int64_t rows, const float4* sums, int parts, float factor) {
    const int warp = (blockIdx.x * row_threads + threadIdx.x) / 32, lane = threadIdx.x % 32, g = lane / 4;
    const int first_row = warp / (d / 32) * 16, column = warp % (d / 32) * 32 + lane % 4 * 8;
    const int h = blockIdx.y, b = blockIdx.z;
    if (first_row >= N) return;
    const float4* sum = sums + (b * gridDim.y + h) * rows * (d / 4) + fragment<d>(first_row, column) + 4 * g;
    std::uint32_t upper[4], lower[4];  // of rows g and g + 8
#pragma unroll
    for (int t = 0; t < 4; ++t) {
        float4 x = load(sum + t);
        for (int part = 1; part < parts; ++part) {
            const float4 y = load(sum + t + part * gridDim.z * gridDim.y * rows * (d / 4));
            x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
        }
        upper[t] = pack<T>(x.x * factor, x.y * factor);
        lower[t] = pack<T>(x.z * factor, x.w * factor);
    }
    T* x = matrix<T>(X, b, h) + (first_row + g) * X.row + column;
    if (first_row + g < N) store(reinterpret_cast<uint4*>(x), {upper[0], upper[1], upper[2], upper[3]});
    if (first_row + g + 8 < N) {
        store(reinterpret_cast<uint4*>(x + 8 * X.row), {lower[0], lower[1], lower[2], lower[3]});
    }
}

std::size_t sums_bytes(const Shape& s) {
    const int Br = s.d == 64 ? Tile<64>::Br : Tile<128>::Br;
    return std::size_t(s.B) * s.H * ceil_div(s.Nq, Br) * Br * (s.d + 3) * sizeof(float);  // Sums
}

/// A section has as many heads as run 8 key tiles each at once, if their Q, dO and sums of dQ stay in the L2
/// cache: a third of a MB for each multiprocessor. Without a mask all sections are equal. Under a mask a
/// section is whole rounds of blocks, and the last one goes downward, so that the last blocks are short. If
/// the heads that run at once do not stay in L2, all go downward: the blocks of a head then visit the same
/// query tiles at about the same time.
TileOrder order_of(const Shape& s, bool causal, int sm_count) {
    const int Tc = ceil_div(s.Nk, Tile<128>::Bc), heads = s.B * s.Hkv;  // Bc is the same at d = 64
    const std::int64_t L2 = (std::int64_t{sm_count} << 20) / 3,
                       bytes = std::int64_t{8} * s.Nq * s.d * (s.H / s.Hkv);
    const bool scattered = causal && ceil_div(sm_count, Tc) * bytes > L2;
    const std::int64_t fit = scattered ? heads : std::max<std::int64_t>(L2 / bytes, causal ? 1 : 2);
    const std::int64_t most = std::min<std::int64_t>(sm_count / std::min(Tc, 8), fit);
    int section = int(std::clamp<std::int64_t>(most, 1, heads));
    if (!causal) {
        while (heads % section > 0) --section;
    } else if (!scattered) {
        const int round = std::max(1, sm_count / Tc);
        section = std::min(section, ceil_div(heads, 2));
        section -= section > round ? section % round : 0;
    }
    return {Tc, heads, section, !causal ? 0 : scattered ? heads : section};
}

/// How many blocks share the query tiles of a key tile: as many as end soonest, by at least a hundredth. A
/// block goes to the SM that is idle first. Its start and end take as long as 4 tiles, or 7 with parts.
int parts_of(const Shape& s, bool causal, int sm_count) {
    const TileOrder order = order_of(s, causal, sm_count);
    const int Br = s.d == 64 ? Tile<64>::Br : Tile<128>::Br, Tr = ceil_div(s.Nq, Br), heads = s.H / s.Hkv;
    const int blocks = order.Tc * order.heads, most = std::min(16, Tr * heads);
    std::int64_t soonest = 0;
    int best = 1;
    for (int parts = 1; parts <= most && blocks < 8 * sm_count; ++parts) {  // eight rounds end evenly
        std::vector<std::int64_t> ends(sm_count);
        std::int64_t work = 0, end = 0;
        for (int n = 0; n < blocks * parts; ++n) {
            const TileIndex tile = order.at(s, n / parts);
            const int key = tile.tile * Tile<128>::Bc, part = n % parts;
            const int hidden = heads * (causal ? std::max(0, key + s.Nq - s.Nk) / Br : 0);
            const int own = first_visit(tile.downward, Tr * heads, hidden, part + 1, parts) -
                            first_visit(tile.downward, Tr * heads, hidden, part, parts) +
                            (parts == 1 ? 4 : 7);
            std::pop_heap(ends.begin(), ends.end(), std::greater());  // the soonest is last
            work += own, end = std::max(end, ends.back() += own);
            std::push_heap(ends.begin(), ends.end(), std::greater());
        }
        if (parts == 1 || end * 100 < soonest * 99) soonest = end, best = parts;
        if (work * 100 >= soonest * 99 * sm_count) break;  // more parts are more work
    }
    return best;
}

std::size_t counter_bytes(const Shape&, int) {
    return sizeof(unsigned);  // TileOrder::taken
}

/// Sums, the parts of dK and dV, with a mask or without, and the counter
std::size_t workspace_bytes(const Shape& s, int sm_count) {
    const int parts = std::max(parts_of(s, false, sm_count), parts_of(s, true, sm_count));
    const std::size_t keys = std::size_t(s.B) * s.Hkv * ceil_div(s.Nk, Tile<128>::Bc) * Tile<128>::Bc;
    return counter_bytes(s, 0) + sums_bytes(s) + (parts == 1 ? 0 : parts * keys * 2 * s.d * sizeof(float));
}

template <class T, int d>
void backward(const Problem& p) {
    constexpr int Br = Tile<d>::Br;
    const int rows = ceil_div(p.Nq, Br) * Br;
    TileOrder order = order_of(p, p.causal, p.sm_count);
    order.parts = parts_of(p, p.causal, p.sm_count);
    order.dK = reinterpret_cast<float4*>(static_cast<std::byte*>(p.workspace) + sums_bytes(p));
    order.dV = order.dK + std::int64_t{order.parts} * order.heads * order.Tc * Tile<d>::Bc * (d / 4);
    std::byte* end = static_cast<std::byte*>(p.workspace) + workspace_bytes(p, p.sm_count);
    order.taken = reinterpret_cast<unsigned*>(end) - 1;
    const Maps maps = {
        tensor_map<T, d>(p.Q, p.B, p.H, p.Nq, Br),    tensor_map<T, d>(p.K, p.B, p.Hkv, p.Nk, 64),
        tensor_map<T, d>(p.V, p.B, p.Hkv, p.Nk, 64),  tensor_map<T, d>(p.dO, p.B, p.H, p.Nq, Br),
        tensor_map<T, d>(p.dK, p.B, p.Hkv, p.Nk, 64), tensor_map<T, d>(p.dV, p.B, p.Hkv, p.Nk, 64)};
    launch(prepare<T, d>, dim3(ceil_div(rows, row_threads / (d / 8)), p.H, p.B), row_threads, 0, p);
    const auto kernel = order.parts > 1 ? gradients<T, d, true> : gradients<T, d, false>;
    const dim3 blocks(order.Tc * order.heads * order.parts);
    order.staggered = !p.causal && int(blocks.x) <= p.sm_count;
    if (order.staggered) {
        launch<Start::together>(kernel, blocks, threads, sizeof(Shared<T, d>), p, maps, order);
    } else {
        launch(kernel, blocks, threads, sizeof(Shared<T, d>), p, maps, order);
    }
    launch(convert<T, d>, dim3(ceil_div(rows, row_threads / (d / 16)), p.H, p.B), row_threads, 0, p.dQ, p.Nq,
           rows, static_cast<const float4*>(p.workspace), 1, p.scale);
    if (order.parts == 1) return;
    const int keys = order.Tc * Tile<d>::Bc;
    const dim3 grid(ceil_div(keys, row_threads / (d / 16)), p.Hkv, p.B);
    launch(convert<T, d>, grid, row_threads, 0, p.dK, p.Nk, keys, order.dK, order.parts, p.scale);
    launch(convert<T, d>, grid, row_threads, 0, p.dV, p.Nk, keys, order.dV, order.parts, 1.0f);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(backward, Dims, .number = 58, .name = "deterministic", .parent = 55,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
             .change = "dQ is added in a fixed order: each run gives the same bits", .shows_in = "backward",
             .pass = Pass::backward, .diff_budget = 170,
             .most_lines = 590,  // adds dQ in turns, in two directions, and has blocks begin apart
             .batch_invariant = false, .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
