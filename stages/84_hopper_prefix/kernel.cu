// Stage 84: a prefix on Hopper. A warpgroup copies keys through the block table. One launch multiplies the
// prefix with the rows of all requests, and own keys with those of one; each row is merged from both.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/softmax.cuh"
#include "stages/84_hopper_prefix/line.cuh"

#include "stages/84_hopper_prefix/attention.cuh"

#include "stages/84_hopper_prefix/launch.cuh"

template <class T, int d>
void forward(const Problem& p) {
    launch_attention<T, d, CacheTypes<Causal>>(p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(forward, Dims, .number = 84, .name = "hopper_prefix", .parent = 39,
             .formerly = "83_hopper_prefix",
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {128, 128, 6},
                                     {128, 128, 3}),
             .change = "39 with pages: a warpgroup copies keys; one launch for the prefix and own keys",
             .shows_in = "prefix", .takes = {Feature::lengths, Feature::pages, Feature::prefix},
             .diff_budget = 0, .most_lines = 810,  // schedules ragged requests
             .batch_invariant = false, .rounds_large_scores = true, .workspace_bytes = workspace_bytes);

}  // namespace
