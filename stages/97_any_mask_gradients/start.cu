// Stage 97: what becomes of a score is a type, and so is its derivative. The kernel stays as it is; `Capped`
// and `Biased` are to answer its questions, and `backward` to name them where a problem needs them. See
// TASK.md.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/philox.cuh"
#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/window.cuh"
#include "stages/66_window_gradients/types.cuh"

#include "stages/66_window_gradients/gradients.cuh"
#include "stages/66_window_gradients/launch.cuh"

#include "stages/66_window_gradients/documents.cuh"
#include "stages/66_window_gradients/dropout.cuh"
#include "stages/66_window_gradients/ranges.cuh"
#include "stages/66_window_gradients/tiles.cuh"

#include "stages/66_window_gradients/columns.cuh"

/// A score that knows no cap.
struct Capped {
    static constexpr bool has_slope = false;
    float scale;

    __device__ Capped(const Problem& p, int, int) : scale(p.scale * log2_e) {}
    __device__ void move_to_keys(int) {}
    __device__ float before_mask(float s, float L) const { return s * scale - L; }
    __device__ float after_mask(float x, float, int) const { return x; }
};

/// Another score with a bias by the distance of the key, which is 0 here.
template <class Score>
struct Biased : Score {
    __device__ Biased(const Problem& p, int b, int h) : Score(p, b, h) {}
    /// To a tile in which this lane's first key is so far past the position of its first row
    __device__ void move_to_keys(int key_past_row) { Score::move_to_keys(key_past_row); }
    /// Of value c of the lane: of its key 8 row_of(c) later, and its row column_of(c) later
    __device__ float after_mask(float x, float L, int c) const { return Score::after_mask(x, L, c); }
};

/// Under dropout rows and keys are those of a sequence.
template <class T, int d, class Mask, class Place>
void launch_under(const Problem& p) {
    p.dropout.kept < 256 ? launch_gradients<T, d, Types<Mask, Dense, Scaled, Dropout>>(p)
                         : launch_gradients<T, d, Types<Mask, Place, Scaled>>(p);
}

template <class T, int d>
void backward(const Problem& p) {
    if (p.tiles.heads > 0) {
        launch_under<T, d, Tiles, Dense>(p);
    } else if (p.columns.count > 0) {
        launch_under<T, d, Columns<Window>, Dense>(p);
    } else {
        launch_under<T, d, Ranges<Window>, InDocuments>(p);
    }
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(backward, Dims, .number = 97, .name = "any_mask_gradients", .parent = 66,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
             .change = "", .shows_in = "backward-scores", .pass = Pass::backward,
             .takes = {Feature::window, Feature::columns, Feature::documents, Feature::tiles,
                       Feature::softcap, Feature::alibi, Feature::sinks, Feature::dropout},
             .repeats_exactly = false, .workspace_bytes = workspace_bytes<Types<Tiles>>);

}  // namespace
