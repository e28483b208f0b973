// Stage 95: tile lists on Hopper. The producer merges the lists of the block's two rows of tiles, and copies
// two key tiles of their union into a slot. Each warpgroup hides tiles that are not in its own lists.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr float threshold = 8.0f;  // P stays below 2^8, which fp16 holds

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int groups = 2;  // warpgroups that multiply, of 64 rows each: a row of tiles
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = 40;
    static constexpr int consumer_registers = 232;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = d <= 128 ? 128 : 64;  // keys of a slot
    static constexpr int tiles = Bc / 64;           // key tiles of a slot, a pair that need not be adjacent
    static constexpr bool turns = d <= 128;         // at d = 256 exponentials take a small part of the time
    static constexpr int depth = d == 64 ? 4 : 2;   // slots of K and V: stages of the pipeline
    static constexpr int Q_slots = d <= 128 ? 2 : 1;
    static constexpr int O_panels = d == 64 ? 1 : 2;  // panels that a warp stores at a time
};

struct alignas(16) TileIndex {
    int batch, head, tile;
};

/// A key tile of the block, as a warpgroup sees it: full, hidden, or the partial tile with this index
struct alignas(8) Visit {
    static constexpr int full = -1, hidden = -2;
    int tile, kind;
};

/// The producer's position in a list: entry `at` is key tile `tile`, which is past the last tile at the end.
/// Without lists, entry n is key tile n.
struct Walk {
    int at, end, tile;

    __device__ void go_to(const Problem& p, const int* tiles, int n) {
        at = n;
        tile = n >= end ? ceil_div(p.Nk, 64) : tiles == nullptr ? n : load(tiles + n);
    }
};

/// The full or the partial key tiles of query rows first_row .. first_row + 63, from the first one on
__device__ Walk walk_of(const Problem& p, const TileList& list, int b, int h, int first_row, bool partial) {
    Walk walk = {};
    if (first_row < p.Nq && p.tiles.heads > 0) {
        const int head = b % p.tiles.batches * p.tiles.heads + h / (p.H / p.tiles.heads);
        const int* first = list.first + std::int64_t{head} * ceil_div(p.Nq, 64) + first_row / 64;
        walk.at = load(first), walk.end = load(first + 1);
    } else if (first_row < p.Nq) {
        const int reach = p.causal ? first_row + p.Nk - p.Nq : p.Nk;  // row first_row sees no key past it
        walk.end = max(0, min(p.Nk, reach + 1) / 64);
        if (partial) walk.at = walk.end, walk.end = ceil_div(min(p.Nk, reach + 64), 64);
    }
    walk.go_to(p, list.tiles, walk.at);
    return walk;
}

/// The keys of a partial tile that a row sees, one bit each
__device__ std::uint64_t visible_keys(const Problem& p, Visit visit, int row) {
    if (p.tiles.heads > 0) return load(p.tiles.bits + std::int64_t{visit.kind} * 64 + row % 64);
    const int seen = min(p.Nk, p.causal ? row + 1 + p.Nk - p.Nq : p.Nk) - visit.tile * 64;
    return seen <= 0 ? 0 : ~std::uint64_t{0} >> max(0, 64 - seen);
}

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    alignas(1024) T Q[Tile<d>::Q_slots][Tile<d>::groups][d / 64][64][64];
    alignas(1024) T K[Tile<d>::depth][d / 64][Tile<d>::Bc][64];  // pair k of the block is in slot k % depth
    alignas(1024) T V[Tile<d>::depth][d / 64][Tile<d>::Bc][64];
    alignas(1024) T O[4 * Tile<d>::groups][Tile<d>::O_panels][16][64];  // rows that a warp is about to store
    TileIndex tile[Tile<d>::Q_slots];  // the tile that Q belongs to; no tiles are left if batch < 0
    Visit visit[Tile<d>::depth][Tile<d>::groups]
               [Tile<d>::tiles];  // written before K_full, read until K_empty
    int last[Tile<d>::depth];     // 1 if the query tile has no further pair
    Mbarrier Q_full[Tile<d>::Q_slots], Q_empty[Tile<d>::Q_slots];
    Mbarrier K_full[Tile<d>::depth], V_full[Tile<d>::depth];    // phase k / depth: pair k has arrived
    Mbarrier K_empty[Tile<d>::depth], V_empty[Tile<d>::depth];  // phase k / depth: all have read pair k
};

template <int d>
struct Maps {
    TensorMap Q, O, K[d / 64], V[d / 64];  // one of K and of V for each panel
};

