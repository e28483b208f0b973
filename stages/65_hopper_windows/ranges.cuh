// A mask under which each row sees a range of keys, neither bound of which decreases from one row to the
// next. So first and last rows decide for all in between.

/// Rule::keys_of(p, row) gives the keys that a row sees. Their tiles are visited from the first to the last,
/// or from the last to the first.
template <class Rule, bool from_last = false>
struct Ranges {
    static constexpr int most_groups = 3;       // warpgroups that multiply at d = 64
    static constexpr int lanes = 1;             // of the producer, that look for key tiles
    static constexpr bool reads_words = false;  // that travel with K
    static constexpr bool hides_by_words = false;
    template <int Bc>
    static constexpr int pieces = 1;
    template <class Tile>
    struct Words {};

    static bool longest_first(const Problem& p) { return p.causal; }

    /// Key tiles that these rows see; if they see none, one that is masked; none if there are no rows
    template <int Bc>
    __device__ static Range key_tiles(const Problem& p, int first_row, int rows) {
        if (first_row >= p.Nq) return {0, 0};
        const int begin = Rule::keys_of(p, first_row).begin / Bc;
        return {begin, max(begin + 1, ceil_div(Rule::keys_of(p, min(p.Nq, first_row + rows) - 1).end, Bc))};
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
        __device__ int write(Words<Tile>&) const { return 0; }  // more bytes that come with K
        __device__ void copy(Words<Tile>&, int, Mbarrier*) const {}
    };
    template <class Tile, class Act>
    __device__ static void for_each_visit(const Problem& p, TileIndex tile, int, Act act) {
        const Range all = key_tiles<Tile::Bc>(p, tile.tile * Tile::Br, Tile::Br);
#pragma unroll 1  // each step waits: copies of the body would gain nothing
        for (int j = all.begin; j < all.end; ++j) act(Visit<Tile>{from_last ? all.mirrored(j) : j});
    }

    /// To warpgroup g: the key tiles of its own rows and of the block's, and the keys that all its rows see.
    template <class Tile>
    struct Visits {
        Range own, all, by_all;

        __device__ Visits(const Problem& p, TileIndex tile, int g) {
            const int first_row = tile.tile * Tile::Br + 64 * g;
            own = key_tiles<Tile::Bc>(p, first_row, 64);
            all = key_tiles<Tile::Bc>(p, tile.tile * Tile::Br, Tile::Br);
            if (from_last) own = {all.mirrored(own.end - 1), all.mirrored(own.begin - 1)};
            by_all = {Rule::keys_of(p, min(p.Nq, first_row + 64) - 1).begin, Rule::keys_of(p, first_row).end};
        }
        __device__ void read(const Words<Tile>&, int) {}
        __device__ void prefetch(const Problem&, int) {}
        __device__ int first_key(int j, int n = 0) const {
            return (from_last ? all.mirrored(j) : j) * Tile::Bc + 64 * n;
        }
        __device__ bool is_partial(int j, int) const {
            return first_key(j) < by_all.begin || first_key(j) + Tile::Bc > by_all.end;
        }
        /// Exponents become -inf where rows `row` and `row` + 8 do not see the key.
        template <int n>
        __device__ void hide(const Problem& p, const Words<Tile>&, int row, int j, int, float (&S)[n]) const {
            const int lane_key = first_key(j) + threadIdx.x % 4 * 2;
            Range keys[2];  // of this lane's columns
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                keys[r] = Rule::keys_of(p, row + 8 * r);
                keys[r] = {keys[r].begin - lane_key, keys[r].end - lane_key};
            }
#pragma unroll
            for (int c = 0; c < n; ++c) {
                if (column_of(c) < keys[row_of(c)].begin || column_of(c) >= keys[row_of(c)].end) S[c] = -inf;
            }
        }
    };
};

/// The keys that a row sees by both rules.
template <class A, class B>
struct Both {
    __device__ static Range keys_of(const Problem& p, int row) {
        return A::keys_of(p, row).common(B::keys_of(p, row));
    }
};
