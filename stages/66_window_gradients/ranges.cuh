// A mask under which a range of rows sees each key, neither bound of which decreases from one key to the
// next. Part of the namespace of the stages that include it.

/// Rule::rows_of(p, Nq, Nk, key) gives the rows that see a key.
template <class Rule>
struct Ranges : NoLists {
    static bool longest_first(const Problem& p) { return p.causal; }

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
        /// The rows that see this key and the eighth after it, counted from this row
        __device__ OfKeys<Range> columns(const Problem& p, const KeyTile& own, const Queries&, Nothing,
                                         int key, int row) const {
            return {column(p, own, key, row), column(p, own, key + 8, row)};
        }
        __device__ Range column(const Problem& p, const KeyTile& own, int key, int row) const {
            const Range seeing = rows_of(p, own, key);
            return {seeing.begin - row, key < own.keys.end ? seeing.end - row : 0};
        }
    };
};
