// Stage 37: packed rows. The query rows of all heads that share K and V lie in one tile, so K and V are read
// once for all of them.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr float threshold = 8.0f;  // P stays below 2^8, which fp16 holds

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int groups = d == 64 ? 3 : 2;  // warpgroups that multiply, of 64 rows each
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = groups == 3 ? 32 : 40;
    static constexpr int consumer_registers = groups == 3 ? 160 : 232;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = 128;
    static constexpr int depth = d == 64 ? 6 : 3;  // slots of K and V, with the room of 36's second Q and O
};

constexpr int tile_slots = 2;  // tiles that the producer has announced

struct alignas(16) TileIndex {
    int batch, head, tile;
};

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    alignas(1024) T Q[Tile<d>::groups][d / 64][64][64];
    alignas(1024) T K[Tile<d>::depth][d / 64][Tile<d>::Bc][64];  // tile k of the block is in slot k % depth
    alignas(1024) T V[Tile<d>::depth][d / 64][Tile<d>::Bc][64];
    TileIndex tile[tile_slots];  // no tiles are left if batch < 0
    Mbarrier tile_full[tile_slots], tile_empty[tile_slots];
    Mbarrier K_full[Tile<d>::depth], V_full[Tile<d>::depth];    // phase k / depth: tile k has arrived
    Mbarrier K_empty[Tile<d>::depth], V_empty[Tile<d>::depth];  // phase k / depth: all have read tile k
};

struct Maps {
    TensorMap K, V;
};

/// Row r of the queries of key/value head h_kv: query i of head h. The heads of its group alternate.
struct PackedRow {
    int h, i;

    __device__ PackedRow(const Problem& p, int h_kv, int r) {
        const int group = p.H / p.Hkv;
        h = h_kv * group + r % group;
        i = r / group;
    }
    static __host__ __device__ int count(const Shape& s) { return s.H / s.Hkv * s.Nq; }
};

/// The order in which blocks take the query tiles of all key/value heads: without a mask head by head; with
/// one the longest first, of `section` heads together, whose K and V fit in the L2 cache.
struct TileOrder {
    int Tr, heads, section, total;  // heads = B Hkv, total = Tr heads
    unsigned* taken;                // not counting each block's first; 0 before and after a launch

    /// The n-th of them
    template <bool causal>
    __device__ TileIndex at(const Problem& p, int n) const {
        int i = n % Tr, head = n / Tr;
        if constexpr (causal) {
            const int first = n / (section * Tr) * section, r = n % (section * Tr);
            const int together = min(section, heads - first);
            i = Tr - 1 - r / together;
            head = first + r % together;
        }
        return {head / p.Hkv, head % p.Hkv, i};
    }
};

/// Copies packed rows first .. first + 63 of Q into the tile of this warpgroup. Rows past the last become 0.
template <class T, int d>
__device__ void load_queries(T (&tile)[d / 64][64][64], const Problem& p, int b, int h_kv, int first) {
    for (int n = threadIdx.x % 128; n < 64 * d / 8; n += 128) {
        const int row = n / (d / 8), column = n % (d / 8) * 8;
        const bool valid = first + row < PackedRow::count(p);
        const auto [h, i] = PackedRow(p, h_kv, valid ? first + row : 0);
        copy_async(&tile[column / 64][row][column % 64 ^ row % 8 * 8],
                   matrix<T>(p.Q, b, h) + i * p.Q.row + column, valid);
    }
    copy_wait();
    fence_proxy_async();
    named_barrier_sync(8 + threadIdx.x / 128, 128);  // the tile is complete, whichever thread wrote it
}

