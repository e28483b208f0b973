// Stage 99: an order is a type, too. The kernel stays as it is, and so does the order of column bounds and of
// lists of tiles; `FixedOrder` is to say whose turn it is under windows and in documents. See TASK.md.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/alibi.cuh"
#include "stages/65_hopper_windows/philox.cuh"
#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/softcap.cuh"
#include "stages/65_hopper_windows/window.cuh"
#include "stages/66_window_gradients/types.cuh"

#include "stages/65_hopper_windows/any_score.cuh"

#include "stages/66_window_gradients/gradients.cuh"
#include "stages/66_window_gradients/launch.cuh"

#include "stages/66_window_gradients/wide_gradients.cuh"

#include "stages/66_window_gradients/documents.cuh"
#include "stages/66_window_gradients/dropout.cuh"
#include "stages/66_window_gradients/ranges.cuh"
#include "stages/66_window_gradients/tiles.cuh"

#include "stages/66_window_gradients/columns.cuh"

#include "stages/97_any_mask_gradients/any_mask.cuh"

#include "stages/99_repeatable_masks/in_turns.cuh"

#include "stages/99_repeatable_masks/listed_order.cuh"

/// Numbers blocks, and has no turns.
struct FixedOrder : InTurns {
    /// How many of a block's query tiles, `count` over all heads, are before a part
    template <class QueryTiles>
    __device__ static int before(const Problem&, const KeyTile&, const QueryTiles&, int count, int part,
                                 int parts) {
        return count * part / parts;
    }
    /// One thread of a sender calls it before it starts to add the dQ of a visit, or at d = 256 a half of it,
    template <int d, class Visit>
    __device__ static void wait_turn(const Problem&, const KeyTile&, const Visit&, int = 0) {}
    /// and after the additions have read shared memory, or at d = 256 after they have been made.
    template <int d, class Visit>
    __device__ static void pass_turn(const Problem&, const KeyTile&, const Visit&, int = 0) {}
};

template <class T, int d>
void backward(const Problem& p) {
    launch_any_mask<T, d, FixedOrder, ListedOrder>(p);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(backward, Dims, .number = 99, .name = "repeatable_masks", .parent = 97,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2},
                                     {64, 64, 2}),
             .change = "", .shows_in = "backward-window", .pass = Pass::backward,
             .takes = {Feature::window, Feature::columns, Feature::documents, Feature::tiles,
                       Feature::softcap, Feature::alibi, Feature::sinks, Feature::dropout},
             .batch_invariant = false,
             .workspace_bytes = workspace_bytes<Types<Tiles, Dense, Scaled, NoDropout, ListedOrder>>);

}  // namespace
