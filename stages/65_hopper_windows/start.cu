// Stage 65: a mask is a type. The kernel stays as it is; `Mine` is to answer its questions. See TASK.md.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/types.cuh"

#include "stages/65_hopper_windows/softmax.cuh"

#include "stages/65_hopper_windows/attention.cuh"

/// A mask that knows no windows. Every query tile visits all key tiles, each of which it tests.
struct Mine {
    static constexpr int most_groups = 3;       // warpgroups that multiply at d = 64
    static constexpr int lanes = 1;             // of the producer, that look for key tiles
    static constexpr bool reads_words = false;  // that travel with K
    static constexpr bool hides_by_words = false;
    template <int Bc>
    static constexpr int pieces = 1;
    template <class Tile>
    struct Words {};

    static bool longest_first(const Problem& p) { return p.causal; }

    /// The key tiles that rows first_row .. first_row + rows - 1 see; none if there are no such rows
    template <int Bc>
    __device__ static Range key_tiles(const Problem& p, int first_row, int) {
        return {0, first_row < p.Nq ? ceil_div(p.Nk, Bc) : 0};
    }

    /// To the producer: what it copies for a query tile.
    template <class Tile>
    __device__ static int count(const Problem&, TileIndex, int) {
        return 0;
    }
    template <class Tile>
    struct Visit {
        int j;
        __device__ int first_key(int) const { return j * Tile::Bc; }
        __device__ int write(Words<Tile>&) const { return 0; }
        __device__ void copy(Words<Tile>&, int, Mbarrier*) const {}
    };
    template <class Tile, class Act>
    __device__ static void for_each_visit(const Problem& p, TileIndex tile, int, Act act) {
        const Range all = key_tiles<Tile::Bc>(p, tile.tile * Tile::Br, Tile::Br);
#pragma unroll 1  // each step waits: copies of the body would gain nothing
        for (int j = all.begin; j < all.end; ++j) act(Visit<Tile>{j});
    }

    /// To warpgroup g: the key tiles of its own 64 rows, and of the block's.
    template <class Tile>
    struct Visits {
        Range own, all;

        __device__ Visits(const Problem& p, TileIndex tile, int g) {
            own = key_tiles<Tile::Bc>(p, tile.tile * Tile::Br + 64 * g, 64);
            all = key_tiles<Tile::Bc>(p, tile.tile * Tile::Br, Tile::Br);
        }
        __device__ void read(const Words<Tile>&, int) {}
        __device__ void prefetch(const Problem&, int) {}
        __device__ int first_key(int j, int n) const { return j * Tile::Bc + n * 64; }
        /// Whether some row does not see some key of tile j.
        __device__ bool is_partial(int, int) const { return true; }
        /// Exponents become -inf where rows `row` and `row` + 8 do not see the key.
        template <int n>
        __device__ void hide(const Problem& p, const Words<Tile>&, int row, int j, int, float (&S)[n]) const {
            const int first_key = j * Tile::Bc + threadIdx.x % 4 * 2;
#pragma unroll
            for (int c = 0; c < n; ++c) {
                const int position = row + 8 * row_of(c) + p.Nk - p.Nq, key = first_key + column_of(c);
                if (key >= p.Nk || (p.causal && key > position)) S[c] = -inf;
            }
        }
    };
};

template <class T, int d>
void forward(const Problem& p) {
    launch_attention<T, d, Types<Mine>>(p, p.workspace);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 65, .name = "hopper_windows", .parent = 36,
             .tilings = LADDER_TILES((Sizes<d, Types<Mine>>::Br, Sizes<d, Types<Mine>>::Bc,
                                      Sizes<d, Types<Mine>>::depth),
                                     {192, 128, 4}, {128, 128, 2}, {128, 64, 2}),
             .change = "", .shows_in = "window", .takes = {Feature::window}, .rounds_large_scores = true,
             .workspace_bytes = counter_bytes, .counter_bytes = counter_bytes);

}  // namespace
