// The kernels of stage 56: gradients of attention to some keys, by persistent blocks. Part of its namespace.

constexpr int groups = 2;  // warpgroups that multiply, of 64 keys each
constexpr int threads = 128 * (1 + groups);
constexpr int row_threads = 256;  // of the kernels before and after
constexpr int depth = 2;          // slots of Q and dO

/// Named barriers, by what is true when they are complete. 0 is that of __syncthreads.
enum {
    dS_full = 1,         // dS of all keys has been written
    K_empty = 2,         // no warp reads K any more
    gradients_full = 3,  // by warpgroups, of even and of odd parts: its rows of dK and dV have been written
    dQ_full = 7,         // by warpgroups: its half of dQ has been written
    dQ_empty = 9         // by warpgroups: its half of dQ has been read
};

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int Br = d == 64 ? 128 : 64;
    static constexpr int Bc = 64 * groups;
    static constexpr int buffers = d == 64 ? 2 : 1;  // of K and V: as many as fit
};

struct TileIndex {
    int batch, head, tile;
};

/// The order in which blocks take the key tiles of all key/value heads: the first one of each of `section`
/// heads, then the second one; under a mask this is longest first. Without a mask a section is one head.
struct TileOrder {
    int Tc, heads, section;               // heads = B Hkv
    int parts = 1;                        // of each key tile, with consecutive numbers
    int total = 0;                        // Tc heads parts
    float4 *dK = nullptr, *dV = nullptr;  // (parts, B, Hkv, Tc Bc, d), by fragments; dK / scale
    unsigned* taken = nullptr;            // requests for a next part; 0 before and after a launch

    /// Number n of them. Counted from the last one, so that all sections but the first are whole.
    __host__ __device__ TileIndex at(const Shape& p, int n) const {
        const int m = heads * Tc - 1 - n, first = m / (section * Tc) * section, r = m % (section * Tc);
        const int together = min(section, heads - first), head = first + r % together;
        return {head / p.Hkv, head % p.Hkv, Tc - 1 - r / together};
    }
};

/// A part of a key tile: `total` of the query tiles that see it, from tile i of head h on. Of each head of
/// the group these are the tiles from `first` on.
template <int d>
struct Part {
    TileIndex key;
    int index, first, total, i, h;  // `index` of `parts`

