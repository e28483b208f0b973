// Stage 96: what becomes of a score is a type. The kernel stays as it is; `Capped` and `Biased` are to answer
// its questions, and `forward` to name them where a problem needs them. See TASK.md.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/philox.cuh"
#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/columns.cuh"
#include "stages/65_hopper_windows/documents.cuh"
#include "stages/65_hopper_windows/dropout.cuh"
#include "stages/65_hopper_windows/ranges.cuh"
#include "stages/65_hopper_windows/sinks.cuh"
#include "stages/65_hopper_windows/softmax.cuh"
#include "stages/65_hopper_windows/tiles.cuh"
#include "stages/65_hopper_windows/window.cuh"

#include "stages/65_hopper_windows/attention.cuh"

/// A score that knows no cap.
struct Capped {
    float scale;

    __device__ Capped(const Problem& p, int, int) : scale(p.scale * log2_e) {}
    __device__ void move_to(const Problem&, int, int) {}
    __device__ float exponent(float s, float m, int) const { return s * scale - m; }
    template <int n>
    __device__ void correct(float*) const {}  // nothing that takes a branch
};

/// Another score with a bias by the distance of the key, which is 0 here.
template <class Score>
struct Biased : Score {
    __device__ Biased(const Problem& p, int b, int h) : Score(p, b, h) {}
    /// To a tile in which this lane's first row is `row`, and its first key `key`
    __device__ void move_to(const Problem& p, int row, int key) { Score::move_to(p, row, key); }
    /// Of value c of the lane: of row `row` + 8 row_of(c) and key `key` + column_of(c)
    __device__ float exponent(float s, float m, int c) const { return Score::exponent(s, m, c); }
};

template <class T, int d, class Mask, class Place>
void launch_under(const Problem& p, void* counter) {
    p.dropout.kept < 256 ? launch_attention<T, d, Types<Mask, Place, Scaled, Sinks, Dropout>>(p, counter)
                         : launch_attention<T, d, Types<Mask, Place, Scaled, Sinks>>(p, counter);
}

using OfWindow = Types<Ranges<Window>, Document>;

/// A counter, after what column bounds need
std::size_t workspace_bytes(const Shape& s, int) {
    return key_tile_bytes(s) + sizeof(unsigned);
}

template <class T, int d>
void forward(const Problem& p) {
    void* counter = static_cast<char*>(p.workspace) + key_tile_bytes(p);
    if (p.tiles.heads > 0) {
        launch_under<T, d, Tiles, Dense>(p, counter);
    } else if (p.columns.count > 0) {
        find_rows_of_keys<Window, Sizes<d, OfWindow>::Bc>(p);
        launch_under<T, d, Columns<Window>, Dense>(p, counter);
    } else {
        launch_under<T, d, Ranges<Window>, Document>(p, counter);
    }
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 96, .name = "any_mask", .parent = 65,
             .tilings = LADDER_TILES((Sizes<d, OfWindow>::Br, Sizes<d, OfWindow>::Bc,
                                      Sizes<d, OfWindow>::depth),
                                     {192, 128, 4}, {128, 128, 2}, {128, 64, 2}),
             .change = "", .shows_in = "scores",
             .takes = {Feature::window, Feature::columns, Feature::documents, Feature::tiles,
                       Feature::softcap, Feature::alibi, Feature::sinks, Feature::dropout},
             .rounds_large_scores = true, .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
