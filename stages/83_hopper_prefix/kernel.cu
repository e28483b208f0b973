// Stage 83: a prefix on Hopper. A warpgroup copies keys through the block table. One launch multiplies the
// prefix with the rows of all requests, and own keys with those of one; each row is merged from both.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr int merge_threads = 128;
constexpr int works = 4;           // slots for query tiles, so that the producer can be ahead
constexpr float threshold = 8.0f;  // P stays below 2^8, which fp16 holds

/// The constants, some of which depend on d.
template <int d>
struct Tile {
    static constexpr int groups = 2;  // warpgroups that multiply, of 64 rows each
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = 88;
    static constexpr int consumer_registers = 208;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = 128;
    static constexpr int depth = d == 64 ? 6 : 3;   // slots of K and V
    static constexpr int block_rows = 128 * 8 / d;  // that the producer copies at a time
};

/// What the consumers of a block do next: packed rows first_row .. end_row - 1 of head h_kv, or as many as a
/// tile has, with key tiles first .. last - 1. Row r sees the keys before min(Nk, r / group + diagonal).
struct alignas(32) Work {
    int h_kv = -1, first_row, end_row;  // nothing is left if h_kv < 0
    int Nk, diagonal, first, last;
    int part;  // row of the workspace for first_row; < 0: the rows are complete

    __device__ int end_of(const Problem& p, int row) const { return min(Nk, row / (p.H / p.Hkv) + diagonal); }
    /// The end of the key tiles that these rows see
    __device__ int key_tiles(const Problem& p, int Bc, int row, int rows) const {
        const int count = min(end_row - row, rows);
        return count <= 0 ? 0 : min(last, ceil_div(max(0, end_of(p, row + count - 1)), Bc));
    }
};

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    alignas(1024) T Q[Tile<d>::groups][d / 64][64][64];
    alignas(1024) T K[Tile<d>::depth][d / 64][Tile<d>::Bc][64];  // tile k of the block is in slot k % depth
    alignas(1024) T V[Tile<d>::depth][d / 64][Tile<d>::Bc][64];
    Mbarrier K_full[Tile<d>::depth], V_full[Tile<d>::depth];    // phase k / depth: tile k has arrived
    Mbarrier K_empty[Tile<d>::depth], V_empty[Tile<d>::depth];  // phase k / depth: all have read tile k
    Work work[works];  // query tile n of the block is in slot n % works
    Mbarrier work_full[works], work_empty[works];
};

/// Row r of the queries of key/value head h_kv, request by request: query i of head h of request b. The heads
/// of its group alternate.
struct PackedRow {
    int b, h, i;

    __device__ PackedRow(const Problem& p, int h_kv, int r) {
        const int group = p.H / p.Hkv;
        b = r / group / p.Nq;
        h = h_kv * group + r % group;
        i = r / group % p.Nq;
    }
    static __host__ __device__ int count(const Shape& s) { return s.H / s.Hkv * s.Nq; }  // of a request
};

/// The query tile of rows first_row .. end_row - 1 of head h_kv, or as many as a tile has, with Nk keys:
/// those of a request from its `first_key` on, in Tc tiles, which begin at `begin` in the line.
struct QueryTile {
    int request, first_key, h_kv, first_row, end_row, Nk, Tc, begin;
    bool is_prefix;
};

/// All query tiles in one line: first those of the prefix, whose rows are those of all requests, and then
/// request by request those of their own keys; each head by head. Each has `start` places, for what it costs
/// a block to begin and end with one, and then a place for each key tile. Each block takes an equal share.
template <int d>
struct Line {
    static constexpr int Br = Tile<d>::Br, Bc = Tile<d>::Bc;
    int start = 0, Tr, prefix_Tr;  // query tiles of a head: of a request's own keys, of the prefix
    int total, blocks;             // all places, and the blocks that take some of them

