// Stage 19: optional promotion. If the caller asks for it, fp32 additions add each sum of P V over at most
// 128 keys to O, as in stage 71. They do so for 64 columns at a time: registers hold no second O at d = 256.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr float top = 5.0f;    // exponent of a row's largest P when m is set: e4m3 has few numbers below 1
constexpr float limit = 8.0f;  // O is rescaled only when P would exceed 2^8: e4m3 ends at 448

using e4m3x2 = std::uint16_t;  // two elements: what tensor maps and descriptors count

constexpr int transposing_warps = 3;  // the producer's warps 1 to 3

/// The constants that depend on d, and on whether sums are promoted.
template <int d, bool promotes = false>
struct Tile {
    static constexpr int groups =
        d == 64 || (d == 128 && !promotes) ? 3 : 2;  // warpgroups that multiply, of 64 rows each
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = groups == 3 ? 32 : 24;
    static constexpr int consumer_registers = groups == 3 ? 160 : 240;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc =
        d == (promotes ? 64 : 128) ? 64 : 128;  // O, S and P of 128 keys at d = 128: 144 registers of 160
    static constexpr bool turns =
        d <= 128 || promotes;  // else at d = 256 exponentials take a small part of the time
    static constexpr int depth = d <= 128 ? 4 : 2;  // slots of K and V: stages of the pipeline
    static constexpr int V_slots = 2;               // of panels of V as they arrive
    static constexpr int Q_slots = d <= 128 ? 2 : 1;
    static constexpr int O_panels = d == 64 ? 1 : 2;  // panels that a warp stores at a time
};

struct alignas(16) TileIndex {
    int batch, head, tile;
};

/// Tiles are panels of rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d, bool promotes>
struct Shared {
    using Sizes = Tile<d, promotes>;
    static constexpr int panels = ceil_div(d, 128);  // at d = 64, half of a row is padding
    alignas(1024) e4m3x2 Q[Sizes::Q_slots][Sizes::groups][panels][64][64];
    alignas(1024) e4m3x2 K[Sizes::depth][panels][Sizes::Bc][64];    // tile k is in slot k % depth
    alignas(1024) e4m3x2 V[Sizes::depth][d][64];                    // transposed: rows of Bc keys
    alignas(1024) e4m3x2 V_rows[Sizes::V_slots][Sizes::Bc][64];     // a panel as it arrives
    alignas(1024) T O[4 * Sizes::groups][Sizes::O_panels][16][64];  // rows that a warp is about to store
    TileIndex tile[Sizes::Q_slots];  // the tile that Q belongs to; no tiles are left if batch < 0
    Mbarrier Q_full[Sizes::Q_slots], Q_empty[Sizes::Q_slots];
    Mbarrier K_full[Sizes::depth], V_full[Sizes::depth];             // phase k / depth: tile k has arrived
    Mbarrier K_empty[Sizes::depth], V_empty[Sizes::depth];           // phase k / depth: all have read tile k
    Mbarrier rows_full[Sizes::V_slots], rows_empty[Sizes::V_slots];  // of V_rows
};

#include "stages/70_fp8_products/tile_order.cuh"

/// Tensor maps of Q, K, the panels of V and O.
template <int d>
struct PanelMaps {
    TensorMap Q, K, V[ceil_div(d, 128)], O;
};

#include "stages/70_fp8_products/softmax.cuh"

#include "stages/70_fp8_products/score.cuh"

