// Stage 69: gradients under column bounds (FlashMask, arXiv 2410.01359). A block owns keys and their bounds.
// The minima and maxima of these bounds give two gaps in its range of query tiles, which its loops skip.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/window.cuh"
#include "stages/66_window_gradients/types.cuh"

#include "stages/66_window_gradients/gradients.cuh"
#include "stages/66_window_gradients/launch.cuh"

#include "stages/66_window_gradients/ranges.cuh"

#include "stages/66_window_gradients/columns.cuh"

using Bounds = Types<Columns<Window>>;

template <class T, int d>
void backward(const Problem& p) {
    launch_gradients<T, d, Bounds>(p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(backward, Dims, .number = 69, .name = "column_gradients", .parent = 66,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
             .change = "the bounds of a block's keys are two gaps in its range of query tiles",
             .shows_in = "backward-column-bounds", .pass = Pass::backward,
             .takes = {Feature::window, Feature::columns}, .diff_budget = 150, .repeats_exactly = false,
             .workspace_bytes = workspace_bytes<Bounds>);

}  // namespace
