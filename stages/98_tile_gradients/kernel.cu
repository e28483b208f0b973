// Stage 98: gradients under lists of tiles. A small kernel transposes the lists: for each block it finds the
// query tiles that see its keys, and what each of them is for each warpgroup. The block loops over these.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/66_window_gradients/types.cuh"

#include "stages/66_window_gradients/gradients.cuh"
#include "stages/66_window_gradients/launch.cuh"

#include "stages/66_window_gradients/tiles.cuh"

using Lists = Types<Tiles>;

template <class T, int d>
void backward(const Problem& p) {
    launch_gradients<T, d, Lists>(p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(backward, Dims, .number = 98, .name = "tile_gradients", .parent = 66,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
             .change = "lists are transposed first: a block visits the query tiles that list its keys",
             .shows_in = "backward-tiles", .pass = Pass::backward, .takes = {Feature::tiles},
             .diff_budget = 190, .repeats_exactly = false, .workspace_bytes = workspace_bytes<Lists>);

}  // namespace
