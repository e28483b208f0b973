// Every type of the forward kernel on Hopper in one instance: tests/test_mask_types.cpp verifies it.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/philox.cuh"
#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/alibi.cuh"
#include "stages/65_hopper_windows/documents.cuh"
#include "stages/65_hopper_windows/dropout.cuh"
#include "stages/65_hopper_windows/ranges.cuh"
#include "stages/65_hopper_windows/sinks.cuh"
#include "stages/65_hopper_windows/softcap.cuh"
#include "stages/65_hopper_windows/softmax.cuh"
#include "stages/65_hopper_windows/window.cuh"

#include "stages/65_hopper_windows/attention.cuh"

template <class Score>
using All = Types<Ranges<Window>, Document, Alibi<Score>, Sinks, Dropout>;

template <class T, int d>
void forward(const Problem& p) {
    p.softcap > 0 ? launch_attention<T, d, All<Softcap>>(p, p.workspace)
                  : launch_attention<T, d, All<Scaled>>(p, p.workspace);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 0, .name = "every_type", .parent = 65,
             .tilings = LADDER_TILES((Sizes<d, All<Scaled>>::Br, Sizes<d, All<Scaled>>::Bc,
                                      Sizes<d, All<Scaled>>::depth),
                                     {192, 128, 4}, {128, 128, 2}, {128, 64, 2}),
             .change = "every type at once", .shows_in = "window",
             .takes = {Feature::window, Feature::documents, Feature::dropout, Feature::softcap,
                       Feature::alibi, Feature::sinks},
             .rounds_large_scores = true, .workspace_bytes = counter_bytes, .counter_bytes = counter_bytes);

}  // namespace
