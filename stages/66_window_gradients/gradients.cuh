// The kernels of gradients under a mask, of stages 66 and 97 to 99. Part of their namespace. They know no
// mask by name. A type `Place` says where the rows and the keys of a block lie; a type `Mask`, which query
// tiles see these keys, whether all rows of a tile see all keys, and whether one row sees one key.

constexpr int groups = 2;  // warpgroups that multiply, of 64 keys each
constexpr int threads = 128 * (1 + groups);
constexpr int row_threads = 256;  // of the kernels before and after
constexpr int depth = 2;          // slots of Q and dO

/// Named barriers, by what is true when they are complete. 0 is that of __syncthreads.
enum {
    dS_full = 1,         // dS of all keys has been written
    K_empty = 2,         // no warp reads K any more
    gradients_full = 3,  // by warpgroups: its rows of dK and dV have been written
    dQ_full = 5,         // by warpgroups, and 4 later for a second sender: its part of dQ has been written
    dQ_empty = 7         // by warpgroups: its part of dQ has been read
};

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int Br = d == 64 ? 128 : 64;
    static constexpr int Bc = d == 256 ? 64 : 64 * groups;
};

/// The order in which blocks take the key tiles of all key/value heads: the first one of each of `section`
/// heads, then the second one; under a mask this is longest first. Without a mask a section is one head.
struct TileOrder {
    int Tc, heads, section;               // heads = B Hkv
    int parts = 1;                        // consecutive blocks that share the query tiles of a key tile
    float4 *dK = nullptr, *dV = nullptr;  // (parts, B, Hkv, Tc Bc, d), by fragments; dK / scale

    /// Number n of them. Counted from the last one, so that all sections but the first are whole.
    __host__ __device__ TileIndex at(const Shape& p, int n) const {
        const int m = heads * Tc - 1 - n, first = m / (section * Tc) * section, r = m % (section * Tc);
        const int together = min(section, heads - first), head = first + r % together;
        return {head / p.Hkv, head % p.Hkv, Tc - 1 - r / together};
    }
};

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d, class Types>
struct Shared {
    alignas(1024) T K[groups][d / 64][64][64];  // then dK
    alignas(1024) T V[groups][d / 64][64][64];  // then dV
    alignas(1024) T Q[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dO[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dS[depth][groups][Tile<d>::Br][64];  // rows are queries, a panel the keys of a warpgroup
    alignas(1024) float dQ[groups][4][8][32][4];         // of each warp, on their way out: 32 of each lane
    float L[depth][Tile<d>::Br], D[depth][Tile<d>::Br];
    Mbarrier keys_full, full[depth], empty[depth];
    [[no_unique_address]] typename Types::Mask::Shared mask;
    [[no_unique_address]] typename Types::Order::Shared order;
    typename Types::Dropout::template Words<Tile<d>::Br> kept[depth];
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
    float *L, *D;  // L in base 2; inf of rows without keys, and past the last row

    __device__ Sums(const Problem& p, int b, int h) {
        const std::int64_t rows = ceil_div(p.Nq, Tile<d>::Br) * Tile<d>::Br, all = rows * p.B * p.H,
                           head = (std::int64_t{b} * p.H + h) * rows;
        float* first = static_cast<float*>(p.workspace);
        dQ = reinterpret_cast<float4*>(first + head * d);
        L = first + all * d + head;
        D = L + all;
    }
};

/// D = rowsum(dO o O) (algorithm 2, line 4), L in base 2, and dQ = 0. d / 8 threads per row.
template <class T, int d, class Dropout, class Order>
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
        // -inf without a key. As inf it makes P = 0 of any score, also of one that is -inf itself.
        const float L = row < p.Nq ? load(p.L + (std::int64_t{b} * p.H + h) * p.Nq + row) : -inf;
        store(sums.L + row, L == -inf ? inf : L * log2_e + Dropout::log2_share(p));
        store(sums.D + row, D * Dropout::share(p));  // so P is divided by the share, and dP is not
        Order::template reset<d>(p, b, h, row);
    }
    float4* dQ = sums.dQ + row * (d / 4) + lane;
    store(dQ, {0.0f, 0.0f, 0.0f, 0.0f});
    store(dQ + lanes, {0.0f, 0.0f, 0.0f, 0.0f});
}