    __device__ Line(const Problem& p, int most_blocks)
        : Tr(ceil_div(PackedRow::count(p), Br)), prefix_Tr(ceil_div(p.B * PackedRow::count(p), Br)) {
        total = before(p, p.B + 1);
        blocks = min(most_blocks, total);
        if (total < 16 * blocks) return;  // short shares end where query tiles do
        start = 2;
        total = before(p, p.B + 1);
    }
    /// The first place of a block's share: total block / blocks. Blocks beyond have none.
    __device__ int share(int block) const {
        block = min(block, blocks);
        return total / blocks * block + total % blocks * block / blocks;
    }

    /// Keys of the n-th list: 0 is the prefix, n the own keys of request n - 1.
    __device__ static int keys(const Problem& p, int n) {
        if (n == 0) return p.prefix;
        return (p.lengths == nullptr ? p.Nk : load(p.lengths + n - 1)) - p.prefix;
    }
    /// Its key tiles for each query tile. A request without keys still has one, for a block to write its
    /// rows.
    __device__ static int key_tiles(const Problem& p, int n) {
        return n == 0 ? ceil_div(p.prefix, Bc) : max(1, ceil_div(keys(p, n), Bc));
    }
    /// Its places in the line
    __device__ int places(const Problem& p, int n) const {
        const int Tc = key_tiles(p, n);
        return Tc == 0 ? 0 : p.Hkv * (n == 0 ? prefix_Tr : Tr) * (start + Tc);
    }
    /// The places of all lists before the n-th. A lane counts those of one at a time.
    __device__ int before(const Problem& p, int n) const {
        int sum = 0;
        for (int m = threadIdx.x % 32; m < n; m += 32) sum += places(p, m);
        for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
        return sum;
    }

    /// Query tile r of the n-th list, whose places begin at `begin`
    __device__ QueryTile tile(const Problem& p, int n, int begin, int r) const {
        const int count = PackedRow::count(p), Tc = key_tiles(p, n), rows = n == 0 ? prefix_Tr : Tr;
        const int first = n == 0 ? 0 : (n - 1) * count, own = n == 0 ? p.B * count : count;
        return {max(0, n - 1),
                n == 0 ? 0 : p.prefix,
                r / rows,
                first + r % rows * Br,
                first + own,
                keys(p, n),
                Tc,
                begin + r * (start + Tc) + start,
                n == 0};
    }
    /// The query tile that place t of the line belongs to
    __device__ QueryTile find(const Problem& p, int t) const {
        const int lane = threadIdx.x % 32;
        int begin = 0;
        for (int first = 0;; first += 32) {
            const int own = first + lane <= p.B ? places(p, first + lane) : 0;
            int end = begin + own;
            for (int n = 1; n < 32; n *= 2) {
                const int before = __shfl_up_sync(~0u, end, n) - begin;
                if (lane >= n) end += before;
            }
            const unsigned later = __ballot_sync(~0u, end > t);
            if (later != 0) {
                const int n = __ffs(later) - 1, list = first + n;
                begin = __shfl_sync(~0u, end - own, n);
                return tile(p, list, begin, (t - begin) / (start + key_tiles(p, list)));
            }
            begin = __shfl_sync(~0u, end, 31);
        }
    }
};

/// Rows of the workspace: O (rows, d), not divided by l, and m and l (rows, 2). A block has Br rows for a
/// query tile that began in another's share, and Br for one that ends in another's. With a prefix a query
/// tile of one block is a part, too; its rows lie in the order of all rows, those of the prefix's pass first.
template <int d>
struct Workspace {
    float *O, *m_l;

    static __host__ __device__ std::int64_t rows(const Shape& s, int most_blocks) {
        return std::int64_t{2} * most_blocks * Tile<d>::Br + std::int64_t{2} * s.B * s.H * s.Nq;
    }
    __device__ Workspace(const Problem& p, int most_blocks)
        : O(static_cast<float*>(p.workspace)), m_l(O + rows(p, most_blocks) * d) {}
};