/// Turns the scores S (64, Bc) of a warpgroup with key tile j into exponents S scale - m, with -inf where
/// masked. Lanes hold rows g and g + 8 of their warp's 16.
template <int d, int Bc = Tile<d>::Bc>
__device__ void shift(const Problem& p, int first_row, int j, bool masked, float (&S)[Bc / 2],
                      const float (&m)[2]) {
    const float scale = p.scale * log2_e;  // exponents and m are in base 2
#pragma unroll
    for (int c = 0; c < Bc / 2; ++c) S[c] = S[c] * scale - m[row_of(c)];
    if (masked) {
        const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        int end[2];  // the first of this lane's columns that the row does not see
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = (first_row + 16 * warp + g + 8 * r) / (p.H / p.Hkv);
            end[r] = min(p.Nk, p.causal ? row + p.Nk - p.Nq + 1 : p.Nk) - j * Bc - 2 * t;
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

/// Writes O / l of the warp's 16 rows, and L = m + log(l), where l is the sum over the four lanes of a row.
template <class T, int d>
__device__ void write_rows(const Problem& p, int b, int h_kv, int first_row, const float (&O)[d / 2],
                           const float (&m)[2], const float (&lane_l)[2]) {
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float l = lane_l[r];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        const float inverse_l = l == 0.0f ? 0.0f : divide(1.0f, l);
        const int row = first_row + 16 * warp + g + 8 * r;
        if (row >= PackedRow::count(p)) continue;
        const auto [h, i] = PackedRow(p, h_kv, row);
        T* O_row = matrix<T>(p.O, b, h) + i * p.O.row + 2 * t;
#pragma unroll
        for (int c = 2 * r; c < d / 2; c += 4)
            store_pair(O_row + 2 * (c - 2 * r), O[c] * inverse_l, O[c + 1] * inverse_l);
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + i;
        if (t == 0) store(L, (m[r] + log2f(l)) * ln_2);
    }
}

/// A block computes query tile after query tile. Warp specialization: one thread copies, warpgroups multiply.
/// - Producer: takes a query tile from a counter; copies K and V of each key tile. Consumers copy Q.
/// - Consumers, a warpgroup for 64 rows: start S = Q K^T of key tile j, then O += P V of tile j - 1, which
///   runs during the softmax of tile j; at the end write O and L.
/// - Turns: barrier 1 + g lets warpgroup g start products; meanwhile the others take exponentials.
/// A slot's life: the producer waits for `empty` and starts the copy; `full` completes when all bytes have
/// arrived; a consumer that sees the tile multiplies, then arrives at `empty`; for others the producer does.
template <class T, int d, bool causal>
__global__ void __launch_bounds__(Tile<d>::threads, 1)
    attention(const Problem p, const __grid_constant__ Maps maps, const TileOrder order) {
    constexpr int groups = Tile<d>::groups, Br = Tile<d>::Br, Bc = Tile<d>::Bc, depth = Tile<d>::depth;
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < tile_slots; ++slot) {
            mbarrier_init(&shared.tile_full[slot], 1);
            mbarrier_init(&shared.tile_empty[slot],
                          128 * groups);  // all threads arrive, since all read `tile`
        }
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 1);
            mbarrier_init(&shared.V_full[slot], 1);
            mbarrier_init(&shared.K_empty[slot], groups);
            mbarrier_init(&shared.V_empty[slot], groups);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up
    // Key tiles that these rows see; if they see none, one that is masked; 0 if there are no rows
    const int count = PackedRow::count(p), group_size = p.H / p.Hkv;
    const auto key_tiles = [&](int first_row, int rows) {
        const int end = p.causal ? ceil_div(min(count, first_row + rows), group_size) + p.Nk - p.Nq : p.Nk;
        return first_row >= count ? 0 : max(1, ceil_div(min(p.Nk, end), Bc));
    };
    const int group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<Tile<d>::producer_registers>();
        if (threadIdx.x > 0) return;
        // Query tile q of this block is number n of all, and k key tiles come before its own.
        for (int k = 0, q = 0, n = blockIdx.x;; ++q) {
            const int tile_slot = q % tile_slots;
            mbarrier_try_wait(&shared.tile_empty[tile_slot], q / tile_slots - 1);
            const TileIndex tile = n < order.total ? order.at<causal>(p, n) : TileIndex{-1, 0, 0};
            store(&shared.tile[tile_slot], tile);
            mbarrier_arrive(&shared.tile_full[tile_slot]);
            if (tile.batch < 0) return;
            const int b = tile.batch, h_kv = tile.head, i = tile.tile, Tc = key_tiles(i * Br, Br);
            int own_Tc[groups];
            for (int g = 0; g < groups; ++g) own_Tc[g] = key_tiles(i * Br + 64 * g, 64);
            const auto copy = [&](auto& ring, const TensorMap& map, int j, Mbarrier* full, Mbarrier* empty) {
                const int slot = (k + j) % depth;
                mbarrier_try_wait(&empty[slot], (k + j) / depth - 1);  // tile k + j - depth has been read
                mbarrier_expect(&full[slot], sizeof ring[slot]);
                bulk_load(ring[slot], &map, j * Bc, h_kv, b, &full[slot]);
                for (int g = 0; g < groups; ++g) {  // one that does not see the tile does not wait for it
                    if (j >= own_Tc[g]) mbarrier_arrive(&empty[slot]);
                }
            };
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (int j = 0; j < Tc; ++j) {
                copy(shared.K, maps.K, j, shared.K_full, shared.K_empty);
                copy(shared.V, maps.V, j, shared.V_full, shared.V_empty);
            }
            k += Tc;
            n = gridDim.x + atomicInc(order.taken, order.total - 1);  // the last block's request wraps to 0
        }
    }

    claim_registers<Tile<d>::consumer_registers>();
    const int g = group - 1;
    const auto wait_turn = [&] { named_barrier_sync(1 + g, 256); };
    const auto pass_turn = [&] { named_barrier_arrive(1 + (g + 1) % groups, 256); };  // the next warpgroup's
    if (g == groups - 1) pass_turn();  // the first turn is warpgroup 0's
    for (int k = 0, q = 0;; ++q) {
        const int tile_slot = q % tile_slots;
        mbarrier_try_wait(&shared.tile_full[tile_slot], q / tile_slots);
        const TileIndex tile = load(&shared.tile[tile_slot]);
        if (tile.batch < 0) break;
        const int b = tile.batch, h_kv = tile.head, i = tile.tile;
        const int first_row = i * Br + 64 * g, Tc = key_tiles(first_row, 64),
                  block_Tc = key_tiles(i * Br, Br);
        const int unmasked =  // keys that all rows see
            min(p.Nk, p.causal ? first_row / group_size + p.Nk - p.Nq + 1 : p.Nk);
        const auto release = [&](int j, Mbarrier* empty) {  // after the wait for the product that read it
            if (threadIdx.x % 128 == 0) mbarrier_arrive(&empty[(k + j) % depth]);
        };
        float S[Bc / 2], O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 4];
        const auto softmax = [&](int j) {  // turns S into P; returns whether O must be rescaled
            const bool masked = (j + 1) * Bc > unmasked;
            note_tile<Bc>(b, h_kv, first_row, j, masked, group_size);
            shift<d>(p, first_row, j, masked, S, m);
            const bool above = (j == 0) | (positive_max(S) > threshold);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(j == 0, S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(first_row + threadIdx.x / 32 % 4 * 16, m, l);
            return rises;
        };
        const auto start_scores = [&](int j) {
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            score<T, d>(shared.Q[g], shared.K[(k + j) % depth], S);
        };
        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            add_product<T, d>(P, shared.V[(k + j) % depth], O);
        };
        if (Tc == 0) {  // no rows
            mbarrier_arrive(&shared.tile_empty[tile_slot]);
            for (int j = 1; j < block_Tc; ++j) wait_turn(), pass_turn();
            k += block_Tc;
            continue;
        }
        load_queries<T, d>(shared.Q[g], p, b, h_kv, first_row);
        start_scores(0);
        wgmma_wait<0>(S);
        release(0, shared.K_empty);
        softmax(0);
        convert<T>(S, P);
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
        for (int j = 1; j < Tc; ++j) {
            wait_turn();
            start_scores(j);
            start_product(j - 1);
            pass_turn();
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
        // After the last V has arrived: a warpgroup that leaves tiles out waits for none of their phases
        // itself. Before its next tile it must know that they are over, since a wait names only a parity.
        mbarrier_arrive(&shared.tile_empty[tile_slot]);
        for (int j = Tc; j < block_Tc; ++j) wait_turn(), pass_turn();  // for tiles that only others see
        wgmma_wait<0>(O);
        fence_operand(P);
        release(Tc - 1, shared.V_empty);
        write_rows<T, d>(p, b, h_kv, first_row, O, m, l);
        k += block_Tc;
    }
}

