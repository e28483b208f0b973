// Stage 96: all that the types of 65's kernel can do at once: a window with documents or with column bounds,
// or lists of tiles; dropout, a softcap, ALiBi and sinks. The host names the types that a problem needs. What
// costs a query tile or a row next to nothing is tested at run time: documents and sinks. What costs each
// score is a type: a softcap, ALiBi, dropout.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/philox.cuh"
#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/alibi.cuh"
#include "stages/65_hopper_windows/columns.cuh"
#include "stages/65_hopper_windows/documents.cuh"
#include "stages/65_hopper_windows/dropout.cuh"
#include "stages/65_hopper_windows/ranges.cuh"
#include "stages/65_hopper_windows/sinks.cuh"
#include "stages/65_hopper_windows/softcap.cuh"
#include "stages/65_hopper_windows/softmax.cuh"
#include "stages/65_hopper_windows/tiles.cuh"
#include "stages/65_hopper_windows/window.cuh"

#include "stages/65_hopper_windows/any_score.cuh"
#include "stages/65_hopper_windows/attention.cuh"

/// Under ALiBi a row's largest exponents are those of keys near it. With the last key tile first, m seldom
/// rises after it.
template <class Score, class Drop = NoDropout, bool from_last = false>
using Any = Types<Ranges<Window, from_last>, Document, Score, Sinks, Drop>;

/// Starts the kernel of this score. Under dropout the warps that multiply wait for those that draw, so they
/// have time for ALiBi's additions, whether the problem has slopes or not.
template <class T, int d, class Score>
void launch_with(const Problem& p, void* counter) {
    if (p.dropout.kept < 256) {
        launch_attention<T, d, Any<Alibi<Score>, Dropout>>(p, counter);
    } else if (p.alibi_slopes != nullptr) {
        launch_attention<T, d, Any<Alibi<Score>, NoDropout, true>>(p, counter);
    } else {
        launch_attention<T, d, Any<Score>>(p, counter);
    }
}

/// Starts the kernel of another mask: one of three, since a changed score is chosen at run time.
template <class T, int d, class Mask>
void launch_under(const Problem& p, void* counter) {
    if (p.dropout.kept < 256) {
        launch_attention<T, d, Types<Mask, Dense, AnyScore, Sinks, Dropout>>(p, counter);
    } else if (p.softcap > 0 || p.alibi_slopes != nullptr) {
        launch_attention<T, d, Types<Mask, Dense, AnyScore, Sinks>>(p, counter);
    } else {
        launch_attention<T, d, Types<Mask, Dense, Scaled, Sinks>>(p, counter);
    }
}

/// A counter, after what column bounds need
std::size_t workspace_bytes(const Shape& s, int) {
    return key_tile_bytes(s) + sizeof(unsigned);
}

template <class T, int d>
void forward(const Problem& p) {
    void* counter = static_cast<char*>(p.workspace) + key_tile_bytes(p);
    if (p.tiles.heads > 0) {
        launch_under<T, d, Tiles>(p, counter);
    } else if (p.columns.count > 0) {
        find_rows_of_keys<Window, Sizes<d, Any<Scaled>>::Bc>(p);
        launch_under<T, d, Columns<Window>>(p, counter);
    } else {
        p.softcap > 0 ? launch_with<T, d, Softcap>(p, counter) : launch_with<T, d, Scaled>(p, counter);
    }
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(
    forward, Dims, .number = 96, .name = "any_mask", .parent = 65, .formerly = "78_any_mask",
    .tilings = LADDER_TILES((Sizes<d, Any<Scaled>>::Br, Sizes<d, Any<Scaled>>::Bc,
                             Sizes<d, Any<Scaled>>::depth),
                            {192, 128, 4}, {128, 128, 2}, {128, 64, 2}),
    .change = "softcap, ALiBi, sinks, dropout and masks in any combination: the host picks the types",
    .shows_in = "scores",
    .takes = {Feature::window, Feature::columns, Feature::documents, Feature::tiles, Feature::softcap,
              Feature::alibi, Feature::sinks, Feature::dropout},
    .diff_budget = 600,  // with eight types
    .rounds_large_scores = true, .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
