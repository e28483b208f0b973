// Stage 78: what becomes of a score is a type. The kernel stays as it is; `Capped` and `Biased` are to answer
// its questions, and `forward` to name them where a problem needs them. See TASK.md.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/philox.cuh"
#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/documents.cuh"
#include "stages/65_hopper_windows/dropout.cuh"
#include "stages/65_hopper_windows/ranges.cuh"
#include "stages/65_hopper_windows/sinks.cuh"
#include "stages/65_hopper_windows/softmax.cuh"
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

template <class Score, class Drop = NoDropout>
using Any = Types<Ranges<Window>, Document, Score, Sinks, Drop>;

template <class T, int d>
void forward(const Problem& p) {
    p.dropout.kept < 256 ? launch_attention<T, d, Any<Scaled, Dropout>>(p, p.workspace)
                         : launch_attention<T, d, Any<Scaled>>(p, p.workspace);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 78, .name = "any_mask", .parent = 65,
             .tilings = LADDER_TILES((Sizes<d, Any<Scaled>>::Br, Sizes<d, Any<Scaled>>::Bc,
                                      Sizes<d, Any<Scaled>>::depth),
                                     {192, 128, 4}, {128, 128, 2}, {128, 64, 2}),
             .change = "", .shows_in = "scores",
             .takes = {Feature::window, Feature::documents, Feature::softcap, Feature::alibi, Feature::sinks,
                       Feature::dropout},
             .rounds_large_scores = true, .workspace_bytes = counter_bytes, .counter_bytes = counter_bytes);

}  // namespace