/// The order in which blocks take the query tiles of all heads: without a mask head by head; with one the
/// longest first, of `section` heads together, whose K and V fit in the L2 cache.
struct TileOrder {
    int Tr, heads, section, total;  // heads = B H, total = Tr heads
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
        return {head / p.H, head % p.H, i};
    }
};

/// Turns the scores S (64, Bc) of a warpgroup into exponents S scale - m, with -inf where masked: in tiles
/// that are not full, where this lane's `keys` of rows g and g + 8 are not set.
template <int d, int tiles = Tile<d>::tiles>
__device__ void shift(const Problem& p, int b, int h, int first_row, const Visit (&visit)[tiles],
                      const std::uint64_t (&keys)[tiles][2], float (&S)[32 * tiles], const float (&m)[2]) {
    const float scale = p.scale * log2_e;  // exponents and m are in base 2
#pragma unroll
    for (int c = 0; c < 32 * tiles; ++c) S[c] = S[c] * scale - m[row_of(c)];
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
        const bool masked = visit[n].kind != Visit::full;
        note_tile<64>(b, h, first_row, visit[n].tile, masked);
        if (masked) {
#pragma unroll
            for (int c = 0; c < 32; ++c) {
                if ((keys[n][row_of(c)] >> column_of(c)) % 2 == 0) S[32 * n + c] = -inf;
            }
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
/// first key that a row has seen sets m, even to less than 0.
template <int n>
__device__ void rescale(bool (&seen)[2], float (&S)[n], float (&alpha)[2], float (&m)[2], float (&l)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float rise = lane_max(S, r);
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 1));
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 2));
        const bool first = !seen[r];
        seen[r] = seen[r] | (rise > -inf);
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

/// Writes O / l of the warp's 16 rows to global memory through its O_tile, some panels at a time; and
/// L = m + log(l), where l is the sum over the four lanes of a row.
template <class T, int d, int panels = Tile<d>::O_panels>
__device__ void write_rows(const Problem& p, const TensorMap& map, int b, int h, int first_row,
                           T (&O_tile)[panels][16][64], const float (&O)[d / 2], const float (&m)[2],
                           const float (&lane_l)[2]) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    float inverse_l[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float l = lane_l[r];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        inverse_l[r] = l == 0.0f ? 0.0f : divide(1.0f, l);
        const int row = first_row + 16 * warp + lane / 4 + 8 * r;
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + row;
        if (row < p.Nq && lane % 4 == 0) store(L, (m[r] + log2f(l)) * ln_2);
    }
#pragma unroll
    for (int panel = 0; panel < d / 64; panel += panels) {
        if (lane == 0) bulk_wait_read<0>();  // the previous store has read the tile
        __syncwarp();
#pragma unroll
        for (int c = 0; c < 64 * panels; c += 16) {
            std::uint32_t x[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float* pair = &O[(64 * panel + c) / 2 + 2 * k];
                x[k] = pack<T>(pair[0] * inverse_l[k % 2], pair[1] * inverse_l[k % 2]);
            }
            const int row = a_row(lane), column = c % 64 + a_column(lane);
            stmatrix(&O_tile[c / 64][row][column ^ row % 8 * 8], x);
        }
        fence_proxy_async();
        __syncwarp();  // the warp's rows of O are complete, whichever lane wrote them
        if (lane == 0) {
            bulk_store(&map, O_tile, panel, first_row + 16 * warp, h, b);
            bulk_commit();
        }
    }
}

