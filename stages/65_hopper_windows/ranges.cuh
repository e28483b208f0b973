// A mask under which each row sees a range of keys, neither bound of which decreases from one row to the
// next. So first and last rows decide for all in between.

/// Rule::keys_of(p, row) gives the keys that a row sees, Rule::rows_of(p, Nq, Nk, key) the rows that see a
/// key.
template <class Rule>
struct Ranges : NoLists {
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
#pragma unroll 1
        for (int j = all.begin; j < all.end; ++j) act(Visit<Tile>{j});
    }

    /// To warpgroup g: the key tiles of its own rows and of the block's, and the keys that all its rows see.
    template <class Tile>
    struct Visits {
        Range own, all, by_all;

        __device__ Visits(const Problem& p, TileIndex tile, int g) {
            const int first_row = tile.tile * Tile::Br + 64 * g;
            own = key_tiles<Tile::Bc>(p, first_row, 64);
            all = key_tiles<Tile::Bc>(p, tile.tile * Tile::Br, Tile::Br);
            by_all = {Rule::keys_of(p, min(p.Nq, first_row + 64) - 1).begin, Rule::keys_of(p, first_row).end};
        }
        __device__ void read(const Words<Tile>&, int) {}
        __device__ void prefetch(const Problem&, int) {}
        __device__ int first_key(int j, int n) const { return j * Tile::Bc + n * 64; }
        __device__ bool is_partial(int j, int) const {
            return j * Tile::Bc < by_all.begin || (j + 1) * Tile::Bc > by_all.end;
        }
        /// Exponents become -inf where rows `row` and `row` + 8 do not see the key.
        template <int n>
        __device__ void hide(const Problem& p, const Words<Tile>&, int row, int j, int, float (&S)[n]) const {
            const int first_key = j * Tile::Bc + threadIdx.x % 4 * 2;
            Range keys[2];  // of this lane's columns
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                keys[r] = Rule::keys_of(p, row + 8 * r);
                keys[r] = {keys[r].begin - first_key, keys[r].end - first_key};
            }
#pragma unroll
            for (int c = 0; c < n; ++c) {
                if (column_of(c) < keys[row_of(c)].begin || column_of(c) >= keys[row_of(c)].end) S[c] = -inf;
            }
        }
    };

    // The backward pass
    /// The rows that see a key. Neither bound decreases from one key to the next.
    __device__ static Range rows_of(const Problem& p, const KeyTile& own, int key) {
        const int Nq = own.rows.end - own.rows.begin, Nk = own.keys.end - own.keys.begin;
        const Range rows = Rule::rows_of(p, Nq, Nk, key - own.keys.begin);
        return {rows.begin + own.rows.begin, rows.end + own.rows.begin};
    }

    /// The query tiles that see keys of a block: a range of those of each head
    template <int Br, int Bc>
    struct QueryTiles {
        Range by_first, by_last, tiles;  // rows that see the first key and the last one

        struct Queries {
            int head, row;
        };

        struct Visit {
            static constexpr int rows = Br;
            int i, head;
            Range tiles;
            __device__ Queries queries(int) const { return {head, i * Br}; }
            __device__ void next() {
                if (++i == tiles.end) i = tiles.begin, ++head;
            }
        };

        __device__ QueryTiles(const Problem& p, const KeyTile& own, const Lists&, const Shared&)
            : by_first(rows_of(p, own, own.first)), by_last(rows_of(p, own, own.last)) {
            const int begin = by_first.begin / Br;
            tiles = {begin, by_first.begin < by_last.end ? ceil_div(by_last.end, Br) : begin};
        }
        __device__ void complete(const Shared&) {}
        __device__ int count(const KeyTile& own) const { return (tiles.end - tiles.begin) * own.heads; }
        __device__ Visit visit(const KeyTile& own, int n) const {
            const int count = max(1, tiles.end - tiles.begin);
            return {tiles.begin + n % count, own.head * own.heads + n / count, tiles};
        }
        /// Not all rows see all keys.
        __device__ bool partial(const Problem& p, const KeyTile& own, const Queries& queries, int) const {
            return own.first + Bc > own.keys.end || queries.row < by_last.begin ||
                   min(p.Nq, queries.row + Br) > by_first.end;
        }
        __device__ Nothing fetch(const Problem&, const Queries&, bool, int, int, int) const { return {}; }
        /// The rows that see a key, counted from this one
        __device__ Range column(const Problem& p, const KeyTile& own, const Queries&, Nothing, int, int key,
                                int row) const {
            const Range seeing = rows_of(p, own, key);
            return {seeing.begin - row, key < own.keys.end ? seeing.end - row : 0};
        }
    };
};

/// The keys that a row sees by both rules.
template <class A, class B>
struct Both {
    __device__ static Range keys_of(const Problem& p, int row) {
        const Range a = A::keys_of(p, row), b = B::keys_of(p, row);
        return {max(a.begin, b.begin), min(a.end, b.end)};
    }
    __device__ static Range rows_of(const Problem& p, int Nq, int Nk, int key) {
        const Range a = A::rows_of(p, Nq, Nk, key), b = B::rows_of(p, Nq, Nk, key);
        return {max(a.begin, b.begin), min(a.end, b.end)};
    }
};
