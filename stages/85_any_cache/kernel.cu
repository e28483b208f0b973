// Stage 85: a cache with any mask and score. Tiles begin at the first key of the window, wherever it lies in
// its page. A tile holds rows of several heads, so each row has its own slope, its own sink and its own word
// of a tree.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/sinks.cuh"
#include "stages/65_hopper_windows/softcap.cuh"
#include "stages/65_hopper_windows/softmax.cuh"
#include "stages/65_hopper_windows/window.cuh"
#include "stages/84_hopper_prefix/line.cuh"

#include "stages/84_hopper_prefix/attention.cuh"

#include "stages/84_hopper_prefix/launch.cuh"

/// A window in a cache, and how many keys the rows of a request see at most
struct CacheWindow : Window {
    static int most_keys(const Problem& p) {
        const int left = p.window.left;
        return left < 0 || left > p.Nk - p.Nq ? p.Nk : left + p.Nq;
    }
};

/// ALiBi of packed rows: each of a lane's two rows has the slope of its head, 0 without slopes, and its
/// position in its request.
struct PackedAlibi {
    float decay[2], distance[2];  // the slope; from this lane's first key to the row's position

    __device__ PackedAlibi(const Problem& p, int h_kv, int first_key, int first_row, int end_row) {
        const int row = first_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const auto [b, h, i] = PackedRow(p, h_kv, min(row + 8 * r, end_row - 1));
            const int position = i + keys_of_request(p, b) - p.Nq, t = threadIdx.x % 4;
            decay[r] = p.alibi_slopes == nullptr
                           ? 0.0f
                           : load(p.alibi_slopes + b * p.alibi_batch_stride + h) * log2_e;
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

/// The window of a draft that is a tree. No row is before row 0 in the tree, so none sees a key before those
/// of row 0; which of these it sees, a bias says.
struct TreeWindow : CacheWindow {
    __device__ static Range keys_of(const Problem& p, int row) {
        return {Window::keys_of(p, 0).begin, Window::keys_of(p, row).end};
    }
};

/// As many of the lowest bits
__device__ std::uint64_t lowest(int n) {
    return n <= 0 ? 0 : n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
}

/// A draft that is a tree, with ALiBi or without: of the keys of the draft, row i sees those whose bits are
/// set in word i, and it stands as far past the cache as it sees keys of the draft before its own. Keys count
/// from the first of the draft.
struct Tree : PackedAlibi {
    const Problem& p;
    int first, row;  // the first key of the first tile; this lane's first row

    __device__ Tree(const Problem& problem, int h_kv, int first_key, int first_row, int end_row)
        : PackedAlibi(problem, h_kv, first_key, first_row, end_row), p(problem) {
        row = min(first_row + int(threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4), end_row - 1);
        // All rows see all keys of the prefix
        first = first_key < p.prefix ? -(1 << 30) : first_key - keys_of_request(p, request()) + p.Nq;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const auto [b, h, i] = PackedRow(p, h_kv, min(row + 8 * r, end_row - 1));
            distance[r] += float(__popcll(word(b, i)) - 1 - i);
        }
    }
    __device__ int request() const {
        return row / PackedRow::count(p);
    }
    __device__ std::uint64_t word(int b, int i) const {
        return load(p.tree + b * p.tree_batch_stride + i);
    }
    /// Bit n says whether a row sees key k + n, of the draft or from `edge` on before it.
    __device__ static std::uint64_t visible(std::uint64_t seen, int edge, int k) {
        if (k >= 0) return k < 64 ? seen >> k : 0;
        return (k > -64 ? seen << -k : 0) | (lowest(-k) & ~lowest(edge - k));
    }
    template <int n>
    __device__ void add(int key, float (&S)[n]) const {
        // Neither a key of the draft nor, in the first tile, the edge of a window
        if (first + key + 2 * n <= 0 && (key > 0 || p.window.left < 0)) {
            if (p.alibi_slopes != nullptr) PackedAlibi::add(key, S);
            return;
        }
        const int lane_key = first + key + int(threadIdx.x % 4 * 2);
        const int b = request(), last_row = (b + 1) * PackedRow::count(p) - 1;
        std::uint64_t seen[2], bits[2];
        int depth[2], edge[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            seen[r] = word(b, min(row + 8 * r, last_row) / (p.H / p.Hkv) - b * p.Nq);
            depth[r] = __popcll(seen[r]) - 1;
            edge[r] = p.window.left < 0 ? -p.Nk : depth[r] - p.window.left;
            for (int k = 0; k < edge[r]; ++k) seen[r] &= seen[r] - 1;  // the first have left the window
        }
        if (p.alibi_slopes != nullptr) {
#pragma unroll
            for (int c = 0; c < n; ++c) {
                const int r = row_of(c), k = lane_key + column_of(c);
                S[c] -= decay[r] * float(k < 0 ? depth[r] - k : __popcll(seen[r] >> (k & 63)) - 1);
            }
        }
#pragma unroll
        for (int c = 0; c < n; ++c) {
            const int r = row_of(c);
            if (c % 32 == 2 * r) bits[r] = visible(seen[r], edge[r], lane_key + column_of(c));  // of 64 keys
            if ((bits[r] >> column_of(c % 32) & 1) == 0) S[c] = -inf;
        }
    }
};

/// Windows cost a few instructions per query tile and sinks a few per row, so both are tested at run time. A
/// softcap, ALiBi and trees cost instructions for each score, so they are types.
template <class T, int d, class Score>
void launch_with(const Problem& p) {
    if (p.tree != nullptr) {
        launch_attention<T, d, CacheTypes<TreeWindow, Score, Tree, Sinks>>(p);
    } else if (p.alibi_slopes != nullptr) {
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
LADDER_STAGE(
    forward, Dims, .number = 85, .name = "any_cache", .parent = 84, .formerly = "87_any_cache",
    .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {128, 128, 6}, {128, 128, 3},
                            {128, 64, 2}),
    .change = "windows, softcap, ALiBi, sinks and trees in a cache: tiles begin where the window does",
    .shows_in = "cache-window",
    .takes = {Feature::window, Feature::lengths, Feature::pages, Feature::softcap, Feature::alibi,
              Feature::sinks, Feature::tree, Feature::prefix},
    .diff_budget = 190,  // with six types
    .batch_invariant = false, .rounds_large_scores = true, .workspace_bytes = workspace_bytes);

}  // namespace
