// Stage 78: optional promotion. If the caller asks for it, fp32 additions add each sum of P V over at most
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

#include "stages/76_e4m3_inputs/shared.cuh"

#include "stages/70_fp8_products/tile_order.cuh"

#include "stages/76_e4m3_inputs/maps.cuh"

#include "stages/70_fp8_products/softmax.cuh"

#include "stages/70_fp8_products/score.cuh"

#include "stages/76_e4m3_inputs/transpose.cuh"

#include "stages/75_in_kernel_transpose/product.cuh"

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

#include "stages/70_fp8_products/write_rows.cuh"

#include "stages/76_e4m3_inputs/producer.cuh"

/// What warpgroup g of those that multiply does.
template <bool promotes, class T, int d, class Sizes>
__device__ void consume(const Problem& p, const PanelMaps<d>& maps, Shared<T, d, Sizes>& shared, int g) {
    constexpr int groups = Sizes::groups, Br = Sizes::Br, Bc = Sizes::Bc, depth = Sizes::depth,
                  Q_slots = Sizes::Q_slots;
    claim_registers<Sizes::consumer_registers>();
    const int lane = threadIdx.x % 32;
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
        const int first_row = i * Br + 64 * g, Tc = key_tiles<Bc>(p, first_row, 64),
                  block_Tc = key_tiles<Bc>(p, i * Br, Br);
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
    auto& shared = aligned_shared_memory<Shared<T, d, Tile<d, promotes>>>();
    begin(shared);
    const int group = uniform(threadIdx.x / 128);
    group == 0 ? produce<causal>(p, maps, order, shared) : consume<promotes>(p, maps, shared, group - 1);
}

#include "stages/76_e4m3_inputs/launch.cuh"

template <class T, int d, bool promotes>
void run(const Problem& p) {
    using Sizes = Tile<d, promotes>;
    const TileOrder order = tile_order(p, Sizes::Br, static_cast<unsigned*>(p.workspace));
    const auto kernel = p.causal ? attention<T, d, true, promotes> : attention<T, d, false, promotes>;
    launch(kernel, dim3(std::min(p.sm_count, order.total)), Sizes::threads, sizeof(Shared<T, d, Sizes>), p,
           panel_maps<T, d, Sizes>(p), order);
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
LADDER_STAGE(forward, Dims, .number = 78, .name = "optional_promotion", .parent = 76,
             .formerly = "19_optional_promotion",
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {192, 128, 4}, {192, 64, 4},
                                     {128, 128, 2}),
             .change = "sums of P V are promoted if the caller asks for it", .shows_in = "long",
             .takes = {Feature::promotion}, .products = Products::of_8_bits, .takes_e4m3 = true,
             .rounds_large_scores = true, .workspace_bytes = workspace_bytes,
             .counter_bytes = workspace_bytes);

}  // namespace
