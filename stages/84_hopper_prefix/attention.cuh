// Attention over a cache of requests, whose keys lie in pages or not. Part of the namespace of the stages
// that include it.

constexpr int works = 4;  // slots for query tiles, so that the producer can be ahead

/// The constants, some of which depend on d.
template <int d>
struct Tile {
    static constexpr int groups = 2;  // warpgroups that multiply, of 64 rows each
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = d > 128 ? 72 : 88;
    static constexpr int consumer_registers = d > 128 ? 216 : 208;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = d > 128 ? 64 : 128;
    static constexpr int depth = d == 64 ? 6 : d == 128 ? 3 : 2;  // slots of K and V
    static constexpr int block_rows = 128 * 8 / d;                // that the producer copies at a time
};

/// A bias: what is added to the exponents of a lane's two rows
struct NoBias {
    __device__ NoBias(const Problem&, int, int, int, int) {}
    template <int n>
    __device__ void add(int, float (&)[n]) const {}
};

/// The types of a kernel
template <class M, class S = Scaled, class B = NoBias, class Begin = NoSink>
struct CacheTypes {
    using Mask = M;
    using Score = S;
    using Bias = B;
    using Sink = Begin;
};

/// What the consumers of a block do next: packed rows from first_row on of head h_kv, as many as a tile has,
/// with key tiles first .. last - 1 of the keys from keys.begin to keys.end - 1.
struct alignas(32) Work {
    int h_kv = -1, request;  // nothing is left if h_kv < 0; request -1: the prefix
    Range keys;
    int first_row, first, last;
    int part;  // row of the workspace for first_row; < 0: the rows are complete

