// The types of the backward kernel on Hopper, as many at once as combine: tests/test_mask_types.cpp verifies
// it.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/alibi.cuh"
#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/softcap.cuh"
#include "stages/65_hopper_windows/window.cuh"
#include "stages/66_window_gradients/types.cuh"

#include "stages/66_window_gradients/gradients.cuh"
#include "stages/66_window_gradients/launch.cuh"

#include "stages/66_window_gradients/documents.cuh"
#include "stages/66_window_gradients/dropout.cuh"
#include "stages/66_window_gradients/ranges.cuh"

template <class Score>
using All = Types<Ranges<Window>, Dense, Alibi<Score>, Dropout>;
template <class Score>
using Packed = Types<Ranges<Window>, InDocuments, Alibi<Score>>;

template <class T, int d>
void backward(const Problem& p) {
    if (p.documents.count > 0) {
        p.softcap > 0 ? launch_gradients<T, d, Packed<Softcap>>(p)
                      : launch_gradients<T, d, Packed<Scaled>>(p);
    } else {
        p.softcap > 0 ? launch_gradients<T, d, All<Softcap>>(p) : launch_gradients<T, d, All<Scaled>>(p);
    }
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(backward, Dims, .number = 0, .name = "every_gradient", .parent = 66,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
             .change = "every type at once", .shows_in = "backward-window", .pass = Pass::backward,
             .takes = {Feature::window, Feature::documents, Feature::dropout, Feature::softcap,
                       Feature::alibi, Feature::sinks},
             .repeats_exactly = false, .workspace_bytes = workspace_bytes<All<Scaled>>);

}  // namespace
