// Stage 78: all that the types of 65's kernel can do at once: a window, documents, dropout, a softcap, ALiBi
// and sinks. The host names the types that a problem needs. What costs a query tile or a row next to nothing
// is tested at run time: documents and sinks. What costs each score is a type: a softcap, ALiBi, dropout.

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

/// Under ALiBi a row's largest exponents are those of keys near it. With the last key tile first, m seldom
/// rises after it.
template <class Score, class Drop = NoDropout, bool from_last = false>
using Any = Types<Ranges<Window, from_last>, Document, Score, Sinks, Drop>;

/// Starts the kernel of this score. Under dropout the warps that multiply wait for those that draw, so they
/// have time for ALiBi's additions, whether the problem has slopes or not.
template <class T, int d, class Score>
void launch_with(const Problem& p) {
    if (p.dropout.kept < 256) {
        launch_attention<T, d, Any<Alibi<Score>, Dropout>>(p, p.workspace);
    } else if (p.alibi_slopes != nullptr) {
        launch_attention<T, d, Any<Alibi<Score>, NoDropout, true>>(p, p.workspace);
    } else {
        launch_attention<T, d, Any<Score>>(p, p.workspace);
    }
}

template <class T, int d>
void forward(const Problem& p) {
    p.softcap > 0 ? launch_with<T, d, Softcap>(p) : launch_with<T, d, Scaled>(p);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(
    forward, Dims, .number = 78, .name = "any_mask", .parent = 65, .part = 60, .place = 69,
    .tilings = LADDER_TILES((Sizes<d, Any<Scaled>>::Br, Sizes<d, Any<Scaled>>::Bc,
                             Sizes<d, Any<Scaled>>::depth),
                            {192, 128, 4}, {128, 128, 2}, {128, 64, 2}),
    .change = "softcap, ALiBi, sinks, documents and dropout in any combination: the host picks the types",
    .shows_in = "scores",
    .takes = {Feature::window, Feature::documents, Feature::softcap, Feature::alibi, Feature::sinks,
              Feature::dropout},
    .diff_budget = 260,  // with five types
    .rounds_large_scores = true, .workspace_bytes = counter_bytes, .counter_bytes = counter_bytes);

}  // namespace
