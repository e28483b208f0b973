// A window as a type. Part of the namespace of the stages that name it.

/// Where the rows and keys of a block lie: in the sequence
struct InSequence {
    static int key_tiles(const Problem& p, int Bc) { return ceil_div(p.Nk, Bc); }
    /// Whether blocks may divide the query tiles of a key tile
    static bool divisible(const Problem&) { return true; }

    __device__ static KeyTile key_tile(const Problem& p, const TileIndex& n, int Bc) {
        const int first = n.tile * Bc;
        return {n.batch, n.head,      p.H / p.Hkv, n.tile, first, min(p.Nk, first + Bc) - 1,
                {0, p.Nq}, {0, p.Nk}};
    }
    __device__ static bool leaves_out(const KeyTile&) { return false; }
    template <class T, int d, class Panels>
    __device__ static bool store_rows(const Panels&, const Panels&, const Problem&, const KeyTile&, int) {
        return false;
    }
};

struct WindowMask {
    /// The query rows that see a key. Neither bound decreases from one key to the next.
    __device__ static Range rows_of(const Problem& p, const KeyTile& own, int key) {
        const int row = key - (own.keys.end - own.rows.end), left = p.window.left,
                  right = p.causal ? 0 : p.window.right;
        return {right < 0 ? own.rows.begin : max(own.rows.begin, row - right),
                left < 0 ? own.rows.end : min(own.rows.end, row + left + 1)};
    }

    using Lists = Nothing;
    using Shared = Nothing;
    static std::size_t lists_bytes(const Shape&, int) { return 0; }
    static bool uneven(const Problem& p) { return p.causal; }
    template <int Br>
    static Lists find_lists(const Problem&, int, std::byte*) {
        return {};
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

        __device__ static void prepare(const Problem&, const KeyTile&, Shared&) {}
        __device__ QueryTiles(const Problem& p, const KeyTile& own, const Lists&, const Shared&)
            : by_first(rows_of(p, own, own.first)), by_last(rows_of(p, own, own.last)) {
            const int begin = by_first.begin / Br;
            tiles = {begin, by_first.begin < by_last.end ? ceil_div(by_last.end, Br) : begin};
        }
        __device__ int count(const KeyTile& own) const { return (tiles.end - tiles.begin) * own.heads; }
        __device__ Visit visit(const KeyTile& own, int n) const {
            const int count = max(1, tiles.end - tiles.begin);
            return {tiles.begin + n % count, own.head * own.heads + n / count, tiles};
        }
        /// Not all rows see all keys.
        __device__ bool partial(const Problem& p, const KeyTile& own, const Queries& queries, int) const {
            return own.first + Bc > own.keys.end || queries.row < by_last.begin || min(p.Nq, queries.row + Br) > by_first.end;
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
