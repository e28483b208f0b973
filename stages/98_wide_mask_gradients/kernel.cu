// Stage 98: gradients at d = 256 under all that 97 takes. 57's two roles ask the questions of 66's kernel:
// the warpgroup that computes P asks the mask and the score, and hands over P times the score's derivative.

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

template <class T, int d>
void backward(const Problem& p) {
    launch_any_mask<T, d, AnyOrder, AnyOrder, AnyScore>(p);
}

using Dims = HeadDims<256>;
LADDER_STAGE(backward, Dims, .number = 98, .name = "wide_mask_gradients", .parent = 97,
             .formerly = "56_wide_mask_gradients",
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {64, 64, 2}),
             .change = "d = 256: the warpgroup of dV asks the mask, and hands over P times the score's slope",
             .shows_in = "backward-scores", .pass = Pass::backward,
             .takes = {Feature::window, Feature::columns, Feature::documents, Feature::tiles,
                       Feature::softcap, Feature::alibi, Feature::sinks, Feature::dropout},
             .diff_budget = 225,  // with another kernel of a key tile
             .repeats_exactly = false, .workspace_bytes = workspace_bytes<Types<Tiles>>);

}  // namespace
