// Stage 96: column bounds on Hopper (FlashMask, arXiv 2410.01359). A small kernel turns the bounds of each
// key into the interval of rows that see it, and the gaps in it. The producer classifies key tiles by the
// hull and the common part of these intervals. It copies the tiles that some row sees, and the intervals of
// those that need a mask.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr float threshold = 8.0f;  // P stays below 2^8, which fp16 holds

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int groups = 2;  // warpgroups that multiply, of 64 rows each, by the same key tiles
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = 40;
    static constexpr int consumer_registers = 232;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = 128;
    static constexpr int depth = d == 64 ? 4 : 2;  // slots of K and V: stages of the pipeline
    static constexpr int Q_slots = 2;
    static constexpr int O_panels = d == 64 ? 1 : 2;  // panels that a warp stores at a time
};

struct alignas(16) TileIndex {
    int batch, head, tile, key_tiles = 0;
};

/// Numbers begin .. end - 1, of rows, of keys or of key tiles
struct alignas(8) Range {
    int begin, end;

    __device__ bool holds(Range x) const { return begin <= x.begin && end >= x.end; }
    __device__ bool meets(Range x) const { return begin < x.end && end > x.begin; }
    __device__ Range hull(Range x) const { return {min(begin, x.begin), max(end, x.end)}; }
    __device__ Range common(Range x) const { return {max(begin, x.begin), min(end, x.end)}; }
};

/// The keys that a row sees. Neither bound decreases from one row to the next.
__device__ Range keys_of(const Problem& p, int row) {
    const int position = row + p.Nk - p.Nq, left = p.window.left, right = p.causal ? 0 : p.window.right;
    return {left < 0 ? 0 : max(0, position - left), right < 0 ? p.Nk : min(p.Nk, position + right + 1)};
}

/// Query rows that see the keys of a tile: for each key, those of interval 0 except its gaps, intervals 1 and
/// 2. An empty interval begins at Nq and ends at 0: it does not extend a hull, and makes a common part
/// empty.
struct alignas(16) KeyTile {
    static constexpr int Bc = 128;
    Range rows[3][Bc];
    struct alignas(16) {
        Range hull, common;
    } all[3];  // of the intervals of all keys
};

/// In the workspace: (B, heads that have bounds, Tc).
__device__ KeyTile* key_tiles_of(const Problem& p, int b, int h) {
    const int heads = max(1, p.columns.heads), Tc = ceil_div(p.Nk, KeyTile::Bc);
    return static_cast<KeyTile*>(p.workspace) + (std::int64_t{b} * heads + h / (p.H / heads)) * Tc;
}

/// Interval k of a key. Hidden rows at either end of interval 0 shorten it; others are a gap.
__device__ Range rows_of(const Problem& p, int b, int head, int key, int k) {
    const Range none = {p.Nq, 0};
    if (key >= p.Nk) return none;
    const int row = key - (p.Nk - p.Nq), left = p.window.left, right = p.causal ? 0 : p.window.right;
    const int count = p.columns.count;
    const int* own = p.columns.bounds + ((std::int64_t{b} * p.columns.heads + head) * p.Nk + key) * count;
    Range seen = {right < 0 ? 0 : max(0, row - right), left < 0 ? p.Nq : min(p.Nq, row + left + 1)};
    Range lower = {count > 0 ? load(own) : p.Nq, p.Nq}, upper = {0, 0};
    if (count == 2) (p.causal ? lower : upper).end = load(own + 1);
    if (count == 4) lower.end = load(own + 1), upper = {load(own + 2), load(own + 3)};
    for (Range* gap : {&lower, &upper}) {
        if (gap->begin <= seen.begin) seen.begin = max(seen.begin, gap->end);
        if (gap->end >= seen.end) seen.end = min(seen.end, gap->begin);
        if (gap->begin <= seen.begin || gap->begin >= gap->end || gap->end >= seen.end) *gap = none;
    }
    if (k > 0) return k == 1 ? lower : upper;
    return seen.begin < seen.end ? seen : none;
}

/// Warp k finds interval k of the keys of tile blockIdx.x.
__global__ void __launch_bounds__(96) find_rows(const Problem p) {
    const int j = blockIdx.x, head = blockIdx.y, b = blockIdx.z, k = threadIdx.x / 32;
    KeyTile* tile = key_tiles_of(p, b, head * (p.H / gridDim.y)) + j;
    Range hull = {p.Nq, 0}, common = {0, p.Nq};
    for (int n = threadIdx.x % 32; n < KeyTile::Bc; n += 32) {
        const Range rows = rows_of(p, b, head, j * KeyTile::Bc + n, k);
        store(&tile->rows[k][n], rows);
        hull = hull.hull(rows), common = common.common(rows);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const auto other = [&](int bound) { return __shfl_xor_sync(~0u, bound, lanes); };
        hull = hull.hull({other(hull.begin), other(hull.end)});
        common = common.common({other(common.begin), other(common.end)});
    }
    if (threadIdx.x % 32 == 0) store(&tile->all[k], {hull, common});
}

