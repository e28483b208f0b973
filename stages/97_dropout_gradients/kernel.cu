// Stage 97: gradients under dropout. The warps that do not multiply compute the random bytes of a tile, as
// stage 64 defines them, and write a bit for each element, in the order of S^T's fragments.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/philox.cuh"
#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/window.cuh"
#include "stages/66_window_gradients/types.cuh"

#include "stages/66_window_gradients/gradients.cuh"
#include "stages/66_window_gradients/launch.cuh"

#include "stages/66_window_gradients/dropout.cuh"
#include "stages/66_window_gradients/ranges.cuh"

using Dropped = Types<Ranges<Window>, Dense, Scaled, Dropout>;

template <class T, int d>
void backward(const Problem& p) {
    launch_gradients<T, d, Dropped>(p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(backward, Dims, .number = 97, .name = "dropout_gradients", .parent = 66,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
             .change = "warps without work draw the mask of a tile, one bit per element, as others multiply",
             .shows_in = "backward-dropout", .pass = Pass::backward,
             .takes = {Feature::window, Feature::dropout}, .repeats_exactly = false,
             .workspace_bytes = workspace_bytes<Dropped>);

}  // namespace