/// The parts of a query tile
struct Parts {
    int Br, block, splits, whole;  // the first of the blocks, their number, the row if there is only one

    template <int d>
    __device__ Parts(const Problem& p, int most_blocks, const Line<d>& line, const QueryTile& tile)
        : Br(Tile<d>::Br) {
        const std::int64_t t = tile.begin, all = line.total;
        block = ((t + 1) * line.blocks - 1) / all;
        splits = ((t + tile.Tc) * line.blocks - 1) / all - block + 1;
        whole = 2 * most_blocks * Br + tile.first_row +
                ((tile.is_prefix ? 0 : p.Hkv) + tile.h_kv) * p.B * PackedRow::count(p);
    }
    /// Row k of part s
    __device__ int row(int s, int k) const {
        return splits == 1 ? whole + k : (2 * (block + s) + (s == 0)) * Br + k;
    }
};

/// Copies packed rows first .. first + 63 of Q into the tile of this warpgroup. Rows from `end` on become 0.
template <class T, int d>
__device__ void load_queries(T (&tile)[d / 64][64][64], const Problem& p, int h_kv, int first, int end) {
    for (int n = threadIdx.x % 128; n < 64 * d / 8; n += 128) {
        const int row = n / (d / 8), column = n % (d / 8) * 8;
        const bool valid = first + row < end;
        const auto [b, h, i] = PackedRow(p, h_kv, valid ? first + row : 0);
        copy_async(&tile[column / 64][row][column % 64 ^ row % 8 * 8],
                   matrix<T>(p.Q, b, h) + i * p.Q.row + column, valid);
    }
    copy_wait();
    fence_proxy_async();
    named_barrier_sync(7 + threadIdx.x / 128, 128);  // the tile is complete, whichever thread wrote it
}

/// Turns the scores S (64, Bc) of a warpgroup with key tile j into exponents S scale - m, with -inf where
/// masked. Lanes hold rows g and g + 8 of their warp's 16.
template <int d, int Bc = Tile<d>::Bc>
__device__ void shift(const Problem& p, const Work& work, int first_row, int j, bool masked,
                      float (&S)[Bc / 2], const float (&m)[2]) {
    const float scale = p.scale * log2_e;  // exponents and m are in base 2
#pragma unroll
    for (int c = 0; c < Bc / 2; ++c) S[c] = S[c] * scale - m[row_of(c)];
    if (masked) {
        const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        int end[2];  // the first of this lane's columns that the row does not see
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            end[r] = work.end_of(p, first_row + 16 * warp + g + 8 * r) - j * Bc - 2 * t;
        }
#pragma unroll
        for (int c = 0; c < Bc / 2; ++c) {
            if (column_of(c) >= end[row_of(c)]) S[c] = -inf;
        }
    }
}

/// The largest exponent of row g + 8 r in this lane.
template <int n>
__device__ float lane_max(const float (&S)[n], int r) {
    float row_max = -inf;
#pragma unroll
    for (int c = 2 * r; c < n; c += 4) row_max = fmaxf(row_max, fmaxf(S[c], S[c + 1]));
    return row_max;
}

/// max(0, the largest exponent in this lane).
template <int n>
__device__ float positive_max(const float (&S)[n]) {
    float row_max[2] = {};
#pragma unroll
    for (int c = 0; c < n; c += 2) row_max[row_of(c)] = max3(row_max[row_of(c)], S[c], S[c + 1]);
    return fmaxf(row_max[0], row_max[1]);
}

/// Raises m to the maximum of its row, and rescales S and l to it; the caller multiplies O by alpha. The
/// first tile sets m, even to less than 0.
template <int n>
__device__ void rescale(bool first, float (&S)[n], float (&alpha)[2], float (&m)[2], float (&l)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float rise = lane_max(S, r);
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 1));
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 2));
        rise = rise == -inf ? 0.0f : first ? rise : fmaxf(rise, 0.0f);  // no key so far: m stays 0
        alpha[r] = first ? 0.0f : fast_exp2(-rise);
        m[r] += rise;
        l[r] *= alpha[r];
