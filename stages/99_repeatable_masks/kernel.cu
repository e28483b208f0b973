// Stage 99: repeatable masks. The gradients of stages 97 and 98, with dQ added in a fixed order, as in stage
// 58 upward: from the last key tile that a query tile sees down to the first. A block finds its turn from
// the mask, or in a list if key tiles have gaps.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/alibi.cuh"
#include "stages/65_hopper_windows/philox.cuh"
#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/softcap.cuh"
#include "stages/65_hopper_windows/window.cuh"
#include "stages/66_window_gradients/types.cuh"

#include "stages/65_hopper_windows/any_score.cuh"

#include "stages/66_window_gradients/gradients.cuh"
#include "stages/66_window_gradients/launch.cuh"

#include "stages/66_window_gradients/wide_gradients.cuh"

#include "stages/66_window_gradients/documents.cuh"
#include "stages/66_window_gradients/dropout.cuh"
#include "stages/66_window_gradients/ranges.cuh"
#include "stages/66_window_gradients/tiles.cuh"

#include "stages/66_window_gradients/columns.cuh"

#include "stages/97_any_mask_gradients/any_mask.cuh"

#include "stages/99_repeatable_masks/in_turns.cuh"

#include "stages/99_repeatable_masks/fixed_order.cuh"
#include "stages/99_repeatable_masks/listed_order.cuh"

template <class T, int d>
void backward(const Problem& p) {
    launch_any_mask<T, d, FixedOrder, ListedOrder>(p);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(backward, Dims, .number = 99, .name = "repeatable_masks", .parent = 97,
             .formerly = "94_repeatable_masks",
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2},
                                     {64, 64, 2}),
             .change = "dQ is added in a fixed order under all masks: each run gives the same bits",
             .shows_in = "backward-window", .pass = Pass::backward,
             .takes = {Feature::window, Feature::columns, Feature::documents, Feature::tiles,
                       Feature::softcap, Feature::alibi, Feature::sinks, Feature::dropout},
             .diff_budget = 460, .most_lines = 1800,  // with eight types and two orders
             .batch_invariant = false,
             .workspace_bytes = workspace_bytes<Types<Tiles, Dense, Scaled, NoDropout, ListedOrder>>);

}  // namespace