template <class T, int d>
void forward(const Problem& p) {
    const Maps maps = {
        tensor_map<T, d>(p.K, p.B, p.Hkv, p.Nk, Tile<d>::Bc),
        tensor_map<T, d>(p.V, p.B, p.Hkv, p.Nk, Tile<d>::Bc),
    };
    const int Tr = ceil_div(PackedRow::count(p), Tile<d>::Br), heads = p.B * p.Hkv;
    const double KV_bytes = 4.0 * p.Nk * d;                                          // of K and V of a head
    const int section = int(std::clamp((16 << 20) / KV_bytes, 1.0, double(heads)));  // less than half of L2
    const TileOrder order = {Tr, heads, section, Tr * heads, static_cast<unsigned*>(p.workspace)};
    const dim3 grid(std::min(p.sm_count, order.total));
    const auto kernel = p.causal ? attention<T, d, true> : attention<T, d, false>;
    launch(kernel, grid, Tile<d>::threads, sizeof(Shared<T, d>), p, maps, order);
}

std::size_t counter_bytes(const Shape&, int) {
    return sizeof(unsigned);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(forward, Dims, .number = 37, .name = "packed_rows", .parent = 36,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {192, 128, 6},
                                     {128, 128, 3}),
             .change = "the rows of all heads of a group lie in one tile: K and V are read once for them",
             .shows_in = "draft", .diff_budget = 100, .rounds_large_scores = true,
             .workspace_bytes = counter_bytes, .counter_bytes = counter_bytes);

}  // namespace
