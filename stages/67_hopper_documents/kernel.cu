// Stage 67: packed documents on Hopper, a place that 65's kernel takes. The producer finds the document of a
// query tile, and copies boxes that begin where the document begins. No row past its end is stored.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/documents.cuh"
#include "stages/65_hopper_windows/ranges.cuh"
#include "stages/65_hopper_windows/softmax.cuh"
#include "stages/65_hopper_windows/window.cuh"

#include "stages/65_hopper_windows/attention.cuh"

using Packed = Types<Ranges<Window>, Document>;

template <class T, int d>
void forward(const Problem& p) {
    launch_attention<T, d, Packed>(p, p.workspace);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(
    forward, Dims, .number = 67, .name = "hopper_documents", .parent = 65,
    .tilings = LADDER_TILES((Sizes<d, Packed>::Br, Sizes<d, Packed>::Bc, Sizes<d, Packed>::depth),
                            {192, 128, 4}, {128, 128, 2}, {128, 64, 2}),
    .change = "the producer finds each query tile's document; boxes begin, and stores end, at its borders",
    .shows_in = "packed", .takes = {Feature::window, Feature::documents}, .rounds_large_scores = true,
    .workspace_bytes = counter_bytes, .counter_bytes = counter_bytes);

}  // namespace