template <class T, int d, bool causal>
__global__ void __launch_bounds__(Tile<d>::threads, 1)
    attention(const Problem p, const __grid_constant__ Maps<d> maps, const TileOrder order) {
    constexpr int groups = Tile<d>::groups, Br = Tile<d>::Br, Bc = Tile<d>::Bc, depth = Tile<d>::depth;
    constexpr int Q_slots = Tile<d>::Q_slots, tiles = Tile<d>::tiles;
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Q_slots; ++slot) {
            mbarrier_init(&shared.Q_full[slot], 1);
            mbarrier_init(&shared.Q_empty[slot], 128 * groups);  // all threads arrive, since all read `tile`
        }
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 1);
            mbarrier_init(&shared.V_full[slot], 1);
            mbarrier_init(&shared.K_empty[slot], 128 * groups);  // every thread, since all read `visit`
            mbarrier_init(&shared.V_empty[slot], 128 * groups);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up
    const int group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<Tile<d>::producer_registers>();
        if (threadIdx.x > 0) return;
        // Query tile q of this block is number n of all, and k pairs of key tiles come before its own.
        for (int k = 0, q = 0, n = blockIdx.x;; ++q) {
            const int Q_slot = q % Q_slots;
            mbarrier_try_wait(&shared.Q_empty[Q_slot], q / Q_slots - 1);
            if (n >= order.total) {
                store(&shared.tile[Q_slot], TileIndex{-1, 0, 0});
                mbarrier_arrive(&shared.Q_full[Q_slot]);
                return;
            }
            const TileIndex tile = order.at<causal>(p, n);
            store(&shared.tile[Q_slot], tile);
            const int b = tile.batch, h = tile.head, i = tile.tile, h_kv = h / (p.H / p.Hkv);
            Walk full[groups], partial[groups];  // the lists of each warpgroup
#pragma unroll
            for (int g = 0; g < groups; ++g) {
                full[g] = walk_of(p, p.tiles.full, b, h, i * Br + 64 * g, false);
                partial[g] = walk_of(p, p.tiles.partial, b, h, i * Br + 64 * g, true);
            }
            const auto next_tile = [&] {
                int next = full[0].tile;
#pragma unroll
                for (int g = 0; g < groups; ++g) next = min(next, min(full[g].tile, partial[g].tile));
                return next;
            };
            mbarrier_expect(&shared.Q_full[Q_slot], sizeof shared.Q[Q_slot]);
            for (int g = 0; g < groups; ++g) {
                bulk_load(shared.Q[Q_slot][g], &maps.Q, i * Br + 64 * g, h, b, &shared.Q_full[Q_slot]);
            }
            bool last = false;
#pragma unroll 1
            for (; !last; ++k) {
                Visit visit[tiles][groups];
#pragma unroll
                for (int t = 0; t < tiles; ++t) {
                    const int next = next_tile();
#pragma unroll
                    for (int g = 0; g < groups; ++g) {
                        // Without rows there is nothing to hide. Past the last tile all keys are 0.
                        visit[t][g] = {next, i * Br + 64 * g < p.Nq ? Visit::hidden : Visit::full};
                        if (full[g].at < full[g].end && full[g].tile == next) {
                            visit[t][g].kind = Visit::full;
                            full[g].go_to(p, p.tiles.full.tiles, full[g].at + 1);
                        } else if (partial[g].at < partial[g].end && partial[g].tile == next) {
                            visit[t][g].kind = partial[g].at;
                            partial[g].go_to(p, p.tiles.partial.tiles, partial[g].at + 1);
                        }
                    }
                }
                last = next_tile() == ceil_div(p.Nk, 64);
                const int slot = k % depth;
                const auto copy = [&](auto& ring, const TensorMap(&map)[d / 64], Mbarrier* arrived) {
                    mbarrier_expect(&arrived[slot], sizeof ring[slot]);
                    for (int t = 0; t < tiles; ++t) {
                        for (int c = 0; c < d / 64; ++c) {
                            bulk_load(&ring[slot][c][64 * t], &map[c], visit[t][0].tile * 64, h_kv, b,
                                      &arrived[slot]);
                        }
                    }
                };
                mbarrier_try_wait(&shared.K_empty[slot], k / depth - 1);  // pair k - depth has been read
                for (int t = 0; t < tiles; ++t) {
                    for (int g = 0; g < groups; ++g) store(&shared.visit[slot][g][t], visit[t][g]);
                }
                store(&shared.last[slot], int{last});
                copy(shared.K, maps.K, shared.K_full);
                mbarrier_try_wait(&shared.V_empty[slot], k / depth - 1);
                copy(shared.V, maps.V, shared.V_full);
            }
            n = gridDim.x + atomicInc(order.taken, order.total - 1);  // the last block's request wraps to 0
        }
    }

    claim_registers<Tile<d>::consumer_registers>();
    const int g = group - 1, lane = threadIdx.x % 32;
    const auto wait_turn = [&] {
        if (Tile<d>::turns) named_barrier_sync(1 + g, 256);
    };
    const auto pass_turn = [&] {  // the next warpgroup's
        if (Tile<d>::turns) named_barrier_arrive(1 + (g + 1) % groups, 256);
    };
    if (g == groups - 1) pass_turn();  // the first turn is warpgroup 0's
    for (int k = 0, q = 0;; ++q) {
        const int Q_slot = q % Q_slots;
        mbarrier_try_wait(&shared.Q_full[Q_slot], q / Q_slots);
        const TileIndex tile = load(&shared.tile[Q_slot]);
        if (tile.batch < 0) break;
        const int b = tile.batch, h = tile.head, i = tile.tile;
        const int first_row = i * Br + 64 * g, row = first_row + threadIdx.x / 32 % 4 * 16 + lane / 4;
        const auto release = [&](int j, Mbarrier* empty) {  // after the wait for the product that read it
            mbarrier_arrive(&empty[(k + j) % depth]);
        };
        float S[Bc / 2], O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 4];
        bool seen[2] = {};  // have rows g and g + 8 seen a key?
        int last;
        Visit visit[tiles];
        std::uint64_t keys[tiles][2];
        const auto load_keys = [&] {  // while Q K^T runs: of partial tiles, from this lane's first column on
#pragma unroll
            for (int n = 0; n < 2 * tiles; ++n) {
                keys[n / 2][n % 2] = 0;
                if (visit[n / 2].kind < 0) continue;
                keys[n / 2][n % 2] = visible_keys(p, visit[n / 2], row + n % 2 * 8) >> lane % 4 * 2;
            }
        };
        const auto softmax = [&] {  // turns S into P; returns whether O must be rescaled
            shift<d>(p, b, h, first_row, visit, keys, S, m);
            const bool above = !seen[0] | !seen[1] | (positive_max(S) > threshold);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(seen, S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(first_row + threadIdx.x / 32 % 4 * 16, m, l);
            return rises;
        };
        const auto start_scores = [&](int j) {
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            for (int n = 0; n < tiles; ++n) visit[n] = load(&shared.visit[(k + j) % depth][g][n]);
            last = load(&shared.last[(k + j) % depth]);
            score<T, d>(shared.Q[Q_slot][g], shared.K[(k + j) % depth], S);
        };
        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            add_product<T, d>(P, shared.V[(k + j) % depth], O);
        };
        start_scores(0);
        load_keys();
        wgmma_wait<0>(S);
        release(0, shared.K_empty);
        softmax();
        convert<T>(S, P);
        int j = 1;
