// Stage 79: gradients of all that the types of 66's kernel can do at once: a window, packed documents or
// dropout, a softcap, ALiBi, and sinks with their gradient. The host names the types that a problem needs.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/alibi.cuh"
#include "stages/65_hopper_windows/philox.cuh"
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
using Kept = Types<Ranges<Window>, InDocuments, Score>;
template <class Score>
using Dropped = Types<Ranges<Window>, Dense, Score, Dropout>;

template <class T, int d>
void backward(const Problem& p) {
    const bool is_capped = p.softcap > 0, has_slopes = p.alibi_slopes != nullptr;
    // With dropout, slopes that are not there are 0: warps that draw bits take longer than ALiBi's additions.
    const auto launch = p.dropout.kept < 256 ? is_capped ? launch_gradients<T, d, Dropped<Alibi<Softcap>>>
                                                         : launch_gradients<T, d, Dropped<Alibi<Scaled>>>
                        : has_slopes ? is_capped ? launch_gradients<T, d, Kept<Alibi<Softcap>>>
                                                 : launch_gradients<T, d, Kept<Alibi<Scaled>>>
                        : is_capped ? launch_gradients<T, d, Kept<Softcap>>
                                             : launch_gradients<T, d, Kept<Scaled>>;
    launch(p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(
    backward, Dims, .number = 79, .name = "any_mask_gradients", .parent = 66, .part = 60, .place = 69,
    .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
    .change = "softcap, ALiBi and sinks combine with windows, documents or dropout: the host picks the types",
    .shows_in = "backward-scores", .pass = Pass::backward,
    .takes = {Feature::window, Feature::documents, Feature::softcap, Feature::alibi, Feature::sinks,
              Feature::dropout},
    .diff_budget = 260,  // with five types
    .most_lines = 860,   // with its types
    .repeats_exactly = false, .workspace_bytes = workspace_bytes<Kept<Scaled>>);

}  // namespace
