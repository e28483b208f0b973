// Stage 66: gradients in a window. Each key is seen by a range of query rows, so a block loops over the query
// tiles of such a range; only tiles that an edge of the window crosses are masked.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/window.cuh"
#include "stages/66_window_gradients/types.cuh"

#include "stages/66_window_gradients/gradients.cuh"
#include "stages/66_window_gradients/launch.cuh"

#include "stages/66_window_gradients/ranges.cuh"

using Windows = Types<Ranges<Window>>;

template <class T, int d>
void backward(const Problem& p) {
    launch_gradients<T, d, Windows>(p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(backward, Dims, .number = 66, .name = "window_gradients", .parent = 55,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
             .change = "a block loops only over the query tiles whose windows reach its key tile",
             .shows_in = "backward-window", .pass = Pass::backward, .takes = {Feature::window},
             .diff_budget = 460, .most_lines = 840,  // with its types
             .repeats_exactly = false, .workspace_bytes = workspace_bytes<Windows>);

}  // namespace