#pragma unroll
        for (int c = 0; c < n; ++c) {
            if (row_of(c) == r) S[c] -= rise;
        }
    }
}

/// S = Q K^T, (64, Bc) for this warpgroup (algorithm 1, line 8). Starts it: S is complete after a wait.
template <class T, int d, int Bc = Tile<d>::Bc>
__device__ void score(const T (&Q)[d / 64][64][64], const T (&K)[d / 64][Bc][64], float (&S)[Bc / 2]) {
    const Descriptor q = matrix_descriptor(Q), k = matrix_descriptor(K);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < d; c += 16) {
        wgmma<T, Bc, false>(S, q.column<64>(c), k.column<Bc>(c), c > 0);
    }
    wgmma_commit();
}

/// Starts O += P V.
template <class T, int d, int Bc = Tile<d>::Bc>
__device__ void add_product(const std::uint32_t (&P)[Bc / 4], const T (&V)[d / 64][Bc][64],
                            float (&O)[d / 2]) {
    const Descriptor v = matrix_descriptor(V, Bc);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Bc; k += 16) wgmma<T, d, true>(O, &P[k / 4], v.row(k), true);
    wgmma_commit();
}

/// S becomes P = exp(S - m), l += rowsum(P) over this lane's columns.
template <int n>
__device__ void exponentiate(float (&S)[n], float (&l)[2]) {
#pragma unroll
    for (int c = 0; c < n; ++c) {
        S[c] = fast_exp2(S[c]);
        l[row_of(c)] += S[c];
    }
}

/// P as the A operand of P V: a lane's accumulators of S are its elements of that operand.
template <class T, int n>
__device__ void convert(const float (&S)[n], std::uint32_t (&P)[n / 2]) {
#pragma unroll
    for (int c = 0; c < n / 2; ++c) P[c] = pack<T>(S[2 * c], S[2 * c + 1]);
}

/// The sum of l over the four lanes of a row.
__device__ float row_sum(float l) {
    l += __shfl_xor_sync(~0u, l, 1);
    return l + __shfl_xor_sync(~0u, l, 2);
}

/// Writes O / l of the warp's 16 rows, and L = m + log(l).
template <class T, int d>
__device__ void write_rows(const Problem& p, int h_kv, int first_row, int end_row, const float (&O)[d / 2],
                           const float (&m)[2], const float (&lane_l)[2]) {
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float l = row_sum(lane_l[r]);
        const float inverse_l = l == 0.0f ? 0.0f : divide(1.0f, l);
        const int row = first_row + 16 * warp + g + 8 * r;
        if (row >= end_row) continue;
        const auto [b, h, i] = PackedRow(p, h_kv, row);
        T* O_row = matrix<T>(p.O, b, h) + i * p.O.row + 2 * t;
#pragma unroll
        for (int c = 2 * r; c < d / 2; c += 4)
            store_pair(O_row + 2 * (c - 2 * r), O[c] * inverse_l, O[c + 1] * inverse_l);
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + i;
        if (t == 0) store(L, (m[r] + log2f(l)) * ln_2);
    }
}

/// Writes O, m and l of the warp's 16 rows to a part, in fp32.
template <int d>
__device__ void write_part(const Problem& p, int part_row, int rows, const float (&O)[d / 2],
                           const float (&m)[2], const float (&lane_l)[2]) {
    const Workspace<d> to(p, gridDim.x);
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float l = row_sum(lane_l[r]);
        const int row = 16 * warp + g + 8 * r;
        if (row >= rows) continue;
        float* O_row = to.O + std::int64_t{part_row + row} * d + 2 * t;
#pragma unroll
        for (int c = 2 * r; c < d / 2; c += 4) store_pair(O_row + 2 * (c - 2 * r), O[c], O[c + 1]);
        if (t == 0) store_pair(to.m_l + 2 * (part_row + row), l == 0.0f ? -inf : m[r], l);
    }
}

