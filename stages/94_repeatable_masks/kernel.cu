// Stage 94: repeatable masks. The gradients of 79, with dQ added in a fixed order, as in 58: key tiles from
// the last one that a query tile sees down to the first. The mask says how many come before a block's own.

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

#include "stages/94_repeatable_masks/fixed_order.cuh"

template <class Score>
using Kept = Types<Ranges<Window>, InDocuments, Score, NoDropout, FixedOrder>;
template <class Score>
using Dropped = Types<Ranges<Window>, Dense, Score, Dropout, FixedOrder>;

/// Starts the kernels of this score. Under dropout the warps that multiply wait for those that draw, so they
/// have time for ALiBi's additions, whether the problem has slopes or not.
template <class T, int d, class Score>
void launch_with(const Problem& p) {
    if (p.dropout.kept < 256) {
        launch_gradients<T, d, Dropped<Alibi<Score>>>(p);
    } else if (p.alibi_slopes != nullptr) {
        launch_gradients<T, d, Kept<Alibi<Score>>>(p);
    } else {
        launch_gradients<T, d, Kept<Score>>(p);
    }
}

template <class T, int d>
void backward(const Problem& p) {
    p.softcap > 0 ? launch_with<T, d, Softcap>(p) : launch_with<T, d, Scaled>(p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(
    backward, Dims, .number = 94, .name = "repeatable_masks", .parent = 66, .part = 60, .place = 70,
    .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
    .change = "dQ is added in a fixed order under windows and in documents: each run gives the same bits",
    .shows_in = "backward-window", .pass = Pass::backward,
    .takes = {Feature::window, Feature::documents, Feature::softcap, Feature::alibi, Feature::sinks,
              Feature::dropout},
    .diff_budget = 330, .most_lines = 1100,  // with six types
    .batch_invariant = false, .workspace_bytes = workspace_bytes<Kept<Scaled>>);

}  // namespace
