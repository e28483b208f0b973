// Stage 87: a cache with any mask and score. Tiles begin at the first key of the window, wherever it lies in
// its page. A tile holds rows of several heads, so each row has its own slope and its own sink.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/sinks.cuh"
#include "stages/65_hopper_windows/softcap.cuh"
#include "stages/65_hopper_windows/softmax.cuh"
#include "stages/65_hopper_windows/window.cuh"
#include "stages/83_hopper_prefix/line.cuh"

#include "stages/83_hopper_prefix/attention.cuh"

#include "stages/83_hopper_prefix/launch.cuh"

/// A window in a cache, and how many keys the rows of a request see at most
struct CacheWindow : Window {
    static int most_keys(const Problem& p) {
        const int left = p.window.left;
        return left < 0 || left > p.Nk - p.Nq ? p.Nk : left + p.Nq;
    }
};

/// ALiBi of packed rows: each of a lane's two rows has the slope of its head, and its position in its
/// request.
struct PackedAlibi {
    float decay[2], distance[2];  // the slope; from this lane's first key to the row's position

    __device__ PackedAlibi(const Problem& p, int h_kv, int first_key, int first_row, int end_row) {
        const int row = first_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const auto [b, h, i] = PackedRow(p, h_kv, min(row + 8 * r, end_row - 1));
            const int position = i + keys_of_request(p, b) - p.Nq, t = threadIdx.x % 4;
            decay[r] = load(p.alibi_slopes + b * p.alibi_batch_stride + h) * log2_e;
            distance[r] = float(position - first_key - 2 * t);
        }
    }
    /// To the exponents of a tile whose first key this is
    template <int n>
    __device__ void add(int key, float (&S)[n]) const {
#pragma unroll
        for (int c = 0; c < n; ++c) {
            const float from_tile = distance[row_of(c)] - float(key);
            S[c] -= decay[row_of(c)] * fabsf(from_tile - float(column_of(c)));
        }
    }
};

/// Windows cost a few instructions per query tile and sinks a few per row, so both are tested at run time. A
/// softcap and ALiBi cost instructions for each score, so they are types.
template <class T, int d, class Score>
void launch_with(const Problem& p) {
    if (p.alibi_slopes != nullptr) {
        launch_attention<T, d, CacheTypes<CacheWindow, Score, PackedAlibi, Sinks>>(p);
    } else {
        launch_attention<T, d, CacheTypes<CacheWindow, Score, NoBias, Sinks>>(p);
    }
}

template <class T, int d>
void forward(const Problem& p) {
    p.softcap > 0 ? launch_with<T, d, Softcap>(p) : launch_with<T, d, Scaled>(p);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 87, .name = "any_cache", .parent = 83, .part = 80, .place = 84,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {128, 128, 6}, {128, 128, 3},
                                     {128, 64, 2}),
             .change = "windows, softcap, ALiBi and sinks in a cache: tiles begin where the window does",
             .shows_in = "cache-window",
             .takes = {Feature::window, Feature::lengths, Feature::pages, Feature::softcap, Feature::alibi,
                       Feature::sinks, Feature::prefix},
             .diff_budget = 110,  // with four types
             .batch_invariant = false, .rounds_large_scores = true, .workspace_bytes = workspace_bytes);

}  // namespace
