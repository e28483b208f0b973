// Stage 94: an order is a type, too. The kernel stays as it is; `FixedOrder` is to answer its questions so
// that the parts of a query tile's dQ are added in a fixed order. See TASK.md.

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

/// An order that fixes nothing
struct FixedOrder {
    static constexpr bool last_first = false;  // of the key tiles of a head, in the order of blocks' numbers
    struct Shared {};                          // of a block

    /// Bytes of memory after the sums (Sums), a multiple of 16
    static std::size_t counter_bytes(const Shape&) { return 0; }
    /// `prepare` calls it for each padded row of each head.
    template <int d>
    __device__ static void reset(const Problem&, int, int, int) {}
    /// The block's number. All threads call it.
    template <int d>
    __device__ static unsigned number(const Problem&, Shared&) {
        return blockIdx.x;
    }
    /// How many of a block's query tiles, `count` over all heads, are before a part
    template <class QueryTiles>
    __device__ static int before(const Problem&, const KeyTile&, const QueryTiles&, int count, int part,
                                 int parts) {
        return count * part / parts;
    }
    /// One thread of the sender calls it before it starts to add the dQ of a visit,
    template <int d, class Visit>
    __device__ static void wait_turn(const Problem&, const KeyTile&, const Visit&) {}
    /// and after the additions have read shared memory.
    template <int d, class Visit>
    __device__ static void pass_turn(const Problem&, const KeyTile&, const Visit&) {}
};

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
LADDER_STAGE(backward, Dims, .number = 94, .name = "repeatable_masks", .parent = 66,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
             .change = "", .shows_in = "backward-window", .pass = Pass::backward,
             .takes = {Feature::window, Feature::documents, Feature::softcap, Feature::alibi, Feature::sinks,
                       Feature::dropout},
             .workspace_bytes = workspace_bytes<Kept<Scaled>>);

}  // namespace