/// The row of each key tile that this thread of the producer finds. A warp copies 32 rows, `warp_rows` at a
/// time, and each of its lanes knows one of them.
template <int d>
__device__ int known_row() {
    constexpr int block_rows = Tile<d>::block_rows, warp_rows = block_rows / 4;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return lane / warp_rows * block_rows + warp * warp_rows + lane % warp_rows;
}

/// Starts copying rows of K or V into a tile: `known` is where known_row() begins.
template <class T, int d>
__device__ void load_rows(T (&tile)[d / 64][Tile<d>::Bc][64], const T* known) {
    constexpr int block_rows = Tile<d>::block_rows, warp_rows = block_rows / 4;
    const int row = threadIdx.x / (d / 8), column = threadIdx.x % (d / 8) * 8;
    const auto address = reinterpret_cast<std::uintptr_t>(known);
#pragma unroll
    for (int n = 0; n < Tile<d>::Bc / block_rows; ++n) {
        const auto begin = __shfl_sync(~0u, address, n * warp_rows + row % warp_rows);
        copy_async(&tile[column / 64][n * block_rows + row][column % 64 ^ row % 8 * 8],
                   reinterpret_cast<const T*>(begin) + column, true);
    }
}

/// A block computes parts of query tiles. Warp specialization: a warpgroup copies, the others multiply.
/// - Producer: describes a query tile in `work`, and copies K and V of its key tiles. Consumers copy Q.
/// - Consumers, a warpgroup for 64 rows: start S = Q K^T of key tile j, then O += P V of tile j - 1, which
///   runs during the softmax of tile j; at the end write O and L, or a part for merge().
/// - Turns: barrier 1 + g lets warpgroup g start products; meanwhile the others take exponentials.
/// A slot's life: the producer's threads wait for `empty` and start copies; `full` completes when these
/// have arrived; a consumer multiplies, or skips a key tile that it does not see, then arrives at `empty`.
template <class T, int d>
__global__ void __launch_bounds__(Tile<d>::threads, 1) attention(const Problem p) {
    constexpr int groups = Tile<d>::groups, Br = Tile<d>::Br, Bc = Tile<d>::Bc, depth = Tile<d>::depth;
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 128);
            mbarrier_init(&shared.V_full[slot], 128);
            mbarrier_init(&shared.K_empty[slot], groups);
            mbarrier_init(&shared.V_empty[slot], groups);
        }
        for (int slot = 0; slot < works; ++slot) {
            mbarrier_init(&shared.work_full[slot], 128);
            mbarrier_init(&shared.work_empty[slot], 128 * groups);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up
    const int group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<Tile<d>::producer_registers>();
        const Line<d> line(p, gridDim.x);
        const int block = static_cast<int>(blockIdx.x), end = line.share(block + 1);
        int t = line.share(block);
        int k = 0;  // key tiles so far
        for (int n = 0;; ++n) {
            QueryTile tile;
            Work work;
            for (; work.h_kv < 0 && t < end; t = tile.begin + tile.Tc) {
                tile = line.find(p, t);
                const int first = max(0, t - tile.begin), last = min(tile.Tc, end - tile.begin);
                if (first >= last) continue;  // only its start is in this share
                const Parts parts(p, gridDim.x, line, tile);
                const bool masked = p.causal && !tile.is_prefix;
                work = {tile.h_kv,
                        tile.first_row,
                        tile.end_row,
                        tile.Nk,
                        masked ? tile.Nk - p.Nq + 1 - tile.request * p.Nq : tile.Nk,
                        first,
                        last,
                        parts.splits == 1 && p.prefix == 0 ? -1 : parts.row(block - parts.block, 0)};
            }
            mbarrier_try_wait(&shared.work_empty[n % works], n / works - 1);
            if (threadIdx.x == 0) store(&shared.work[n % works], work);
            mbarrier_arrive(&shared.work_full[n % works]);  // by all: no thread waits for an old phase
            if (work.h_kv < 0) break;
            const int Tc = work.key_tiles(p, Bc, work.first_row, Br);
            // Where a thread's row of a key tile begins: its page is looked up while the tile before is
            // copied. Rows past the last key are copies of that one, whatever their slots hold; P is 0 there.
            const bool paged = p.block_table != nullptr;
            const int* table = paged ? p.block_table + tile.request * ceil_div(p.Nk, p.page_size) : nullptr;
            const auto key = [&](int j) {
                return tile.first_key + min(j * Bc + known_row<d>(), tile.Nk - 1);
            };
            const auto page_of = [&](int j) {
                return paged ? load(table + (key(j) >> (__ffs(p.page_size) - 1))) : tile.request;
            };
            int page = work.first < Tc ? page_of(work.first) : 0;
#pragma unroll 1
            for (int j = work.first; j < Tc; ++j, ++k) {  // not unrolled: each step waits
                const int slot = paged ? key(j) & (p.page_size - 1) : key(j);
                const T* K_row = matrix<T>(p.K, page, tile.h_kv) + slot * p.K.row;
                const T* V_row = matrix<T>(p.V, page, tile.h_kv) + slot * p.V.row;
                page = page_of(j + 1);
                mbarrier_try_wait(&shared.K_empty[k % depth], k / depth - 1);  // tile k - depth has been read
                load_rows<T, d>(shared.K[k % depth], K_row);
                mbarrier_arrive_after_copies(&shared.K_full[k % depth]);
                mbarrier_try_wait(&shared.V_empty[k % depth], k / depth - 1);
                load_rows<T, d>(shared.V[k % depth], V_row);
                mbarrier_arrive_after_copies(&shared.V_full[k % depth]);
            }
        }
        if (threadIdx.x == 0) let_next_kernel_start();  // when all blocks have come this far
        return;
    }

    claim_registers<Tile<d>::consumer_registers>();
    const int g = group - 1;
    const auto wait_turn = [&] { named_barrier_sync(1 + g, 256); };
    const auto pass_turn = [&] { named_barrier_arrive(1 + (g + 1) % groups, 256); };  // the next warpgroup's
    if (g == groups - 1) pass_turn();  // the first turn is warpgroup 0's
    int k = 0;
    for (int n = 0;; ++n) {
        mbarrier_try_wait(&shared.work_full[n % works], n / works);
        const Work work = load(&shared.work[n % works]);
        if (work.h_kv < 0) break;
        // The warpgroups change places: with 64 rows at most, each takes every other query tile alone.
        const int row = 64 * ((g + n) % groups), first_row = work.first_row + row, first = work.first;
        const bool takes_turns = work.first_row + 64 < work.end_row;
        const int Tc = work.key_tiles(p, Bc, first_row, 64),
                  block_Tc = work.key_tiles(p, Bc, work.first_row, Br);
        // What a trace shows: the request and its rows; with a prefix, the rows of all requests
        const int noted = p.prefix > 0 ? 0 : work.first_row / PackedRow::count(p);
        const int noted_row = first_row - noted * PackedRow::count(p);
        k -= first;
        const int unmasked = work.end_of(p, first_row);     // keys that all rows see
        const auto release = [&](int j, Mbarrier* empty) {  // after the wait for the product that read it
            if (threadIdx.x % 128 == 0) mbarrier_arrive(&empty[(k + j) % depth]);
        };
        float S[Bc / 2], O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 4];
        const auto softmax = [&](int j) {  // turns S into P; returns whether O must be rescaled
            const bool masked = (j + 1) * Bc > unmasked;
            note_tile<Bc>(noted, work.h_kv, noted_row, j, masked, p.H / p.Hkv);
            shift<d>(p, work, first_row, j, masked, S, m);
            const bool above = (j == first) | (positive_max(S) > threshold);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(j == first, S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(noted_row + threadIdx.x / 32 % 4 * 16, m, l);
            return rises;
        };
        const auto start_scores = [&](int j) {
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            fence_proxy_async();  // copies by threads are fit for wgmma
            score<T, d>(shared.Q[g], shared.K[(k + j) % depth], S);
        };
        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            fence_proxy_async();
            add_product<T, d>(P, shared.V[(k + j) % depth], O);
        };
        if (first < Tc) {
            load_queries<T, d>(shared.Q[g], p, work.h_kv, first_row, work.end_row);
            start_scores(first);
            wgmma_wait<0>(S);
            release(first, shared.K_empty);
            softmax(first);
            convert<T>(S, P);
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
            for (int j = first + 1; j < Tc; ++j) {
                if (takes_turns) wait_turn();
                start_scores(j);
                start_product(j - 1);
                if (takes_turns) pass_turn();
                wgmma_wait<1>(S);
                release(j, shared.K_empty);
                const bool rises = softmax(j);  // P V of the previous tile may still run
                wgmma_wait<0>(O);
                fence_operand(P);
                release(j - 1, shared.V_empty);
                convert<T>(S, P);
                if (rises) {
#pragma unroll
                    for (int c = 0; c < d / 2; ++c) O[c] *= alpha[row_of(c)];
                }
            }
            start_product(Tc - 1);
            wgmma_wait<0>(O);
            fence_operand(P);
            release(Tc - 1, shared.V_empty);
        }
        for (int j = max(first, Tc); j < block_Tc; ++j) {  // that the other sees
            if (takes_turns && j > first) wait_turn(), pass_turn();
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            named_barrier_sync(7 + group, 128);  // no thread is left waiting for an old phase
            release(j, shared.K_empty);
            release(j, shared.V_empty);
        }
        if (work.part < 0) {
            write_rows<T, d>(p, work.h_kv, first_row, work.end_row, O, m, l);
        } else {
            write_part<d>(p, work.part + row, work.end_row - first_row, O, m, l);
        }
        k += max(first, block_Tc);
        mbarrier_arrive(&shared.work_empty[n % works]);
    }
}

