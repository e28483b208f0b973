// Stage 29: in-place transpose. V is transposed in the slot to which TMA has copied it: warps exchange the
// blocks on either side of the diagonal of a square. Its rows need no slot of their own, so at d = 256 V has
// three slots.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr float top = 5.0f;    // exponent of a row's largest P when m is set: e4m3 has few numbers below 1
constexpr float limit = 8.0f;  // O is rescaled only when P would exceed 2^8: e4m3 ends at 448

using e4m3x2 = std::uint16_t;  // two elements: what tensor maps and descriptors count

constexpr int transposing_warps = 3;  // the producer's warps 1 to 3

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int groups = d <= 128 ? 3 : 2;  // warpgroups that multiply, of 64 rows each
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = groups == 3 ? 32 : 24;
    static constexpr int consumer_registers = groups == 3 ? 160 : 240;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = d == 128 ? 64 : 128;  // O, S and P of 128 keys at d = 128: 144 registers of 160
    static constexpr bool turns = d <= 128;         // at d = 256 exponentials take a small part of the time
    static constexpr int depth = d <= 128 ? 4 : 2;  // slots of K and V: stages of the pipeline
    static constexpr int V_slots = d <= 128 ? 4 : 3;
    static constexpr int Q_slots = d <= 128 ? 2 : 1;
    static constexpr int O_panels = d == 64 ? 1 : 2;  // panels that a warp stores at a time
};

struct alignas(16) TileIndex {
    int batch, head, tile;
};

/// Tiles are panels of rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    using Sizes = Tile<d>;
    static constexpr int panels = ceil_div(d, 128);  // at d = 64, half of a row is padding
    alignas(1024) e4m3x2 Q[Sizes::Q_slots][Sizes::groups][panels][64][64];
    alignas(1024) e4m3x2 K[Sizes::depth][panels][Sizes::Bc][64];  // tile k is in slot k % depth
    alignas(1024) e4m3x2 V[Sizes::V_slots][panels][128][64];  // Bc rows of keys, then columns of V by keys
    alignas(1024) T O[4 * Sizes::groups][Sizes::O_panels][16][64];  // rows that a warp is about to store
    TileIndex tile[Sizes::Q_slots];  // the tile that Q belongs to; no tiles are left if batch < 0
    Mbarrier Q_full[Sizes::Q_slots], Q_empty[Sizes::Q_slots];
    Mbarrier K_full[Sizes::depth],
        K_empty[Sizes::depth];  // phase k / depth: tile k has arrived; all have read it
    Mbarrier V_full[Sizes::V_slots], V_empty[Sizes::V_slots];  // phase k / V_slots: the same
    Mbarrier rows_full[Sizes::V_slots];  // phase k / V_slots: the rows of V's tile k have arrived
};

#include "stages/70_fp8_products/tile_order.cuh"

#include "stages/70_fp8_products/softmax.cuh"

#include "stages/70_fp8_products/score.cuh"