/// Of a key tile that a block visits: whether some of its rows may be outside interval 0, or in a gap.
enum { cut = 1, gaps = 2, classes = 4 };

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    alignas(1024) T Q[Tile<d>::Q_slots][Tile<d>::groups][d / 64][64][64];
    alignas(1024) T K[Tile<d>::depth][d / 64][Tile<d>::Bc][64];  // tile k of the block is in slot k % depth
    alignas(1024) T V[Tile<d>::depth][d / 64][Tile<d>::Bc][64];
    alignas(1024) T O[4 * Tile<d>::groups][Tile<d>::O_panels][16][64];  // rows that a warp is about to store
    alignas(16) Range rows[Tile<d>::depth][Tile<d>::Bc];  // interval 0 of the keys, if the tile is cut
    int visit[Tile<d>::depth];                            // the number of K's key tile * classes + its class
    TileIndex tile[Tile<d>::Q_slots];  // the tile that Q belongs to; no tiles are left if batch < 0
    Mbarrier Q_full[Tile<d>::Q_slots], Q_empty[Tile<d>::Q_slots];
    Mbarrier K_full[Tile<d>::depth], V_full[Tile<d>::depth];    // phase k / depth: tile k has arrived
    Mbarrier K_empty[Tile<d>::depth], V_empty[Tile<d>::depth];  // phase k / depth: all have read tile k
};