    __device__ int end_row(const Problem& p) const {
        return (request < 0 ? p.B : request + 1) * PackedRow::count(p);
    }
    /// The keys that a row sees, counted from keys.begin
    template <class Mask>
    __device__ Range keys_of(const Problem& p, int row) const {
        Range seen = keys;
        if (request >= 0)
            seen = keys.common(keys_of_row<Mask>(p, keys.end, row / (p.H / p.Hkv) - request * p.Nq));
        return {seen.begin - keys.begin, seen.end - keys.begin};
    }
    /// The key tiles that these rows see
    template <class Mask, int Bc>
    __device__ Range key_tiles(const Problem& p, int row, int rows) const {
        const int end = min(end_row(p), row + rows);
        if (row >= end) return {first, first};
        const int begin = max(first, keys_of<Mask>(p, row).begin / Bc);
        return {begin, max(begin, min(last, ceil_div(max(0, keys_of<Mask>(p, end - 1).end), Bc)))};
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

/// Exponents become -inf where one of the rows from first_row on does not see the key. Lanes hold rows g and
/// g + 8 of their warp's 16.
template <class Mask, int n>
__device__ void hide(const Problem& p, const Work& work, int first_row, int first_key, float (&S)[n]) {
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int row = first_row + 16 * warp + g, lane_key = first_key + 2 * t, last_row = work.end_row(p) - 1;
    Range seen[2];  // of this lane's columns
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        seen[r] = work.keys_of<Mask>(p, min(row + 8 * r, last_row));
        seen[r] = {seen[r].begin - lane_key, seen[r].end - lane_key};
    }
#pragma unroll
    for (int c = 0; c < n; ++c) {
        if (!seen[row_of(c)].holds(column_of(c))) S[c] = -inf;
    }
}

/// The sum of l over the four lanes of a row.
__device__ float row_sum(float l) {
    l += __shfl_xor_sync(~0u, l, 1);
    return l + __shfl_xor_sync(~0u, l, 2);
}

/// Writes O / l of the warp's 16 rows, and L = m + log(l).
template <class T, int d, class Sink>
__device__ void write_rows(const Problem& p, int h_kv, int first_row, int end_row, const float (&O)[d / 2],
                           float (&m)[2], const float (&lane_l)[2]) {
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float l = row_sum(lane_l[r]);
        const int row = first_row + 16 * warp + g + 8 * r;
        if (row >= end_row) continue;
        const auto [b, h, i] = PackedRow(p, h_kv, row);
        const float factor = Sink::add(p, h, m[r], l);
        const float inverse_l = l == 0.0f ? 0.0f : divide(factor, l);
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
    const Workspace<Tile<d>> to(p, gridDim.x);
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
        const int to = n * block_rows + row;
        copy_async(&tile[column / 64][to][column % 64 ^ to % 8 * 8],
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
template <class T, int d, class Types>
__global__ void __launch_bounds__(Tile<d>::threads, 1) attention(const Problem p) {
    using Mask = typename Types::Mask;
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
        const Line<Tile<d>, Mask> line(p, gridDim.x);
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
                const bool complete = parts.splits == 1 && p.prefix == 0;
                work = {tile.h_kv,
                        tile.request,
                        tile.keys,
                        tile.first_row,
                        first,
                        last,
                        complete ? -1 : parts.row(block - parts.block, 0)};
            }
            mbarrier_try_wait(&shared.work_empty[n % works], n / works - 1);
            if (threadIdx.x == 0) store(&shared.work[n % works], work);
            mbarrier_arrive(&shared.work_full[n % works]);  // by all: no thread waits for an old phase
            if (work.h_kv < 0) break;
            const Range seen = work.key_tiles<Mask, Bc>(p, work.first_row, Br);
            // Where a thread's row of a key tile begins: its page is looked up while the tile before is
            // copied. Rows past the last key are copies of that one, whatever their slots hold; P is 0 there.
            const bool paged = p.block_table != nullptr;
            const int request = max(0, tile.request);
            const int* table = paged ? p.block_table + request * ceil_div(p.Nk, p.page_size) : nullptr;
            const auto key = [&](int j) {
                return min(tile.keys.begin + j * Bc + known_row<d>(), tile.keys.end - 1);
            };
            const auto page_of = [&](int j) {
                return paged ? load(table + (key(j) >> (__ffs(p.page_size) - 1))) : request;
            };
            int page = seen.begin < seen.end ? page_of(seen.begin) : 0;
#pragma unroll 1
            for (int j = seen.begin; j < seen.end; ++j, ++k) {  // not unrolled: each step waits
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
        const auto read_work = [&] { return load(&shared.work[n % works]); };  // anew: O has the registers
        const Work work = read_work();
        if (work.h_kv < 0) break;
        // The warpgroups change places: with 64 rows at most, each takes every other query tile alone.
        const int row = 64 * ((g + n) % groups), first_row = work.first_row + row;
        const int end_row = work.end_row(p);
        const bool takes_turns = work.first_row + 64 < end_row;
        const Range all = work.key_tiles<Mask, Bc>(p, work.first_row, Br);
        Range own = work.key_tiles<Mask, Bc>(p, first_row, 64);
        if (own.begin >= own.end) own = {all.begin, all.begin};  // no rows, or no keys: it skips all tiles
        // What a trace shows: the request and its rows; with a prefix, the rows of all requests
        const int noted = p.prefix > 0 ? 0 : work.first_row / PackedRow::count(p);
        const int noted_row = first_row - noted * PackedRow::count(p);
        k -= all.begin;
        const Range by_all = {// keys that all rows see
                              work.keys_of<Mask>(p, min(end_row, first_row + 64) - 1).begin,
                              work.keys_of<Mask>(p, first_row).end};
        const typename Types::Score score_of(p, 0, 0);
        const typename Types::Bias bias(p, work.h_kv, work.keys.begin, first_row, end_row);
        const auto release = [&](int j, Mbarrier* empty) {  // after the wait for the product that read it
            if (threadIdx.x % 128 == 0) mbarrier_arrive(&empty[(k + j) % depth]);
        };
        float S[Bc / 2], O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 4];
        bool has_seen[2] = {};             // has the row seen a key?
        const auto softmax = [&](int j) {  // turns S into P; returns whether O must be rescaled
            const bool masked = j * Bc < by_all.begin || (j + 1) * Bc > by_all.end;
            note_tile<Bc>(noted, work.h_kv, noted_row, j, masked, p.H / p.Hkv);
#pragma unroll
            for (int c = 0; c < Bc / 2; ++c) S[c] = score_of.exponent(S[c], m[row_of(c)], c);
            bias.add(j * Bc, S);
            if (masked) {
                const Work now = read_work();
                hide<Mask>(p, now, now.first_row + row, j * Bc, S);
            }
            const bool above = !has_seen[0] | !has_seen[1] | (positive_max(S) > threshold);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(has_seen, S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(noted_row + threadIdx.x / 32 % 4 * 16, m, l);
            return rises;
        };
        const auto start_scores = [&](int j) {
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            fence_proxy_async();  // copies by threads are fit for wgmma
            score<T, d, Bc>(shared.Q[g], shared.K[(k + j) % depth], S);
        };
        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            fence_proxy_async();
            add_product<T, d, Bc>(P, shared.V[(k + j) % depth], O);
        };
        const auto skip = [&](int j) {  // a tile that the other sees
            if (takes_turns && j > all.begin) wait_turn(), pass_turn();
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            named_barrier_sync(7 + group, 128);  // no thread is left waiting for an old phase
            release(j, shared.K_empty);
            release(j, shared.V_empty);
        };
        for (int j = all.begin; j < own.begin; ++j) skip(j);
        if (own.begin < own.end) {
            int j = own.begin;
            load_queries<T, d>(shared.Q[g], p, work.h_kv, first_row, end_row);
            if (takes_turns && j > all.begin) wait_turn(), pass_turn();
            start_scores(j);
            wgmma_wait<0>(S);
            release(j, shared.K_empty);
            softmax(j);
            convert<T>(S, P);
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
            for (++j; j < own.end; ++j) {
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
            start_product(j - 1);
            wgmma_wait<0>(O);
            fence_operand(P);
            release(j - 1, shared.V_empty);
        }
        for (int j = own.end; j < all.end; ++j) skip(j);
        const Work done = read_work();
        if (done.part < 0) {
            write_rows<T, d, typename Types::Sink>(p, done.h_kv, done.first_row + row, done.end_row(p), O, m,
                                                   l);
        } else {
            write_part<d>(p, done.part + row, done.end_row(p) - done.first_row - row, O, m, l);
        }
        k += all.end;
        mbarrier_arrive(&shared.work_empty[n % works]);
    }
}