/// Transposes a warp's share of a panel of V: 16 columns at a time become 16 rows. To ldmatrix, two adjacent
/// columns are one 16-bit element: lane 4 g + t gets columns 2 g and 2 g + 1 of keys 2 t and 2 t + 1, and in
/// the next register those of keys 2 t + 8 and 2 t + 9. A column's bytes of both are four keys in the order
/// of key_at. Lanes with g < 4 take column 2 g first, others 2 g + 1: any 8 rows that stmatrix writes
/// together differ modulo 8, so that their pieces lie in different banks.
template <int columns, int Bc>
__device__ void transpose(int warp, const e4m3x2 (&rows)[Bc][64], e4m3x2 (*V)[64]) {
    const int lane = threadIdx.x % 32;
    const unsigned first = lane < 16 ? 0x6420 : 0x7531, second = first ^ 0x1111;  // a column's bytes
    const int row = lane % 8 * 2 + (lane / 4 % 2 ^ lane / 16);  // of 16, the one that stmatrix writes
#pragma unroll 1                                                // few registers are left to these warps
    for (int c = 8 * (warp - 1); c < columns / 2; c += 8 * transposing_warps) {
#pragma unroll 1
        for (int key = 0; key < Bc; key += 64) {
            std::uint32_t r[2][4];
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                ldmatrix_transposed(r[n], &rows[key + 32 * n + lane][c ^ lane % 8 * 8]);
            }
            __syncwarp();  // to ptxas: the second read starts before the first result is written
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                stmatrix(&V[2 * c + row][(key / 16 + 2 * n + lane / 8 % 2) * 8 ^ row % 8 * 8],
                         {__byte_perm(r[n][0], r[n][1], first), __byte_perm(r[n][2], r[n][3], first),
                          __byte_perm(r[n][0], r[n][1], second), __byte_perm(r[n][2], r[n][3], second)});
            }
        }
    }
}

/// Starts O += P V.
template <int d, int Bc>
__device__ void add_product(const std::uint32_t (&P)[Bc / 8], const e4m3x2 (&V)[d][64], float (&O)[d / 2]) {
    const Descriptor v = matrix_descriptor(V);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Bc; k += 32) wgmma_e4m3<d>(O, &P[k / 8], v.column<d>(k / 2), true);
    wgmma_commit();
}

/// O += P V of a key tile, 64 columns at a time. Each sum starts from 0, and fp32 additions add it to O.
template <int d, int Bc>
__device__ void add_promoted(const std::uint32_t (&P)[Bc / 8], const e4m3x2 (&V)[d][64], float (&O)[d / 2]) {
#pragma unroll
    for (int part = 0; part < d; part += 64) {
        const Descriptor v = matrix_descriptor(V).row(part);
        float PV[32];
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < Bc; k += 32) wgmma_e4m3<64>(PV, &P[k / 8], v.column<64>(k / 2), k > 0);
        wgmma_commit();
        wgmma_wait<0>(PV);
#pragma unroll
        for (int c = 0; c < 32; ++c) O[part / 2 + c] += PV[c];
    }
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

#include "stages/70_fp8_products/write_rows.cuh"

