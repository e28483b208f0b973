// Stage 65: a mask is a type. The kernel asks it which key tiles the rows of a block and of a warpgroup see,
// and which of them it must test. Here the answers are those of a sliding window.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/ranges.cuh"
#include "stages/65_hopper_windows/softmax.cuh"
#include "stages/65_hopper_windows/window.cuh"

#include "stages/65_hopper_windows/attention.cuh"

using Windows = Types<Ranges<Window>>;

template <class T, int d>
void forward(const Problem& p) {
    launch_attention<T, d, Windows>(p, p.workspace);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 65, .name = "hopper_windows", .parent = 36,
             .tilings = LADDER_TILES((Sizes<d, Windows>::Br, Sizes<d, Windows>::Bc, Sizes<d, Windows>::depth),
                                     {192, 128, 4}, {128, 128, 2}, {128, 64, 2}),
             .change = "the producer copies the block's range of key tiles, each warpgroup computes its own",
             .shows_in = "window", .takes = {Feature::window}, .diff_budget = 0,
             .most_lines = 690,  // with its types
             .rounds_large_scores = true, .workspace_bytes = counter_bytes, .counter_bytes = counter_bytes);

}  // namespace