/// dsink = -sum(exp(sink - L) D) over the rows of a head in all batch entries. A block for each head.
template <int d>
__global__ void __launch_bounds__(row_threads) sum_sinks(const Problem p) {
    const int h = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto& parts = shared_memory<float[row_threads / 32]>();  // of the warps
    const float sink = load(p.sinks + h) * log2_e;
    float sum = 0.0f;
    for (int b = 0; b < p.B; ++b) {
        const Sums<d> sums(p, b, h);
        for (int row = threadIdx.x; row < p.Nq; row += row_threads) {
            sum -= fast_exp2(sink - load(sums.L + row)) * load(sums.D + row);
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) store(&parts[warp], sum);
    __syncthreads();  // all parts have been written
    if (threadIdx.x > 0) return;
    for (int n = 1; n < row_threads / 32; ++n) sum += load(&parts[n]);
    store(p.dsinks + h, sum);
}

/// Starts copying the queries of the block's k-th visit: Q, dO, L and D.
template <int d, class Shared, class Visit>
__device__ void load_queries(Shared& shared, const Problem& p, const Maps& maps, int b, const Visit& visit,
                             int k) {
    constexpr int rows = Visit::rows;
    const int slot = k % depth;
    Mbarrier* full = &shared.full[slot];
    mbarrier_try_wait(&shared.empty[slot], k / depth - 1);  // tile k - depth has been read
    mbarrier_expect(full, sizeof shared.Q[0] + sizeof shared.dO[0] + sizeof shared.L[0] + sizeof shared.D[0]);
    for (int n = 0; n < Tile<d>::Br / rows; ++n) {
        const auto queries = visit.queries(n);
        const Sums<d> sums(p, b, queries.head);
        bulk_load(shared.Q[slot][0][n * rows], &maps.Q, queries.row, queries.head, b, full);
        bulk_load(shared.dO[slot][0][n * rows], &maps.dO, queries.row, queries.head, b, full);
        bulk_load(&shared.L[slot][n * rows], sums.L + queries.row, rows * sizeof(float), full);
        bulk_load(&shared.D[slot][n * rows], sums.D + queries.row, rows * sizeof(float), full);
    }
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
/// 0 where masked, and rounds what dropout keeps. Lanes hold keys g and g + 8 of their warp's 16. `column`
/// gives the rows that see one of the two, counted from the lane's first row. S becomes P times the score's
/// slope, in fp32.
template <class T, int Br, class Score, class Columns, class Kept>
__device__ void exponentiate(const Score& score, bool masked, const Columns& columns, const Kept& kept,
                             int half, const float2 (&L)[8], float (&S)[Br / 2], std::uint32_t (&P)[Br / 4]) {
    const int first = 32 * half, end = first + 32;
    const auto L_of = [&](int c) { return c % 2 == 0 ? L[c % 32 / 4].x : L[c % 32 / 4].y; };
#pragma unroll
    for (int c = first; c < end; ++c) S[c] = score.before_mask(S[c], L_of(c));
    if (masked) {
        const auto seeing = columns();
#pragma unroll
        for (int c = first; c < end; ++c) {
            if (!seeing.of[row_of(c)].holds(column_of(c - first))) S[c] = -inf;
        }
    }
#pragma unroll
    for (int c = first; c < end; c += 2) {
        const float scores[2] = {S[c], S[c + 1]};
        for (int n = c; n < c + 2; ++n) S[n] = fast_exp2(score.after_mask(S[n], L_of(n), n - first));
        P[c / 2] = pack<T>(kept.drop(S[c], c), kept.drop(S[c + 1], c + 1));
        if constexpr (Score::has_slope) {
            for (int n = 0; n < 2; ++n) S[c + n] *= score.slope(scores[n]);
        }
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

/// The barrier by which a warpgroup hands dQ of the block's k-th visit to its sender
template <class Order>
__device__ int dQ_full_of(int G, int k) {
    return dQ_full + G + k % Order::senders * 4;
}

/// Adds each warpgroup's part of dQ to the sums of the query tiles of this visit, the block's k-th. One warp
/// calls it.
template <class T, int d, class Order, class Shared, class Visit>
__device__ void send_dQ(Shared& shared, const Problem& p, const KeyTile& own, const Visit& visit, int k) {
    const bool sends = threadIdx.x % 32 == 0;
    if (sends) Order::template wait_turn<d>(p, own, visit);
#pragma unroll
    for (int g = 0; g < groups; ++g) {
        named_barrier_sync(dQ_full_of<Order>(g, k), 128 + 32);
        const int row = d == 64 ? 64 * g : 0, column = d == 64 ? 0 : 64 * g;
        const auto queries = visit.queries(row / Visit::rows);
        float4* to = Sums<d>(p, own.batch, queries.head).dQ;
        to += fragment<d>(queries.row + row % Visit::rows, column);
        if (sends) {
            if (Order::adds(queries)) bulk_add(&to->x, &shared.dQ[g][0][0][0][0], sizeof shared.dQ[g]);
            bulk_commit();
        }
    }
    if (sends) bulk_wait_read<1>();
    __syncwarp();
    named_barrier_arrive(dQ_empty, 128 + 32);
    if (sends) bulk_wait_read<0>();
    __syncwarp();
    named_barrier_arrive(dQ_empty + 1, 128 + 32);
    if (sends) Order::template pass_turn<d>(p, own, visit);
}

/// A block computes dK and dV of a key tile, and adds to dQ of each query tile that sees it.
/// - Producer: copies K and V, then Q, dO, L and D of each query tile that sees a key, into a ring.
/// - Consumers, a warpgroup for 64 keys: P^T from S^T = K Q^T, dS^T from dP^T = V dO^T, both in registers;
///   dV += P^T dO and dK += dS^T Q. Both write dS to shared memory (dS_full), and each multiplies its half of
///   dQ = dS K, which it writes to shared memory (dQ_full).
/// - Sender, a warp: adds that to the sums by a bulk copy, after which it may be overwritten (dQ_empty).
/// - With dropout, the producer's warps also write the random bits of each query tile to its slot.
/// A slot's life: the producer waits for `empty` and starts the copies; `full` completes when all bytes have
/// arrived; consumers multiply, and all their threads arrive at `empty` after the last product that reads it.
template <class T, int d, class Types, bool split>
__global__ void __launch_bounds__(threads, 1)
    gradients(const Problem p, const __grid_constant__ Maps maps, const TileOrder order,
              const typename Types::Mask::Lists lists) {
    using Mask = typename Types::Mask;
    using Place = typename Types::Place;
    using Score = typename Types::Score;
    using Dropout = typename Types::Dropout;
    using Order = typename Types::Order;
    // Random bytes are drawn by 16 rows from a document's first on, and query tiles lie on the sequence's
    // grid.
    static_assert(!Dropout::draws || std::is_same_v<Place, Dense>);
    constexpr int Br = Tile<d>::Br, Bc = Tile<d>::Bc;
    using QueryTiles = typename Mask::template QueryTiles<Br, Bc>;
    constexpr int rows = QueryTiles::Visit::rows;  // of a query tile
    auto& shared = aligned_shared_memory<Shared<T, d, Types>>();
    const int parts = split ? order.parts : 1;  // 1 leaves nothing to divide by
    const unsigned number = Order::template number<d>(p, shared.order);
    TileIndex tile = order.at(p, number / parts);
    if (Order::last_first) tile.tile = order.Tc - 1 - tile.tile;
    const KeyTile own = Place::key_tile(p, tile, Bc);
    if (Place::leaves_out(own)) return;
    const int h_kv = own.head, b = own.batch;
    if (threadIdx.x == 0) {
        mbarrier_init(&shared.keys_full, 1);
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.full[slot], Dropout::draws ? 1 + 128 : 1);
            mbarrier_init(&shared.empty[slot], 128 * groups);
        }
        mbarrier_fence_init();
    }
    QueryTiles tiles(p, own, lists, shared.mask);  // of each head of the group, that see a key
    __syncthreads();  // the mbarriers are set up, and what the mask has written is complete
    tiles.complete(shared.mask);
    // This block takes `total` of the tiles of all heads, from number `begin` on.
    const int count = tiles.count(own), part = number % parts;
    const int begin = Order::before(p, own, tiles, count, part, parts);
    const int total = Order::before(p, own, tiles, count, part + 1, parts) - begin;
    const int group = uniform(threadIdx.x / 128);
    auto visit = tiles.visit(own, begin);
    if (group == 0) {
        release_registers<24>();
        const int sender = threadIdx.x / 32 - 1;
        const bool loads = threadIdx.x == 0, sends = sender >= 0 && sender < Order::senders;
        const auto is_own = [&](int k) { return Order::senders == 1 || k % Order::senders == sender; };
        if (loads) {
            mbarrier_expect(&shared.keys_full, sizeof shared.K + sizeof shared.V);
            for (int g = 0; g < groups; ++g) {
                bulk_load(shared.K[g], &maps.K, own.first + 64 * g, h_kv, b, &shared.keys_full);
                bulk_load(shared.V[g], &maps.V, own.first + 64 * g, h_kv, b, &shared.keys_full);
            }
        }
        if constexpr (Dropout::draws) {
            const Dropout dropout(p);
            auto sent = visit;  // one visit later, so that a tile's mask is drawn before its dQ is waited for
#pragma unroll 1                // each step waits: copies of the body would gain nothing
            for (int k = 0; k < total; ++k, visit.next()) {
                if (loads) load_queries<d>(shared, p, maps, b, visit, k);
                mbarrier_try_wait(&shared.empty[k % depth],
                                  k / depth - 1);  // bits of tile k - depth were read
                dropout.template draw<Br>(p, own, visit, shared.kept[k % depth]);
                mbarrier_arrive(&shared.full[k % depth]);
                if (!sends || k == 0) continue;
                if (is_own(k - 1)) send_dQ<T, d, Order>(shared, p, own, sent, k - 1);
                sent.next();
            }
            if (sends && total > 0 && is_own(total - 1)) {
                send_dQ<T, d, Order>(shared, p, own, sent, total - 1);
            }
        } else {
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (int k = 0; k < total && sends; ++k, visit.next())
                if (is_own(k)) send_dQ<T, d, Order>(shared, p, own, visit, k);
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (int k = 0; k < total && loads; ++k, visit.next())
                load_queries<d>(shared, p, maps, b, visit, k);
        }
        return;
    }

    claim_registers<240>();
    const int G = group - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, t = lane % 4;
    const int first_key = own.first + 64 * G, key = first_key + 16 * warp + lane / 4;  // and key + 8
    float dK[d / 2] = {}, dV[d / 2] = {};                                              // (64, d)
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
        typename QueryTiles::Queries queries[Br / rows];
        bool masked[Br / rows];
#pragma unroll
        for (int n = 0; n < Br / rows; ++n) {
            queries[n] = visit.queries(n);
            masked[n] = tiles.partial(p, own, queries[n], G);
            note_tile<64, rows>(b, queries[n].head, queries[n].row, own.number * groups + G, masked[n]);
        }
#pragma unroll
        for (int half = 0; half < Br / 64; ++half) {  // 64 queries at a time
            const int n = 64 * half / rows, row = queries[n].row + 64 * half % rows;
            const auto fetched = tiles.fetch(p, queries[n], masked[n], G, row, first_key + 16 * warp);
            const auto columns = [&] { return tiles.columns(p, own, queries[n], fetched, key, row + 2 * t); };
            Score score(p, b, queries[n].head);
            score.move_to_keys((key - own.keys.end) - (row + 2 * t - own.rows.end));
            if (d == 64) read_columns(&shared.L[slot][64 * half], L);
            const auto kept = Dropout::template read<Br>(shared.kept[slot], half, threadIdx.x - 128);
            if (half == 0) wgmma_wait<1>(S);
            choose(score, [&](const auto& chosen) {
                exponentiate<T, Br>(chosen, masked[n], columns, kept, half, L, S, P);
            });
            wgmma_fence();
            add_product<T, d, 64>(P, shared.dO[slot], dV, 64 * half);
            if (half == 0) wgmma_wait<1>(dP);
            // Read again: no register in between
            const auto again = Dropout::template read<Br>(shared.kept[slot], half, threadIdx.x - 128);
#pragma unroll
            for (int c = 32 * half; c < 32 * half + 32; c += 4) {
                const float2 D = load_pair(&shared.D[slot][2 * c + 2 * t]);
                for (int i = c; i < c + 4; ++i) dP[i] = again.drop(dP[i], i);
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
        named_barrier_arrive(dQ_full_of<Order>(G, k), 128 + 32);
        wgmma_wait<0>(dK);
        fence_operand(P), fence_operand(dS), fence_operand(dV);
        mbarrier_arrive(&shared.empty[slot]);
        visit.next();
    }
    if (total > 0) named_barrier_sync(dQ_empty + G, 128 + 32);
    if constexpr (split) {
        const std::int64_t slot = part * order.heads + b * p.Hkv + h_kv, keys = order.Tc * Bc;
        const std::int64_t to = slot * keys * (d / 4) + fragment<d>(first_key + 16 * warp, 0) + lane;
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
    if (Place::template store_rows<T, d>(shared.K[G], p.dK, p, own, first_key)) {
        Place::template store_rows<T, d>(shared.V[G], p.dV, p, own, first_key);
        return;
    }
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