    __device__ Part(const Problem& p, const TileOrder& order, int n, int parts)
        : key(order.at(p, n / parts)), index(n % parts) {
        first = p.causal ? max(0, key.tile * Tile<d>::Bc - (p.Nk - p.Nq)) / Tile<d>::Br : 0;
        const int heads = p.H / p.Hkv, tiles = ceil_div(p.Nq, Tile<d>::Br) - first;
        const int begin = tiles * heads * index / parts;
        total = tiles * heads * (index + 1) / parts - begin;
        i = first + begin % tiles, h = key.head * heads + begin / tiles;
    }
};

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    alignas(1024) T K[Tile<d>::buffers][groups][d / 64][64][64];  // then dK
    alignas(1024) T V[Tile<d>::buffers][groups][d / 64][64][64];  // then dV
    alignas(1024) T Q[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dO[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dS[depth][groups][Tile<d>::Br][64];  // rows are queries, a panel the keys of a warpgroup
    alignas(1024) float dQ[groups][4][8][32][4];         // of each warp, on their way out: 32 of each lane
    float L[depth][Tile<d>::Br], D[depth][Tile<d>::Br];
    Mbarrier keys_full[Tile<d>::buffers], full[depth], empty[depth];
    int number[2];  // of the block's parts, even and odd ones; -1 if none is left
    Mbarrier number_full[2], number_empty[2];
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

    __host__ __device__ Sums(const Problem& p, int b, int h) {
        const std::int64_t rows = ceil_div(p.Nq, Tile<d>::Br) * Tile<d>::Br, all = rows * p.B * p.H,
                           head = (std::int64_t{b} * p.H + h) * rows;
        float* first = static_cast<float*>(p.workspace);
        dQ = reinterpret_cast<float4*>(first + head * d);
        L = first + all * d + head;
        D = L + all;
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
    }
    float4* dQ = sums.dQ + row * (d / 4) + lane;
    store(dQ, {0.0f, 0.0f, 0.0f, 0.0f});
    store(dQ + lanes, {0.0f, 0.0f, 0.0f, 0.0f});
}

/// Takes the block's part q, and tells the other warps its number. The sender calls it.
template <class Shared>
__device__ int take_part(Shared& shared, const TileOrder& order, int q) {
    int n = -1;  // none is left
    if (threadIdx.x % 32 == 0) {
        n = q == 0 ? blockIdx.x : gridDim.x + atomicInc(order.taken, order.total - 1);  // the last wraps to 0
        if (n >= order.total) n = -1;
        mbarrier_try_wait(&shared.number_empty[q % 2], q / 2 - 1);  // number q - 2 has been read
        store(&shared.number[q % 2], n);
        mbarrier_arrive(&shared.number_full[q % 2]);
    }
    return uniform(n);
}

/// The number of the block's part q, -1 if there is none. The producer and all consumers call it.
template <class Shared>
__device__ int read_number(Shared& shared, int q) {
    mbarrier_try_wait(&shared.number_full[q % 2], q / 2);
    const int n = load(&shared.number[q % 2]);
    mbarrier_arrive(&shared.number_empty[q % 2]);
    return n;
}

/// Starts copying K and V of the block's part q.
template <int d, class Shared>
__device__ void load_keys(Shared& shared, const Maps& maps, TileIndex key, int q) {
    const int buffer = q % Tile<d>::buffers;
    Mbarrier* full = &shared.keys_full[buffer];
    mbarrier_expect(full, sizeof shared.K[0] + sizeof shared.V[0]);
    for (int g = 0; g < groups; ++g) {
        const int row = key.tile * Tile<d>::Bc + 64 * g;
        bulk_load(shared.K[buffer][g], &maps.K, row, key.head, key.batch, full);
        bulk_load(shared.V[buffer][g], &maps.V, row, key.head, key.batch, full);
    }
}

/// Starts copying query tile i of head h, the block's k-th: Q, dO, L and D. `sums` begin with the first head.
template <int d, class Shared>
__device__ void load_queries(Shared& shared, const Problem& p, const Maps& maps, const Sums<d>& sums, int b,
                             int h, int i, int k) {
    const int slot = k % depth, row = i * Tile<d>::Br;
    const std::int64_t at = std::int64_t{(b * p.H + h) * ceil_div(p.Nq, Tile<d>::Br) + i} * Tile<d>::Br;
    Mbarrier* full = &shared.full[slot];
    mbarrier_try_wait(&shared.empty[slot], k / depth - 1);  // tile k - depth has been read
    mbarrier_expect(full, sizeof shared.Q[0] + sizeof shared.dO[0] + sizeof shared.L[0] + sizeof shared.D[0]);
    bulk_load(shared.Q[slot], &maps.Q, row, h, b, full);
    bulk_load(shared.dO[slot], &maps.dO, row, h, b, full);
    bulk_load(shared.L[slot], sums.L + at, sizeof shared.L[0], full);
    bulk_load(shared.D[slot], sums.D + at, sizeof shared.D[0], full);
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

/// One warp adds both halves of dQ to the sums of a part's next `total` query tiles, and advances the part.
template <class T, int d>
__device__ void send_dQ(Shared<T, d>& shared, const Problem& p, Part<d>& part, int total) {
    const bool sends = threadIdx.x % 32 == 0;
#pragma unroll 1  // each step waits: copies of the body would gain nothing
    for (int k = 0; k < total; ++k) {
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            named_barrier_sync(dQ_full + g, 128 + 32);
            const int row = part.i * Tile<d>::Br + (d == 64 ? 64 * g : 0), column = d == 64 ? 0 : 64 * g;
            float4* to = Sums<d>(p, part.key.batch, part.h).dQ + fragment<d>(row, column);
            if (sends) bulk_add(&to->x, &shared.dQ[g][0][0][0][0], sizeof shared.dQ[g]), bulk_commit();
        }
        if (sends) bulk_wait_read<1>();
        __syncwarp();
        named_barrier_arrive(dQ_empty, 128 + 32);
        if (sends) bulk_wait_read<0>();
        __syncwarp();
        named_barrier_arrive(dQ_empty + 1, 128 + 32);
        if (++part.i == ceil_div(p.Nq, Tile<d>::Br)) part.i = part.first, ++part.h;
    }
}

/// A block computes parts, one after another: dK and dV, and what is added to dQ of their query tiles. At the
/// end of a part the copies of the next one are under way.
/// - Producer: copies Q, dO, L and D of each query tile into the next slots of a ring.
/// - Consumers, a warpgroup for 64 keys: P^T from S^T = K Q^T, dS^T from dP^T = V dO^T, both in registers;
///   dV += P^T dO and dK += dS^T Q. Both write dS to shared memory (dS_full), and each multiplies its half of
///   dQ = dS K, which it writes to shared memory (dQ_full).
/// - Sender, a warp: takes parts from a counter, and copies K and V; adds dQ to the sums by a bulk copy,
///   after which it may be overwritten (dQ_empty); copies dK and dV out (gradients_full).
/// A slot's life: the producer waits for `empty` and starts the copies; `full` completes when all bytes have
/// arrived; consumers multiply, and all their threads arrive at `empty` after the last product that reads it.
template <class T, int d, bool split>
__global__ void __launch_bounds__(threads, 1)
    gradients(const Problem p, const __grid_constant__ Maps maps, const TileOrder order, const Sums<d> sums) {
    constexpr int Br = Tile<d>::Br, Bc = Tile<d>::Bc, buffers = Tile<d>::buffers;
    const int Tr = ceil_div(p.Nq, Br);
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    const int parts = split ? order.parts : 1;  // 1 leaves nothing to divide by
    if (threadIdx.x == 0) {
        for (int buffer = 0; buffer < buffers; ++buffer) mbarrier_init(&shared.keys_full[buffer], 1);
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.full[slot], 1);
            mbarrier_init(&shared.empty[slot], 128 * groups);
        }
        for (int slot = 0; slot < 2; ++slot) {
            mbarrier_init(&shared.number_full[slot], 1);
            mbarrier_init(&shared.number_empty[slot], 128 * groups + 1);  // consumers and producer read it
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up
    const int group = uniform(threadIdx.x / 128), lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    if (group == 0) {
        release_registers<24>();
        if (warp == 1) {
            int n = take_part(shared, order, 0);
            if (lane == 0) load_keys<d>(shared, maps, order.at(p, n / parts), 0);
            for (int q = 0, next; n >= 0; n = next, ++q) {
                Part<d> part(p, order, n, parts);
                const TileIndex key = part.key;
                const int rest = min(part.total, depth + 2);  // two in the ring, two for the request
                send_dQ(shared, p, part, part.total - rest);
                next = take_part(shared, order, q + 1);
                const bool loads = lane == 0 && next >= 0;
                if (buffers == 2 && loads) load_keys<d>(shared, maps, order.at(p, next / parts), q + 1);
                send_dQ(shared, p, part, rest);
                for (int g = 0; g < groups; ++g) {
                    named_barrier_sync(gradients_full + q % 2 * groups + g, 128 + 32);
                    if (!split && lane == 0) {
                        const int row = key.tile * Bc + 64 * g;
                        bulk_store(&maps.dK, shared.K[q % buffers][g], 0, row, key.head, key.batch);
                        bulk_store(&maps.dV, shared.V[q % buffers][g], 0, row, key.head, key.batch);
                        bulk_commit();
                    }
                }
                if (lane == 0) bulk_wait_read<0>();  // then K and V may be overwritten
                if (buffers == 1 && loads) load_keys<d>(shared, maps, order.at(p, next / parts), q + 1);
                __syncwarp();
            }
            return;
        }
        if (threadIdx.x > 0) return;
        for (int q = 0, k = 0, n; (n = read_number(shared, q)) >= 0; ++q) {
            Part<d> part(p, order, n, parts);
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (const int end = k + part.total; k < end; ++k) {
                load_queries(shared, p, maps, sums, part.key.batch, part.h, part.i, k);
                if (++part.i == Tr) part.i = part.first, ++part.h;
            }
        }
        return;
    }

    claim_registers<240>();
    const int G = group - 1, t = lane % 4;
    for (int q = 0, k = 0;; ++q) {  // k query tiles before part q
        const int n = uniform(read_number(shared, q));
        if (n < 0) {
            if (k > 0) named_barrier_sync(dQ_empty + G, 128 + 32);
            return;
        }
        Part<d> part(p, order, n, parts);
        const int b = part.key.batch, h_kv = part.key.head, j = part.key.tile, first_key = j * Bc + 64 * G;
        const int buffer = uniform(q) % buffers;
        auto &K = shared.K[buffer], &V = shared.V[buffer];
        float dK[d / 2] = {}, dV[d / 2] = {};  // (64, d)
        mbarrier_try_wait(&shared.keys_full[buffer], q / buffers);
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
        for (const int end = k + part.total; k < end; ++k) {
            const int slot = uniform(k) % depth;
            float S[Br / 2], dP[Br / 2];  // transposed: (64 keys, Br queries)
            std::uint32_t P[Br / 4], dS[Br / 4];
            mbarrier_try_wait(&shared.full[slot], k / depth);
            float2 L[8];                                    // of this lane's columns, 64 queries at a time
            if (d == 128) read_columns(shared.L[slot], L);  // or ptxas may read it after most products
            wgmma_fence();
            multiply_rows<T, d>(matrix_descriptor(K[G]), matrix_descriptor(shared.Q[slot]), S);
            multiply_rows<T, d>(matrix_descriptor(V[G]), matrix_descriptor(shared.dO[slot]), dP);
            const bool masked = (j + 1) * Bc > (p.causal ? min(p.Nk, part.i * Br + p.Nk - p.Nq + 1) : p.Nk);
            note_tile<64, Br>(b, part.h, part.i * Br, 2 * j + G, masked);
#pragma unroll
            for (int half = 0; half < Br / 64; ++half) {  // 64 queries at a time
                if (d == 64) read_columns(&shared.L[slot][64 * half], L);
                if (half == 0) wgmma_wait<1>(S);
                exponentiate<T, Br>(p, first_key, part.i * Br, masked, half, L, S, P);  // S is P^T, too
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
            const Descriptor x = matrix_descriptor(K, 64).row(column);  // its panel of 64 rows
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
            named_barrier_arrive(dQ_full + G, 128 + 32);
            wgmma_wait<0>(dK);
            fence_operand(P), fence_operand(dS), fence_operand(dV);
            mbarrier_arrive(&shared.empty[slot]);
            if (++part.i == Tr) part.i = part.first, ++part.h;
        }
        if constexpr (split) {
            const std::int64_t slot = part.index * order.heads + b * p.Hkv + h_kv, rows = order.Tc * Bc;
            const std::int64_t to = slot * rows * (d / 4) + fragment<d>(first_key + 16 * warp, 0) + lane;
#pragma unroll
            for (int c = 0; c < d / 2; c += 4) {
                store(order.dK + to + fragment<d>(0, 2 * c), {dK[c], dK[c + 1], dK[c + 2], dK[c + 3]});
                store(order.dV + to + fragment<d>(0, 2 * c), {dV[c], dV[c + 1], dV[c + 2], dV[c + 3]});
            }
        } else {
            named_barrier_sync(K_empty, 128 * groups);
            write_tile<T, d>(dK, p.scale, K[G]);
            write_tile<T, d>(dV, 1.0f, V[G]);
            fence_proxy_async();
        }
        named_barrier_arrive(gradients_full + q % 2 * groups + G, 128 + 32);
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
    float4 total[4] = {};
    for (int part = 0; part < parts; ++part) {
#pragma unroll
        for (int t = 0; t < 4; ++t) {  // four loads in flight
            const float4 x = load(sum + t + part * gridDim.z * gridDim.y * rows * (d / 4));
            total[t].x += x.x, total[t].y += x.y, total[t].z += x.z, total[t].w += x.w;
        }
    }
    std::uint32_t upper[4], lower[4];  // of rows g and g + 8
#pragma unroll
    for (int t = 0; t < 4; ++t) {
        upper[t] = pack<T>(total[t].x * factor, total[t].y * factor);
        lower[t] = pack<T>(total[t].z * factor, total[t].w * factor);
    }
    T* x = matrix<T>(X, b, h) + (first_row + g) * X.row + column;
    if (first_row + g < N) store(reinterpret_cast<uint4*>(x), {upper[0], upper[1], upper[2], upper[3]});
    if (first_row + g + 8 < N) {
        store(reinterpret_cast<uint4*>(x + 8 * X.row), {lower[0], lower[1], lower[2], lower[3]});
    }
}

std::size_t sums_bytes(const Shape& s) {
    const int Br = s.d == 64 ? Tile<64>::Br : Tile<128>::Br;
    return std::size_t(s.B) * s.H * ceil_div(s.Nq, Br) * Br * (s.d + 2) * sizeof(float);  // Sums
}

/// Under a mask a section has as many heads as have a key tile for each multiprocessor, if their Q, dO and
/// sums of dQ stay in the L2 cache: half a MB for each multiprocessor.
TileOrder order_of(const Shape& s, bool causal, int sm_count) {
    const int Tc = ceil_div(s.Nk, Tile<128>::Bc), heads = s.B * s.Hkv;  // Bc is the same at d = 64
    const std::int64_t L2 = std::int64_t{sm_count} << 19,
                       bytes = std::int64_t{8} * s.Nq * s.d * (s.H / s.Hkv);
    const std::int64_t most = std::min<std::int64_t>(sm_count / Tc, L2 / bytes);
    return {Tc, heads, causal ? int(std::clamp<std::int64_t>(most, 1, heads)) : 1};
}