#pragma unroll 1
        for (; !last; ++j) {
            wait_turn();
            start_scores(j);
            start_product(j - 1);
            pass_turn();
            load_keys();
            wgmma_wait<1>(S);
            release(j, shared.K_empty);
            const bool rises = softmax();  // P V of the previous tile may still run
            wgmma_wait<0>(O);
            fence_operand(P);
            release(j - 1, shared.V_empty);
            convert<T>(S, P);
            if (rises) {
#pragma unroll
                for (int c = 0; c < d / 2; ++c) O[c] *= alpha[row_of(c)];
            }
        }
        mbarrier_arrive(&shared.Q_empty[Q_slot]);
        start_product(j - 1);
        wgmma_wait<0>(O);
        fence_operand(P);
        release(j - 1, shared.V_empty);
        write_rows<T, d>(p, maps.O, b, h, first_row, shared.O[threadIdx.x / 32 - 4], O, m, l);
        k += j;
    }
    if (lane == 0) bulk_wait_read<0>();
}

template <class T, int d>
void forward(const Problem& p) {
    Maps<d> maps;
    maps.Q = tensor_map<T, d>(p.Q, p.B, p.H, p.Nq, 64);
    maps.O = tensor_map<T, d>(p.O, p.B, p.H, p.Nq, 16, Tile<d>::O_panels);
    for (int c = 0; c < d / 64; ++c) {
        const auto map = [&](View X) {
            X.data = static_cast<T*>(X.data) + 64 * c;
            return tensor_map<T, 64>(X, p.B, p.Hkv, p.Nk, 64);
        };
        maps.K[c] = map(p.K), maps.V[c] = map(p.V);
    }
    const int Tr = ceil_div(p.Nq, Tile<d>::Br), heads = p.B * p.H;
    const double KV_bytes = 4.0 * p.Nk * d * p.Hkv / p.H;  // of K and V, per query head
    const int section = int(std::clamp((16 << 20) / KV_bytes, 1.0, double(heads)));
    const TileOrder order = {Tr, heads, section, Tr * heads, static_cast<unsigned*>(p.workspace)};
    const dim3 grid(std::min(p.sm_count, order.total));
    const auto kernel = p.causal || p.tiles.heads > 0 ? attention<T, d, true> : attention<T, d, false>;
    launch(kernel, grid, Tile<d>::threads, sizeof(Shared<T, d>), p, maps, order);
}

std::size_t counter_bytes(const Shape&, int) {
    return sizeof(unsigned);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(
    forward, Dims, .number = 95, .name = "hopper_tiles", .parent = 35,
    .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {128, 128, 4}, {128, 128, 2},
                            {128, 64, 2}),
    .change = "the producer unites the lists of a block's rows of tiles, and gathers key tiles in pairs",
    .shows_in = "tiles", .takes = {Feature::tiles}, .diff_budget = 0,
    .most_lines = 500,  // with lists of tiles
    .rounds_large_scores = true, .workspace_bytes = counter_bytes, .counter_bytes = counter_bytes);

}  // namespace
