// Stage 97: gradients of all that the types of 66's kernel can do at once: a window, with packed documents or
// with column bounds, or lists of tiles; dropout but in documents, a softcap, ALiBi, and sinks with their
// gradient. The host names the types that a problem needs.

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

#include "stages/66_window_gradients/documents.cuh"
#include "stages/66_window_gradients/dropout.cuh"
#include "stages/66_window_gradients/ranges.cuh"
#include "stages/66_window_gradients/tiles.cuh"

#include "stages/66_window_gradients/columns.cuh"

#include "stages/97_any_mask_gradients/any_mask.cuh"

template <class T, int d>
void backward(const Problem& p) {
    launch_any_mask<T, d>(p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(backward, Dims, .number = 97, .name = "any_mask_gradients", .parent = 66,
             .formerly = "79_any_mask_gradients",
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
             .change = "masks, dropout, scores and sinks are types: the host picks those of a problem",
             .shows_in = "backward-scores", .pass = Pass::backward,
             .takes = {Feature::window, Feature::columns, Feature::documents, Feature::tiles,
                       Feature::softcap, Feature::alibi, Feature::sinks, Feature::dropout},
             .diff_budget = 540, .most_lines = 1400,  // with eight types
             .repeats_exactly = false, .workspace_bytes = workspace_bytes<Types<Tiles>>);

}  // namespace
