// Stage 76: e4m3 inputs. The caller's Q, K and V are in e4m3, by rows, with one scale per head. Attention
// reads them in place, and no other kernel runs.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/76_e4m3_inputs/tile.cuh"

#include "stages/76_e4m3_inputs/shared.cuh"

#include "stages/70_fp8_products/tile_order.cuh"

#include "stages/76_e4m3_inputs/maps.cuh"

#include "stages/70_fp8_products/softmax.cuh"

#include "stages/70_fp8_products/score.cuh"

#include "stages/76_e4m3_inputs/transpose.cuh"

#include "stages/75_in_kernel_transpose/product.cuh"

#include "stages/70_fp8_products/write_rows.cuh"

#include "stages/76_e4m3_inputs/producer.cuh"

#include "stages/76_e4m3_inputs/consumer.cuh"

/// A block computes query tile after query tile. Warp specialization: one thread copies, warpgroups multiply.
/// - Producer: takes a query tile from a counter; copies Q, then K and V of each key tile, into three rings.
/// - Transposing warps: rewrite V from a slot of `V_rows` into a slot of V, with its keys along the rows.
/// - Consumers, a warpgroup for 64 rows: start S = Q K^T of key tile j, then O += P V of tile j - 1, which
///   runs during the softmax of tile j; at the end write O and L.
/// - Turns: barrier 1 + g lets warpgroup g start products; meanwhile the others take exponentials.
/// A slot's life: the producer waits for `empty` and starts the copy; `full` completes when all bytes have
/// arrived; a consumer that sees the tile multiplies, then arrives at `empty`; for others the producer does,
/// or for V a transposing warp.
template <class T, int d, bool causal>
__global__ void __launch_bounds__(Tile<d>::threads, 1)
    attention(const Problem p, const __grid_constant__ PanelMaps<d> maps, const TileOrder order) {
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    begin(shared);
    const int group = uniform(threadIdx.x / 128);
    group == 0 ? produce<causal>(p, maps, order, shared) : consume(p, maps, shared, group - 1);
}

#include "stages/76_e4m3_inputs/launch.cuh"

template <class T, int d>
void forward(const Problem& p) {
    using Sizes = Tile<d>;
    const TileOrder order = tile_order(p, Sizes::Br, static_cast<unsigned*>(p.workspace));
    const auto kernel = p.causal ? attention<T, d, true> : attention<T, d, false>;
    launch(kernel, dim3(std::min(p.sm_count, order.total)), Sizes::threads, sizeof(Shared<T, d>), p,
           panel_maps<T, d>(p), order);
}

std::size_t workspace_bytes(const Shape&, int) {
    return sizeof(unsigned);  // TileOrder::taken, which is a counter
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 76, .name = "e4m3_inputs", .parent = 75, .formerly = "28_e4m3_inputs",
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {192, 128, 4}, {192, 64, 4},
                                     {128, 128, 2}),
             .change = "Q, K and V come in e4m3 with a scale for each head, and nothing is rounded again",
             .shows_in = "train", .products = Products::of_8_bits, .takes_e4m3 = true, .diff_budget = 160,
             .most_lines = 560,  // with what stages 77 and 78 include as well, in functions of their own
             .rounds_large_scores = true, .workspace_bytes = workspace_bytes,
             .counter_bytes = workspace_bytes);

}  // namespace
