// Tile lists: a mask by lists of full and of partial key tiles for each query tile, 64 by 64. The producer
// merges the lists of the block's two rows of tiles, and copies two key tiles of their union into a slot.
// Each warpgroup hides tiles that are not in its own lists. Part of the namespace of the stages that include
// it.

/// The producer's position in a list: entry `at` is key tile `tile`, which is past the last tile at the end.
/// Without lists, entry n is key tile n.
struct Walk {
    int at, end, tile;

    __device__ void go_to(const Problem& p, const int* tiles, int n) {
        at = n;
        tile = n >= end ? ceil_div(p.Nk, 64) : tiles == nullptr ? n : load(tiles + n);
    }
};

/// The full or the partial key tiles of query rows first_row .. first_row + 63, from the first one on
__device__ Walk walk_of(const Problem& p, const TileList& list, int b, int h, int first_row, bool partial) {
    Walk walk = {};
    if (first_row < p.Nq && p.tiles.heads > 0) {
        const int head = b % p.tiles.batches * p.tiles.heads + h / (p.H / p.tiles.heads);
        const int* first = list.first + std::int64_t{head} * ceil_div(p.Nq, 64) + first_row / 64;
        walk.at = load(first), walk.end = load(first + 1);
    } else if (first_row < p.Nq) {
        const int reach = p.causal ? first_row + p.Nk - p.Nq : p.Nk;  // row first_row sees no key past it
        walk.end = max(0, min(p.Nk, reach + 1) / 64);
        if (partial) walk.at = walk.end, walk.end = ceil_div(min(p.Nk, reach + 64), 64);
    }
    walk.go_to(p, list.tiles, walk.at);
    return walk;
}

struct Tiles {
    static constexpr int most_groups = 2, lanes = 1;
    static constexpr bool reads_words = true, hides_by_words = false;
    template <int Bc>
    static constexpr int pieces = Bc / 64;  // key tiles of a slot, a pair that need not be adjacent

    /// A key tile of the block, as a warpgroup sees it: full, hidden, or the partial tile with this index
    struct alignas(8) Seen {
        static constexpr int full = -1, hidden = -2;
        int tile, kind;
    };
    template <class Tile>
    struct Words {
        Seen seen[Tile::groups][Tile::pieces];
        int last;  // 1 if the query tile has no further pair
    };

    static bool longest_first(const Problem& p) { return p.causal || p.tiles.heads > 0; }

    template <class Tile>
    __device__ static int count(const Problem&, TileIndex, int) {
        return 0;
    }
    template <class Tile>
    struct Visit {
        Seen seen[Tile::pieces][Tile::groups];
        bool last;

        __device__ int first_key(int n) const { return seen[n][0].tile * 64; }
        __device__ int write(Words<Tile>& words) const {
            for (int n = 0; n < Tile::pieces; ++n) {
                for (int g = 0; g < Tile::groups; ++g) store(&words.seen[g][n], seen[n][g]);
            }
            store(&words.last, int{last});
            return 0;
        }
        __device__ void copy(Words<Tile>&, int, Mbarrier*) const {}
    };

    template <class Tile, class Act>
    __device__ static void for_each_visit(const Problem& p, TileIndex tile, int, Act act) {
        constexpr int groups = Tile::groups;
        const int b = tile.batch, h = tile.head, first_row = tile.tile * Tile::Br;
        Walk full[groups], partial[groups];  // the lists of each warpgroup
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            full[g] = walk_of(p, p.tiles.full, b, h, first_row + 64 * g, false);
            partial[g] = walk_of(p, p.tiles.partial, b, h, first_row + 64 * g, true);
        }
        const auto next_tile = [&] {
            int next = full[0].tile;
#pragma unroll
            for (int g = 0; g < groups; ++g) next = min(next, min(full[g].tile, partial[g].tile));
            return next;
        };
        Visit<Tile> visit;
        visit.last = false;
#pragma unroll 1  // each step waits: copies of the body would gain nothing
        while (!visit.last) {
#pragma unroll
            for (int n = 0; n < Tile::pieces; ++n) {
                const int next = next_tile();
#pragma unroll
                for (int g = 0; g < groups; ++g) {
                    // Without rows there is nothing to hide. Past the last tile all keys are 0.
                    visit.seen[n][g] = {next, first_row + 64 * g < p.Nq ? Seen::hidden : Seen::full};
                    if (full[g].at < full[g].end && full[g].tile == next) {
                        visit.seen[n][g].kind = Seen::full;
                        full[g].go_to(p, p.tiles.full.tiles, full[g].at + 1);
                    } else if (partial[g].at < partial[g].end && partial[g].tile == next) {
                        visit.seen[n][g].kind = partial[g].at;
                        partial[g].go_to(p, p.tiles.partial.tiles, partial[g].at + 1);
                    }
                }
            }
            visit.last = next_tile() == ceil_div(p.Nk, 64);
            act(visit);
        }
    }

    template <class Tile>
    struct Visits {
        static constexpr int pieces = Tile::pieces, unknown = std::numeric_limits<int>::max();
        Range own, all;  // their end is not known before the last one has arrived
        int g;
        Seen seen[pieces];
        std::uint64_t keys[pieces][2];  // of rows g and g + 8, a bit for each, from this lane's first on

        __device__ Visits(const Problem&, TileIndex, int group) : g(group) { own = all = {0, unknown}; }
        __device__ void read(const Words<Tile>& words, int j) {
            for (int n = 0; n < pieces; ++n) seen[n] = load(&words.seen[g][n]);
            if (load(&words.last)) own.end = all.end = j + 1;
        }
        __device__ void prefetch(const Problem& p, int row) {
#pragma unroll
            for (int n = 0; n < 2 * pieces; ++n) {
                keys[n / 2][n % 2] = 0;
                if (seen[n / 2].kind < 0) continue;
                keys[n / 2][n % 2] = visible_keys(p, seen[n / 2], row + n % 2 * 8) >> threadIdx.x % 4 * 2;
            }
        }
        __device__ int first_key(int, int n) const {
            return seen[n].tile * 64;
        }
        __device__ bool is_partial(int, int n) const {
            return seen[n].kind != Seen::full;
        }

        template <int n>
        __device__ void hide(const Problem&, const Words<Tile>&, int, int, int piece, float (&S)[n]) const {
#pragma unroll
            for (int c = 0; c < 32; ++c) {
                if ((keys[piece][row_of(c)] >> column_of(c)) % 2 == 0) S[32 * piece + c] = -inf;
            }
        }
    };

    /// The keys of a partial tile that a row sees, one bit each
    __device__ static std::uint64_t visible_keys(const Problem& p, Seen seen, int row) {
        if (p.tiles.heads > 0) return load(p.tiles.bits + std::int64_t{seen.kind} * 64 + row % 64);
        const int keys = min(p.Nk, p.causal ? row + 1 + p.Nk - p.Nq : p.Nk) - seen.tile * 64;
        return keys <= 0 ? 0 : ~std::uint64_t{0} >> max(0, 64 - keys);
    }
};
