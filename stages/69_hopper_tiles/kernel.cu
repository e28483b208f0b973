// Stage 69: tile lists on Hopper, a mask that 65's kernel takes. The producer merges the lists of the block's
// two rows of tiles, and copies two key tiles of their union into a slot.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/softmax.cuh"
#include "stages/65_hopper_windows/tiles.cuh"

#include "stages/65_hopper_windows/attention.cuh"

using Listed = Types<Tiles>;

template <class T, int d>
void forward(const Problem& p) {
    launch_attention<T, d, Listed>(p, p.workspace);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(
    forward, Dims, .number = 69, .name = "hopper_tiles", .parent = 35, .formerly = "95_hopper_tiles",
    .tilings = LADDER_TILES((Sizes<d, Listed>::Br, Sizes<d, Listed>::Bc, Sizes<d, Listed>::depth),
                            {128, 128, 4}, {128, 128, 2}, {128, 64, 2}),
    .change = "the producer unites the lists of a block's rows of tiles, and gathers key tiles in pairs",
    .shows_in = "tiles", .takes = {Feature::tiles}, .diff_budget = 0, .rounds_large_scores = true,
    .workspace_bytes = counter_bytes, .counter_bytes = counter_bytes);

}  // namespace