struct Maps {
    TensorMap Q, K, V, O;
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

/// Turns the scores S (64, Bc) of a warpgroup into exponents S scale - m. Lanes hold rows g and g + 8 of
/// their warp's 16.
template <int n>
__device__ void shift(const Problem& p, float (&S)[n], const float (&m)[2]) {
    const float scale = p.scale * log2_e;  // exponents and m are in base 2
#pragma unroll
    for (int c = 0; c < n; ++c) S[c] = S[c] * scale - m[row_of(c)];
}

/// Exponents become -inf where the row is inside that interval of the key, or where it is not.
template <int n>
__device__ void mask(const Range* of_keys, bool inside, int first_row, float (&S)[n]) {
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int c = 0; c < n; ++c) {
        const Range rows = load(&of_keys[2 * t + column_of(c)]);
        const int row = first_row + 16 * warp + g + 8 * row_of(c);
        if ((row >= rows.begin && row < rows.end) == inside) S[c] = -inf;
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

/// Raises m to the maximum of its row, and rescales S and l to it; the caller multiplies O by alpha. The tile
/// with a row's first key, before which l is 0, sets m, even to less than 0.
template <int n>
__device__ void rescale(float (&S)[n], float (&alpha)[2], float (&m)[2], float (&l)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float pair_l = l[r] + __shfl_xor_sync(~0u, l[r], 1);
        const bool first = pair_l + __shfl_xor_sync(~0u, pair_l, 2) == 0.0f;
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
    attention(const Problem p, const __grid_constant__ Maps maps, const TileOrder order) {
    constexpr int groups = Tile<d>::groups, Br = Tile<d>::Br, Bc = Tile<d>::Bc, depth = Tile<d>::depth;
    constexpr int Q_slots = Tile<d>::Q_slots;
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Q_slots; ++slot) {
            mbarrier_init(&shared.Q_full[slot], 1);
            mbarrier_init(&shared.Q_empty[slot], 128 * groups);  // all threads arrive, since all read `tile`
        }
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 1);
            mbarrier_init(&shared.V_full[slot], 1);
            mbarrier_init(&shared.K_empty[slot], 128 * groups);  // every thread, since each reads `rows`
            mbarrier_init(&shared.V_empty[slot], 128 * groups);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up
    const int group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<Tile<d>::producer_registers>();
        const int lane = threadIdx.x;
        if (lane >= 32) return;
        // Query tile q of this block is number n of all, and k key tiles come before its own.
        for (int k = 0, q = 0, n = blockIdx.x;; ++q) {
            const int Q_slot = q % Q_slots;
            if (lane == 0) mbarrier_try_wait(&shared.Q_empty[Q_slot], q / Q_slots - 1);
            if (n >= order.total) {
                if (lane > 0) return;
                store(&shared.tile[Q_slot], TileIndex{-1, 0, 0});
                mbarrier_arrive(&shared.Q_full[Q_slot]);
                return;
            }
            TileIndex tile = order.at<causal>(p, n);
            const int b = tile.batch, h = tile.head, i = tile.tile, h_kv = h / (p.H / p.Hkv);
            const Range rows = {i * Br, min(p.Nq, i * Br + Br)};
            const KeyTile* of_keys = key_tiles_of(p, b, h);
            const auto for_each_visit = [&](auto act) {  // to a key tile that some row may see
                const int end = ceil_div(keys_of(p, rows.end - 1).end, Bc);
                for (int first = keys_of(p, rows.begin).begin / Bc; first < end; first += 32) {
                    const int own = min(first + lane, end - 1);  // a lane classifies one of 32 key tiles
                    const auto seen = load(&of_keys[own].all[0]);
                    const auto lower = load(&of_keys[own].all[1]), upper = load(&of_keys[own].all[2]);
                    const int visit = own * classes + (seen.common.holds(rows) ? 0 : cut) +
                                      (lower.hull.meets(rows) || upper.hull.meets(rows) ? gaps : 0);
                    const bool hidden =
                        !seen.hull.meets(rows) || lower.common.holds(rows) || upper.common.holds(rows);
                    unsigned left = __ballot_sync(~0u, first + lane < end && !hidden);
                    for (; left != 0; left &= left - 1) act(__shfl_sync(~0u, visit, __ffs(left) - 1));
                }
            };
            for_each_visit([&](int) { tile.key_tiles += 1; });
            if (lane == 0) {
                store(&shared.tile[Q_slot], tile);
                mbarrier_expect(&shared.Q_full[Q_slot], sizeof shared.Q[Q_slot]);
                for (int g = 0; g < groups; ++g) {
                    bulk_load(shared.Q[Q_slot][g], &maps.Q, i * Br + 64 * g, h, b, &shared.Q_full[Q_slot]);
                }
            }
            for_each_visit([&](int visit) {
                const int slot = k % depth, phase = k / depth - 1, j = visit / classes;
                const int bytes = (visit & cut) != 0 ? sizeof shared.rows[slot] : 0;
                k += 1;
                if (lane > 0) return;
                mbarrier_try_wait(&shared.K_empty[slot], phase);  // tile k - depth has been read
                store(&shared.visit[slot], visit);
                mbarrier_expect(&shared.K_full[slot], sizeof shared.K[slot] + bytes);
                bulk_load(shared.K[slot], &maps.K, j * Bc, h_kv, b, &shared.K_full[slot]);
                if (bytes > 0) bulk_load(shared.rows[slot], of_keys[j].rows[0], bytes, &shared.K_full[slot]);
                mbarrier_try_wait(&shared.V_empty[slot], phase);
                mbarrier_expect(&shared.V_full[slot], sizeof shared.V[slot]);
                bulk_load(shared.V[slot], &maps.V, j * Bc, h_kv, b, &shared.V_full[slot]);
            });
            if (lane == 0) n = gridDim.x + atomicInc(order.taken, order.total - 1);
            n = uniform(n);  // the last block's request wraps to 0
        }
    }