/// Transposes a warp's share of a tile of V. A panel is a square of 8 x 8 blocks of 16 keys and 16 columns.
/// One ldmatrix reads blocks (i, j) and (j, i), and one stmatrix writes each, transposed, where the other
/// was. Two blocks of the diagonal share an instruction as well. With x from 1 to 7 and y from 0 to 3, i and
/// i ^ x are each pair once. Where keys or columns fill half of the square, a smaller square is transposed,
/// and the blocks outside it move to padding, two at a time. To ldmatrix, two adjacent columns are one 16-bit
/// element: lane 4g + t gets columns 2g and 2g + 1 of keys 2t and 2t + 1, and in the next register those of
/// keys 2t + 8 and 2t + 9. The bytes of one column in both are four keys in the order of key_at. Lanes with
/// g < 4 take column 2g first, others 2g + 1: any 8 rows that stmatrix writes together differ modulo 8, so
/// they lie in different banks.
template <int d, int panels>
__device__ void transpose(int warp, e4m3x2 (&V)[panels][128][64]) {
    constexpr int columns = d / panels, Bc = Tile<d>::Bc;
    constexpr int shorter = (Bc < columns ? Bc : columns) / 16, longer = (Bc < columns ? columns : Bc) / 16;
    constexpr int pairs = 4 * longer;
    constexpr int together = 3;  // that a warp reads before it writes
    const int lane = threadIdx.x % 32;
    const unsigned first = lane < 16 ? 0x6420 : 0x7531, second = first ^ 0x1111;  // a column's bytes
    const int row = lane % 8 * 2 + (lane / 4 % 2 ^ lane / 8 % 2);  // of 16, the one that stmatrix writes
    std::uint32_t held[together][4];
    const auto for_each = [&](int start, const auto& f) {
#pragma unroll
        for (int k = 0; k < together; ++k) {
            const int n = start + transposing_warps * k, x = n / 4 % 8, y = n % 4;
            const bool moves = x >= shorter;
            const int i = y + (y & (x < 2 ? -1 : x < 4 ? -2 : -4)), j = i ^ (x == 0 || moves ? 1 : x);
            const int own = lane < 16 ? i : j, key = Bc > columns ? own ^ x : own;
            if (n < pairs * panels && i < shorter && !(moves && y % 2 > 0)) {
                f(held[k], V[n / 32], key, key ^ x);
            }
        }
    };
#pragma unroll 1  // few registers are left to these warps
    for (int n = warp - 1; n < pairs * panels; n += transposing_warps * together) {
        for_each(n, [&](auto& r, const auto& panel, int key, int column) {
            ldmatrix_transposed(r, &panel[16 * key + lane % 16][8 * column ^ lane % 8 * 8]);
        });
        __syncwarp();  // all lanes have read: each block is written where another was
        for_each(n, [&](const auto& r, auto& panel, int key, int column) {
            const auto& [a, b, c, e] = r;
            stmatrix(&panel[16 * column + row][8 * key ^ row % 8 * 8],
                     {__byte_perm(a, b, first), __byte_perm(a, b, second), __byte_perm(c, e, first),
                      __byte_perm(c, e, second)});
        });
    }
}

/// Starts O += P V.
template <int d, int panels, int n>
__device__ void add_product(const std::uint32_t (&P)[n], const e4m3x2 (&V)[panels][128][64],
                            float (&O)[d / 2]) {
    const Descriptor v = matrix_descriptor(V);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8 * n; k += 32) wgmma_e4m3<d>(O, &P[k / 8], v.column<d>(k / 2), true);
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

#include "stages/70_fp8_products/write_rows.cuh"