/// Merges the parts of all rows, as if each were a key tile: m is the largest m_s, l the sum of exp(m_s - m)
/// l_s, and O likewise. A row has parts of its own keys and of the prefix. A warp per row, a lane for d / 32
/// columns. Parts come 16 at a time: none of their loads waits for another.
template <class T, int d>
__global__ void __launch_bounds__(merge_threads) merge(const Problem p, int most_blocks) {
    const int warp = (blockIdx.x * merge_threads + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const int count = PackedRow::count(p), all = p.B * count, h_kv = warp / all, row = warp % all;
    if (h_kv >= p.Hkv) return;
    const auto [b, h, i] = PackedRow(p, h_kv, row);
    const Line<d> line(p, most_blocks);
    const int r = row % count / Tile<d>::Br, k = row % count % Tile<d>::Br;
    const Parts own(p, most_blocks, line, line.tile(p, b + 1, line.before(p, b + 1), h_kv * line.Tr + r));
    if (own.splits == 1 && p.prefix == 0) return;  // it is no part
    const Parts shared(p, most_blocks, line, line.tile(p, 0, 0, h_kv * line.prefix_Tr + row / Tile<d>::Br));
    const int splits = own.splits + (p.prefix > 0 ? shared.splits : 0);
    const Workspace<d> from(p, most_blocks);
    wait_for_previous_kernel();  // all parts are written
    float m = -inf, l = 0.0f;
    float2 O[d / 64] = {};  // columns 2 lane and 2 lane + 1 of each 64
    for (int first = 0; first < splits; first += 16) {
        float2 m_l[16], O_s[16][d / 64];
        const float m_old = m;
#pragma unroll
        for (int s = 0; s < 16; ++s) {
            const int of_prefix = first + s - own.splits;
            const bool valid = first + s < splits;
            const int part = of_prefix < 0 ? own.row(first + s, k) : shared.row(of_prefix, row % Tile<d>::Br);
            m_l[s] = valid ? load_pair(from.m_l + 2 * part) : float2{-inf, 0.0f};
            m = fmaxf(m, m_l[s].x);
#pragma unroll
            for (int n = 0; n < d / 64; ++n) {
                O_s[s][n] = valid ? load_pair(from.O + std::int64_t{part} * d + 64 * n + 2 * lane) : float2{};
            }
        }
        const float m_used = m == -inf ? 0.0f : m;  // no part has a key: exp(-inf - 0) = 0, not NaN
        const float alpha = fast_exp2(m_old - m_used);
        l *= alpha;
        for (float2& pair : O) pair = {alpha * pair.x, alpha * pair.y};
#pragma unroll
        for (int s = 0; s < 16; ++s) {
            const float alpha_s = fast_exp2(m_l[s].x - m_used);
            l += alpha_s * m_l[s].y;
#pragma unroll
            for (int n = 0; n < d / 64; ++n)
                O[n] = {O[n].x + alpha_s * O_s[s][n].x, O[n].y + alpha_s * O_s[s][n].y};
        }
    }
    const float inverse_l = l == 0.0f ? 0.0f : divide(1.0f, l);
    T* O_row = matrix<T>(p.O, b, h) + i * p.O.row + 2 * lane;
#pragma unroll
    for (int n = 0; n < d / 64; ++n) {
        store_pair(O_row + 64 * n, O[n].x * inverse_l, O[n].y * inverse_l);
    }
    if (lane == 0) store(p.L + (std::int64_t{b} * p.H + h) * p.Nq + i, (m + log2f(l)) * ln_2);
}

/// One block for each SM. Without a prefix, as many blocks for one query tile as for another, where they are
/// nearly as many as SMs: then all parts of a query tile are equally long, or it has only one.
int block_count(const Problem& p) {
    const int tiles = p.B * p.Hkv * ceil_div(PackedRow::count(p), Tile<128>::Br);
    const int Tc = ceil_div(p.Nk, Tile<128>::Bc), even = tiles * min(Tc, p.sm_count / tiles);
    return p.prefix == 0 && 8 * even >= 7 * p.sm_count ? even : p.sm_count;
}

template <class T, int d>
void forward(const Problem& p) {
    const int blocks = block_count(p);
    launch(attention<T, d>, dim3(blocks), Tile<d>::threads, sizeof(Shared<T, d>), p);
    const dim3 merge_blocks(ceil_div(p.B * p.H * p.Nq, merge_threads / 32));
    launch<Start::early>(merge<T, d>, merge_blocks, merge_threads, 0, p, blocks);
}

std::size_t workspace_bytes(const Shape& s, int sm_count) {
    const auto rows = s.d == 64 ? Workspace<64>::rows(s, sm_count) : Workspace<128>::rows(s, sm_count);
    return rows * (s.d + 2) * sizeof(float);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(forward, Dims, .number = 83, .name = "hopper_prefix", .parent = 39,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {128, 128, 6},
                                     {128, 128, 3}),
             .change = "39 with pages: a warpgroup copies keys; one launch for the prefix and own keys",
             .shows_in = "prefix", .takes = {Feature::lengths, Feature::pages, Feature::prefix},
             .diff_budget = 0, .most_lines = 640,  // schedules ragged requests
             .batch_invariant = false, .rounds_large_scores = true, .workspace_bytes = workspace_bytes);

}  // namespace