    claim_registers<Tile<d>::consumer_registers>();
    const int g = group - 1, lane = threadIdx.x % 32;
    const auto wait_turn = [&] { named_barrier_sync(1 + g, 256); };
    const auto pass_turn = [&] {  // the next warpgroup's
        named_barrier_arrive(1 + (g + 1) % groups, 256);
    };
    if (g == groups - 1) pass_turn();  // the first turn is warpgroup 0's
    for (int k = 0, q = 0;; ++q) {
        const int Q_slot = q % Q_slots;
        mbarrier_try_wait(&shared.Q_full[Q_slot], q / Q_slots);
        const TileIndex tile = load(&shared.tile[Q_slot]);
        if (tile.batch < 0) break;
        const int b = tile.batch, h = tile.head, i = tile.tile;
        const int first_row = i * Br + 64 * g;
        // j counts the key tiles that this query tile visits; the block's number of it is k + j.
        const auto release = [&](int j, Mbarrier* empty) {  // after the wait for the product that read it
            mbarrier_arrive(&empty[(k + j) % depth]);
        };
        float S[Bc / 2], O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 4];
        const auto softmax = [&](int j) {  // turns S into P; returns whether O must be rescaled
            const int visit = load(&shared.visit[(k + j) % depth]);
            note_tile<Bc>(b, h, first_row, visit / classes, visit % classes != 0);
            shift(p, S, m);
            if (visit & cut) mask(shared.rows[(k + j) % depth], false, first_row, S);
            release(j, shared.K_empty);
            if (visit & gaps) {
                const KeyTile& of_keys = key_tiles_of(p, b, h)[visit / classes];
#pragma unroll 1
                for (int n = 1; n < 3; ++n) mask(of_keys.rows[n], true, first_row, S);
            }
            const bool above = (fminf(l[0], l[1]) == 0.0f) | (positive_max(S) > threshold);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(first_row + threadIdx.x / 32 % 4 * 16, m, l);
            return rises;
        };
        const auto start_scores = [&](int j) {
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            score<T, d>(shared.Q[Q_slot][g], shared.K[(k + j) % depth], S);
        };
        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            add_product<T, d>(P, shared.V[(k + j) % depth], O);
        };
        const auto skip = [&](int j) {  // of a warpgroup without rows
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            release(j, shared.K_empty);
            release(j, shared.V_empty);
        };
        if (first_row >= p.Nq || tile.key_tiles == 0) {  // no rows; or they see nothing: O and l stay 0
            mbarrier_arrive(&shared.Q_empty[Q_slot]);
            for (int j = 0; j < tile.key_tiles; ++j) {
                if (j > 0) wait_turn(), pass_turn();
                skip(j);
            }
        } else {
            start_scores(0);
            wgmma_wait<0>(S);
            softmax(0);
            convert<T>(S, P);
#pragma unroll 1
            for (int j = 1; j < tile.key_tiles; ++j) {
                wait_turn();
                start_scores(j);
                start_product(j - 1);
                pass_turn();
                wgmma_wait<1>(S);
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
            start_product(tile.key_tiles - 1);
            mbarrier_arrive(&shared.Q_empty[Q_slot]);
            wgmma_wait<0>(O);
            fence_operand(P);
            release(tile.key_tiles - 1, shared.V_empty);
        }
        if (first_row < p.Nq)
            write_rows<T, d>(p, maps.O, b, h, first_row, shared.O[threadIdx.x / 32 - 4], O, m, l);
        k += tile.key_tiles;
    }
    if (lane == 0) bulk_wait_read<0>();
}

std::size_t workspace_bytes(const Shape& s, int) {
    return std::size_t(s.B) * s.H * ceil_div(s.Nk, KeyTile::Bc) * sizeof(KeyTile) + sizeof(unsigned);
}

template <class T, int d>
void forward(const Problem& p) {
    const Maps maps = {
        tensor_map<T, d>(p.Q, p.B, p.H, p.Nq, 64),
        tensor_map<T, d>(p.K, p.B, p.Hkv, p.Nk, Tile<d>::Bc),
        tensor_map<T, d>(p.V, p.B, p.Hkv, p.Nk, Tile<d>::Bc),
        tensor_map<T, d>(p.O, p.B, p.H, p.Nq, 16, Tile<d>::O_panels),
    };
    const int Tr = ceil_div(p.Nq, Tile<d>::Br), heads = p.B * p.H;
    const double KV_bytes = 4.0 * p.Nk * d * p.Hkv / p.H;  // of K and V, per query head
    const int section = int(std::clamp((16 << 20) / KV_bytes, 1.0, double(heads)));
    char* const end = static_cast<char*>(p.workspace) + workspace_bytes(p, p.sm_count);
    const TileOrder order = {Tr, heads, section, Tr * heads, reinterpret_cast<unsigned*>(end) - 1};
    const dim3 grid(std::min(p.sm_count, order.total));
    const auto kernel = p.causal ? attention<T, d, true> : attention<T, d, false>;
    launch(find_rows, dim3(ceil_div(p.Nk, KeyTile::Bc), std::max(1, p.columns.heads), p.B), 96, 0, p);
    launch(kernel, grid, Tile<d>::threads, sizeof(Shared<T, d>), p, maps, order);
}

std::size_t counter_bytes(const Shape&, int) {
    return sizeof(unsigned);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(
    forward, Dims, .number = 96, .name = "hopper_columns", .parent = 65,
    .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {128, 128, 4}, {128, 128, 2}),
    .change = "the producer classifies key tiles by their column bounds, and copies those that rows see",
    .shows_in = "column-bounds", .takes = {Feature::window, Feature::columns}, .diff_budget = 180,
    .most_lines = 500,  // with column bounds
    .rounds_large_scores = true, .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