/// A block computes query tile after query tile. Warp specialization: one thread copies, warpgroups multiply.
/// - Producer: takes a query tile from a counter; copies Q, then K and V of each key tile, into three rings.
/// - Transposing warps: transpose V in its slot, once its rows have arrived; then V is full.
/// - Consumers, a warpgroup for 64 rows: start S = Q K^T of key tile j, then O += P V of tile j - 1, which
///   runs during the softmax of tile j; at the end write O and L.
/// - Turns: barrier 1 + g lets warpgroup g start products; meanwhile the others take exponentials.
/// A slot's life: the producer waits for `empty` and starts the copy; `full` completes when all bytes have
/// arrived; a consumer that sees the tile multiplies, then arrives at `empty`; for others the producer does.
template <class T, int d, bool causal>
__global__ void __launch_bounds__(Tile<d>::threads, 1)
    attention(const Problem p, const __grid_constant__ Maps maps, const TileOrder order) {
    using Sizes = Tile<d>;
    constexpr int groups = Sizes::groups, Br = Sizes::Br, Bc = Sizes::Bc, depth = Sizes::depth;
    constexpr int Q_slots = Sizes::Q_slots, V_slots = Sizes::V_slots;
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Q_slots; ++slot) {
            mbarrier_init(&shared.Q_full[slot], 1);
            mbarrier_init(&shared.Q_empty[slot], Sizes::threads - 32);  // all that read `tile` arrive
        }
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 1);
            mbarrier_init(&shared.K_empty[slot], groups);
        }
        for (int slot = 0; slot < V_slots; ++slot) {
            mbarrier_init(&shared.rows_full[slot], 1);
            mbarrier_init(&shared.V_full[slot], transposing_warps);
            mbarrier_init(&shared.V_empty[slot], groups);
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
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (; k < end; ++k) {
                const int slot = k % V_slots;
                mbarrier_try_wait(&shared.rows_full[slot], k / V_slots);
                transpose<d>(warp, shared.V[slot]);
                fence_proxy_async();  // for wgmma, what stmatrix has written
                __syncwarp();         // all lanes have written
                if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.V_full[slot]);
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
            const auto copy = [&](auto& ring, const TensorMap& map, int slots, int j, Mbarrier* full,
                                  Mbarrier* empty) {
                const int slot = (k + j) % slots;
                mbarrier_try_wait(&empty[slot], (k + j) / slots - 1);  // tile k + j - slots has been read
                mbarrier_expect(&full[slot], sizeof shared.K[0]);  // V's rows of Bc keys are as many bytes
                bulk_load(ring[slot], &map, j * Bc, h_kv, b, &full[slot]);
                for (int g = 0; g < groups; ++g) {  // one that does not see the tile does not wait for it
                    if (j >= own_Tc[g]) mbarrier_arrive(&empty[slot]);
                }
            };
            mbarrier_expect(&shared.Q_full[Q_slot], sizeof shared.Q[Q_slot]);
            for (int g = 0; g < groups; ++g) {
                bulk_load(shared.Q[Q_slot][g], &maps.Q, i * Br + 64 * g, h, b, &shared.Q_full[Q_slot]);
            }
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (int j = 0; j < Tc; ++j) {
                copy(shared.K, maps.K, depth, j, shared.K_full, shared.K_empty);
                copy(shared.V, maps.V, V_slots, j, shared.rows_full, shared.V_empty);
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
            mbarrier_try_wait(&shared.V_full[(k + j) % V_slots], (k + j) / V_slots);
            add_product<d>(P, shared.V[(k + j) % V_slots], O);
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
            start_scores(j);
            start_product(j - 1);
            pass_turn();
            wgmma_wait<1>(S);
            release(shared.K_empty[(k + j) % depth]);
            const bool rises = softmax(j);  // P V of the previous tile may still run
            wgmma_wait<0>(O);
            fence_operand(P);
            release(shared.V_empty[(k + j - 1) % V_slots]);
            convert(S, P);
            if (rises) {
#pragma unroll
                for (int c = 0; c < d / 2; ++c) O[c] *= alpha[row_of(c)];
            }
        }
        start_product(Tc - 1);
        // After the last V has arrived: a warpgroup that leaves tiles out waits for none of their phases
        // itself. With its next Q it must know that all of them are complete, since it waits by parity.
        mbarrier_arrive(&shared.Q_empty[Q_slot]);
        for (int j = Tc; j < block_Tc; ++j) wait_turn(), pass_turn();  // for tiles that only others see
        wgmma_wait<0>(O);
        fence_operand(P);
        release(shared.V_empty[(k + Tc - 1) % V_slots]);
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

template <class T, int d>
void forward(const Problem& p) {
    using Sizes = Tile<d>;
    constexpr int Bc = Sizes::Bc;
    const Maps maps = {
        tensor_map<e4m3x2, d / 2>(pairs_of(p.Q), p.B, p.H, p.Nq, 64),
        tensor_map<e4m3x2, d / 2>(pairs_of(p.K), p.B, p.Hkv, p.Nk, Bc),
        tensor_map<e4m3x2, d / 2>(pairs_of(p.V), p.B, p.Hkv, p.Nk, Bc),
        tensor_map<T, d>(p.O, p.B, p.H, p.Nq, 16, Sizes::O_panels),
    };
    const int Tr = ceil_div(p.Nq, Sizes::Br), heads = p.B * p.H;
    const double KV_bytes = 2.0 * p.Nk * d * p.Hkv / p.H;  // of K and V, per query head
    const int section = int(std::clamp((16 << 20) / KV_bytes, 1.0, double(heads)));  // less than half of L2
    const TileOrder order = {Tr, heads, section, Tr * heads, static_cast<unsigned*>(p.workspace)};
    const dim3 grid(std::min(p.sm_count, order.total));
    const auto kernel = p.causal ? attention<T, d, true> : attention<T, d, false>;
    launch(kernel, grid, Sizes::threads, sizeof(Shared<T, d>), p, maps, order);
}

std::size_t workspace_bytes(const Shape&, int) {
    return sizeof(unsigned);  // TileOrder::taken, which is a counter
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 29, .name = "in_place_transpose", .parent = 28, .part = 70, .place = 77,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {192, 128, 4}, {192, 64, 4},
                                     {128, 128, 2}),
             .change = "V is transposed in the slot that it arrives in: blocks exchange their places",
             .shows_in = "wide", .products = Products::of_8_bits, .takes_e4m3 = true,
             .rounds_large_scores = true, .workspace_bytes = workspace_bytes,
             .counter_bytes = workspace_bytes);

}  // namespace