/// A block computes query tile after query tile. Warp specialization: one thread copies, warpgroups multiply.
/// - Producer: takes a query tile from a counter; copies Q, then K and V of each key tile, into three rings.
/// - Transposing warps: rewrite V from a slot of `V_rows` into a slot of V, with its keys along the rows.
/// - Consumers, a warpgroup for 64 rows: start S = Q K^T of key tile j, then O += P V of tile j - 1, which
///   runs during the softmax of tile j; at the end write O and L. With promotion P V comes first, and S next.
/// - Turns: barrier 1 + g lets warpgroup g start products; meanwhile the others take exponentials.
/// A slot's life: the producer waits for `empty` and starts the copy; `full` completes when all bytes have
/// arrived; a consumer that sees the tile multiplies, then arrives at `empty`; for others the producer does,
/// or for V a transposing warp.
template <class T, int d, bool causal, bool promotes>
__global__ void __launch_bounds__(Tile<d, promotes>::threads, 1)
    attention(const Problem p, const __grid_constant__ PanelMaps<d> maps, const TileOrder order) {
    using Sizes = Tile<d, promotes>;
    constexpr int groups = Sizes::groups, Br = Sizes::Br, Bc = Sizes::Bc, depth = Sizes::depth;
    constexpr int Q_slots = Sizes::Q_slots, V_slots = Sizes::V_slots, panels = ceil_div(d, 128);
    auto& shared = aligned_shared_memory<Shared<T, d, promotes>>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Q_slots; ++slot) {
            mbarrier_init(&shared.Q_full[slot], 1);
            mbarrier_init(&shared.Q_empty[slot], Sizes::threads - 32);  // all that read `tile` arrive
        }
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 1);
            mbarrier_init(&shared.V_full[slot], transposing_warps);
            mbarrier_init(&shared.K_empty[slot], groups);
            mbarrier_init(&shared.V_empty[slot], groups);
        }
        for (int slot = 0; slot < V_slots; ++slot) {
            mbarrier_init(&shared.rows_full[slot], 1);
            mbarrier_init(&shared.rows_empty[slot], transposing_warps);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up
    // Key tiles that these rows see; if they see none, one that is masked; 0 if there are no rows
    const auto key_tiles = [&](int first_row, int rows) {
        const int end = p.causal ? min(p.Nq, first_row + rows) + p.Nk - p.Nq : p.Nk;
        return first_row >= p.Nq ? 0 : max(1, ceil_div(min(p.Nk, end), Bc));
    };
    const int group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<Sizes::producer_registers>();
        const int warp = uniform(threadIdx.x / 32);
        for (int k = 0, q = 0; warp > 0; ++q) {  // transposes the tiles that the producer's thread copies
            mbarrier_try_wait(&shared.Q_full[q % Q_slots], q / Q_slots);
            const TileIndex tile = load(&shared.tile[q % Q_slots]);
            if (tile.batch < 0) return;
            mbarrier_arrive(&shared.Q_empty[q % Q_slots]);
            const int first_row = tile.tile * Br, end = uniform(k + key_tiles(first_row, Br));
            // Warp 1 + g releases the tiles that warpgroup g does not see.
            const int seen = warp > groups ? end : k + key_tiles(first_row + 64 * (warp - 1), 64);
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (; k < end; ++k) {
                const int slot = k % depth;
                mbarrier_try_wait(&shared.V_empty[slot], k / depth - 1);  // tile k - depth has been read
                for (int panel = 0; panel < panels; ++panel) {
                    const int n = panels * k + panel, rows_slot = n % V_slots;
                    mbarrier_try_wait(&shared.rows_full[rows_slot], n / V_slots);
                    transpose<d / panels, Bc>(warp, shared.V_rows[rows_slot], shared.V[slot] + 128 * panel);
                    fence_proxy_async();  // for wgmma, what stmatrix has written
                    __syncwarp();         // all lanes have read and written
                    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.rows_empty[rows_slot]);
                }
                if (threadIdx.x % 32 > 0) continue;
                mbarrier_arrive(&shared.V_full[slot]);
                if (k >= seen) mbarrier_arrive(&shared.V_empty[slot]);
            }
        }
        if (threadIdx.x > 0) return;
        // Query tile q of this block is number n of all, and k key tiles come before its own.
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
            const int b = tile.batch, h = tile.head, i = tile.tile, h_kv = h / (p.H / p.Hkv),
                      Tc = key_tiles(i * Br, Br);
            int own_Tc[groups];
            for (int g = 0; g < groups; ++g) own_Tc[g] = key_tiles(i * Br + 64 * g, 64);
            const auto copy = [&](auto& ring, const TensorMap& map, int slots, int number, int j,
                                  Mbarrier* full, Mbarrier* empty) {
                const int slot = number % slots;  // of this copy, by its number in the ring
                mbarrier_try_wait(&empty[slot], number / slots - 1);  // number - slots has been read
                mbarrier_expect(&full[slot], sizeof ring[slot]);
                bulk_load(ring[slot], &map, j * Bc, h_kv, b, &full[slot]);
            };
            mbarrier_expect(&shared.Q_full[Q_slot], sizeof shared.Q[Q_slot]);
            for (int g = 0; g < groups; ++g) {
                bulk_load(shared.Q[Q_slot][g], &maps.Q, i * Br + 64 * g, h, b, &shared.Q_full[Q_slot]);
            }
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (int j = 0; j < Tc; ++j) {
                copy(shared.K, maps.K, depth, k + j, j, shared.K_full, shared.K_empty);
                for (int g = 0; g < groups; ++g) {  // one that does not see the tile does not wait for it
                    if (j >= own_Tc[g]) mbarrier_arrive(&shared.K_empty[(k + j) % depth]);
                }
                for (int panel = 0; panel < panels; ++panel) {
                    copy(shared.V_rows, maps.V[panel], V_slots, panels * (k + j) + panel, j, shared.rows_full,
                         shared.rows_empty);
                }
            }
            k += Tc;
            n = gridDim.x + atomicInc(order.taken, order.total - 1);  // the last block's request wraps to 0
        }
    }

    claim_registers<Sizes::consumer_registers>();
    const int g = group - 1, lane = threadIdx.x % 32;
    const auto wait_turn = [&] {
        if (Sizes::turns) named_barrier_sync(1 + g, 256);
    };
    const auto pass_turn = [&] {  // the next warpgroup's
        if (Sizes::turns) named_barrier_arrive(1 + (g + 1) % groups, 256);
    };
    if (g == groups - 1) pass_turn();  // the first turn is warpgroup 0's
    for (int k = 0, q = 0;; ++q) {
        const int Q_slot = q % Q_slots;
        mbarrier_try_wait(&shared.Q_full[Q_slot], q / Q_slots);
        const TileIndex tile = load(&shared.tile[Q_slot]);
        if (tile.batch < 0) break;
        const int b = tile.batch, h = tile.head, i = tile.tile;
        const int h_kv = b * p.Hkv + h / (p.H / p.Hkv);  // of all
        const float scale_S = load(p.Q_scales + b * p.H + h) * load(p.K_scales + h_kv);
        const int first_row = i * Br + 64 * g, Tc = key_tiles(first_row, 64),
                  block_Tc = key_tiles(i * Br, Br);
        const int unmasked = min(p.Nk, p.causal ? first_row + p.Nk - p.Nq + 1 : p.Nk);  // keys all rows see
        const auto release = [&](Mbarrier& empty) {  // after the wait for the product that read the slot
            if (threadIdx.x % 128 == 0) mbarrier_arrive(&empty);
        };
        float S[Bc / 2], O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 8];
        const auto softmax = [&](int j) {  // turns S into P; returns whether O must be rescaled
            const bool masked = (j + 1) * Bc > unmasked;
            note_tile<Bc>(b, h, first_row, j, masked);
            shift<d, Bc>(p, p.scale * log2_e * scale_S, first_row, j, masked, S, m);  // in base 2
            const bool above = (j == 0) | (positive_max(S) > limit);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(j == 0, S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(first_row + threadIdx.x / 32 % 4 * 16, m, l);
            return rises;
        };
        const auto start_scores = [&](int j) {
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            score<d>(shared.Q[Q_slot][g], shared.K[(k + j) % depth], S);
        };
        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            add_product<d, Bc>(P, shared.V[(k + j) % depth], O);
        };
        const auto add_product_promoted = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            add_promoted<d, Bc>(P, shared.V[(k + j) % depth], O);
            fence_operand(P);
            release(shared.V_empty[(k + j) % depth]);
        };
        if (Tc == 0) {  // no rows
            mbarrier_arrive(&shared.Q_empty[Q_slot]);
            for (int j = 1; j < block_Tc; ++j) wait_turn(), pass_turn();
            k += block_Tc;
            continue;
        }
        start_scores(0);
        wgmma_wait<0>(S);
        release(shared.K_empty[k % depth]);
        softmax(0);
        convert(S, P);
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
        for (int j = 1; j < Tc; ++j) {
            wait_turn();
            if constexpr (promotes) add_product_promoted(j - 1);  // S has no registers yet at d = 256
            start_scores(j);
            if constexpr (!promotes) start_product(j - 1);
            pass_turn();
            wgmma_wait<promotes ? 0 : 1>(S);
            release(shared.K_empty[(k + j) % depth]);
            const bool rises = softmax(j);  // P V of the previous tile may still run
            if constexpr (!promotes) {
                wgmma_wait<0>(O);
                fence_operand(P);
                release(shared.V_empty[(k + j - 1) % depth]);
            }
            convert(S, P);
            if (rises) {
#pragma unroll
                for (int c = 0; c < d / 2; ++c) O[c] *= alpha[row_of(c)];
            }
        }
        if constexpr (promotes) add_product_promoted(Tc - 1);
        if constexpr (!promotes) start_product(Tc - 1);
        // After the last V has arrived: a warpgroup that leaves tiles out waits for none of their phases
        // itself. With its next Q it must know that all of them are complete, since it waits by parity.
        mbarrier_arrive(&shared.Q_empty[Q_slot]);
        for (int j = Tc; j < block_Tc; ++j) wait_turn(), pass_turn();  // for tiles that only others see
        if constexpr (!promotes) {
            wgmma_wait<0>(O);
            fence_operand(P);
            release(shared.V_empty[(k + Tc - 1) % depth]);
        }
        write_rows<T, d>(p, maps.O, b, h, first_row, shared.O[threadIdx.x / 32 - 4], O, m, l,
                         load(p.V_scales + h_kv));
        k += block_Tc;
    }
    if (lane == 0) bulk_wait_read<0>();
}

