// Stage 95: dropout on Hopper, a type that 65's kernel takes. Warps that do not multiply compute the mask of
// a tile, a bit for each element, which is applied to P during the next scores.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/philox.cuh"
#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/dropout.cuh"
#include "stages/65_hopper_windows/ranges.cuh"
#include "stages/65_hopper_windows/softmax.cuh"
#include "stages/65_hopper_windows/window.cuh"

#include "stages/65_hopper_windows/attention.cuh"

using WithDropout = Types<Ranges<Window>, Dense, Scaled, NoSink, Dropout>;

template <class T, int d>
void forward(const Problem& p) {
    launch_attention<T, d, WithDropout>(p, p.workspace);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 95, .name = "hopper_dropout", .parent = 65,
             .formerly = "99_hopper_dropout",
             .tilings = LADDER_TILES((Sizes<d, WithDropout>::Br, Sizes<d, WithDropout>::Bc,
                                      Sizes<d, WithDropout>::depth),
                                     {192, 128, 4}, {128, 128, 2}, {128, 64, 2}),
             .change = "other warps draw a bit per element, and P loses its elements during the next scores",
             .shows_in = "dropout", .takes = {Feature::window, Feature::dropout}, .rounds_large_scores = true,
             .workspace_bytes = counter_bytes, .counter_bytes = counter_bytes);

}  // namespace
