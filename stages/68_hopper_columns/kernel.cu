// Stage 68: column bounds on Hopper, a mask that 65's kernel takes. The producer classifies key tiles by the
// rows that see their keys, and copies those that some row of the block sees.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/columns.cuh"
#include "stages/65_hopper_windows/softmax.cuh"
#include "stages/65_hopper_windows/window.cuh"

#include "stages/65_hopper_windows/attention.cuh"

using Bounded = Types<Columns<Window>>;

std::size_t workspace_bytes(const Shape& s, int) {
    return key_tile_bytes(s) + sizeof(unsigned);
}

template <class T, int d>
void forward(const Problem& p) {
    launch_attention<T, d, Bounded>(p, find_rows_of_keys<Window, Sizes<d, Bounded>::Bc>(p));
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(
    forward, Dims, .number = 68, .name = "hopper_columns", .parent = 65, .formerly = "96_hopper_columns",
    .tilings = LADDER_TILES((Sizes<d, Bounded>::Br, Sizes<d, Bounded>::Bc, Sizes<d, Bounded>::depth),
                            {128, 128, 4}, {128, 128, 2}),
    .change = "the producer classifies key tiles by their column bounds, and copies those that rows see",
    .shows_in = "column-bounds", .takes = {Feature::window, Feature::columns}, .diff_budget = 0,
    .rounds_large_scores = true, .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