/// X, in which two bytes are one element.
View pairs_of(const View& X) {
    return {X.data, X.batch / 2, X.head / 2, X.row / 2};
}

template <class T, int d, bool promotes>
void run(const Problem& p) {
    using Sizes = Tile<d, promotes>;
    constexpr int Bc = Sizes::Bc;
    PanelMaps<d> maps = {
        tensor_map<e4m3x2, d / 2>(pairs_of(p.Q), p.B, p.H, p.Nq, 64),
        tensor_map<e4m3x2, d / 2>(pairs_of(p.K), p.B, p.Hkv, p.Nk, Bc),
        {},
        tensor_map<T, d>(p.O, p.B, p.H, p.Nq, 16, Sizes::O_panels),
    };
    View V = pairs_of(p.V);
    for (TensorMap& map : maps.V) {
        map = tensor_map<e4m3x2, std::min(d, 128) / 2>(V, p.B, p.Hkv, p.Nk, Bc);
        V.data = static_cast<std::byte*>(V.data) + 128;
    }
    const int Tr = ceil_div(p.Nq, Sizes::Br), heads = p.B * p.H;
    const double KV_bytes = 2.0 * p.Nk * d * p.Hkv / p.H;  // of K and V, per query head
    const int section = int(std::clamp((16 << 20) / KV_bytes, 1.0, double(heads)));  // less than half of L2
    const TileOrder order = {Tr, heads, section, Tr * heads, static_cast<unsigned*>(p.workspace)};
    const dim3 grid(std::min(p.sm_count, order.total));
    const auto kernel = p.causal ? attention<T, d, true, promotes> : attention<T, d, false, promotes>;
    launch(kernel, grid, Sizes::threads, sizeof(Shared<T, d, promotes>), p, maps, order);
}

template <class T, int d>
void forward(const Problem& p) {
    const auto chosen = p.promotion ? run<T, d, true> : run<T, d, false>;
    chosen(p);
}

std::size_t workspace_bytes(const Shape&, int) {
    return sizeof(unsigned);  // TileOrder::taken, which is a counter
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 19, .name = "optional_promotion", .parent = 28, .part = 70, .place = 79,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {192, 128, 4}, {192, 64, 4},
                                     {128, 128, 2}),
             .change = "sums of P V are promoted if the caller asks for it", .shows_in = "long",
             .takes = {Feature::promotion}, .products = Products::of_8_bits, .takes_e4m3 = true,
             .rounds_large_scores = true, .workspace_bytes = workspace_bytes,
             .counter_bytes = workspace_bytes);

}  // namespace
