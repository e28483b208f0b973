// Column bounds (FlashMask, arXiv 2410.01359) as a mask. Part of the namespace of the stages that include it.

/// Query rows that do not see a key: its lower interval for k = 0, its upper one for k = 1. An empty one
/// begins at Nq and ends at 0, which changes no minimum of begins and no maximum of ends.
__device__ Range hidden_rows(const Problem& p, int b, int h, int key, int k) {
    const int heads = p.columns.heads, count = p.columns.count;
    if (count == 0) return {p.Nq, 0};
    const std::int64_t head = std::int64_t{b} * heads + h / (p.H / heads);
    const int* own = p.columns.bounds + (head * p.Nk + min(key, p.Nk - 1)) * count;  // the last key repeats
    Range rows = {k == 0 ? load(own) : 0, k == 0 ? p.Nq : 0};
    if (count == 2 && (k == 0) == p.causal) rows.end = load(own + 1);
    if (count == 4) rows = {load(own + 2 * k), load(own + 2 * k + 1)};
    return rows.begin < rows.end ? rows : Range{p.Nq, 0};
}

/// Query tiles in which no row sees a key of a key tile: two gaps, sorted and disjoint. And ranges of rows
/// that contain every row that an interval hides from some key.
struct alignas(32) Gaps {
    Range tiles[2], rows[2];

    __device__ int size() const { return tiles[0].end - tiles[0].begin + tiles[1].end - tiles[1].begin; }
    /// The n-th tile outside the gaps
    __device__ int step_over(int n) const {
        n += n < tiles[0].begin ? 0 : tiles[0].end - tiles[0].begin;
        return n + (n < tiles[1].begin ? 0 : tiles[1].end - tiles[1].begin);
    }
};

/// Finds the gaps of Bc keys in `tiles`, for the heads of a group. The first warp calls it.
template <int Br, int Bc>
__device__ void find_gaps(const Problem& p, const KeyTile& own, Range tiles, Gaps* to) {
    const int heads = own.heads;
    Range gaps[2], rows[2] = {{p.Nq, 0}, {p.Nq, 0}};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        Range all = {0, p.Nq}, &some = rows[k];
        for (int n = threadIdx.x; n < heads * Bc; n += 32) {
            const Range hidden = hidden_rows(p, own.batch, own.head * heads + n / Bc, own.first + n % Bc, k);
            all = all.common(hidden), some = some.hull(hidden);
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            const auto other = [&](int bound) { return __shfl_xor_sync(~0u, bound, lanes); };
            all = all.common({other(all.begin), other(all.end)});
            some = some.hull({other(some.begin), other(some.end)});
        }
        const int begin = min(tiles.end, max(tiles.begin, ceil_div(all.begin, Br)));
        gaps[k] = {begin, max(begin, all.end == p.Nq ? tiles.end : min(tiles.end, all.end / Br))};
    }
    const Range x = gaps[0], y = gaps[1], first = x.begin < y.begin ? x : y;
    const Range second = {max(first.end, max(x.begin, y.begin)), max(x.end, y.end)};
    if (threadIdx.x == 0) store(to, Gaps{{first, second}, {rows[0], rows[1]}});
}

/// A range of rows, and column bounds in addition
template <class Rule>
struct Columns : NoLists {
    using Shared = Gaps;
    static bool longest_first(const Problem& p) { return p.causal; }

    /// The query tiles that see keys of a block: a range with two gaps, of those of each head
    template <int Br, int Bc>
    struct QueryTiles {
        using OfRule = typename Ranges<Rule>::template QueryTiles<Br, Bc>;
        OfRule range;
        const Gaps* found;

        struct Queries {
            int head, row;
            Range hidden[2];
        };

        /// Tiles in a gap have no number.
        struct Visit {
            static constexpr int rows = Br;
            typename OfRule::Visit numbers;
            const Gaps* gaps;
            __device__ Queries queries(int) const {
                const Gaps now = load(gaps);
                return {numbers.head, now.step_over(numbers.i) * Br, {now.rows[0], now.rows[1]}};
            }
            __device__ void next() { numbers.next(); }
        };

        __device__ QueryTiles(const Problem& p, const KeyTile& own, const Lists&, Gaps& gaps)
            : range(p, own, {}, {}), found(&gaps) {
            if (threadIdx.x < 32) find_gaps<Br, Bc>(p, own, range.tiles, &gaps);
        }
        __device__ void complete(const Gaps& gaps) { range.tiles.end -= load(&gaps).size(); }
        __device__ int count(const KeyTile& own) const { return range.count(own); }
        __device__ Visit visit(const KeyTile& own, int n) const { return {range.visit(own, n), found}; }
        __device__ bool partial(const Problem& p, const KeyTile& own, const Queries& queries, int) const {
            const Range rows = {queries.row, min(p.Nq, queries.row + Br)};
            return range.partial(p, own, {queries.head, queries.row}, 0) || queries.hidden[0].meets(rows) ||
                   queries.hidden[1].meets(rows);
        }
        __device__ Nothing fetch(const Problem&, const Queries&, bool, int, int, int) const { return {}; }

        struct Seeing {
            Range rows, hidden[2];
            __device__ bool holds(int n) const {
                return rows.holds(n) && !hidden[0].holds(n) && !hidden[1].holds(n);
            }
        };
        __device__ OfKeys<Seeing> columns(const Problem& p, const KeyTile& own, const Queries& queries,
                                          Nothing, int key, int row) const {
            return {column(p, own, queries, key, row), column(p, own, queries, key + 8, row)};
        }
        __device__ Seeing column(const Problem& p, const KeyTile& own, const Queries& queries, int key,
                                 int row) const {
            Seeing all = {range.column(p, own, key, row), {}};
            for (int k = 0; k < 2; ++k) {
                const Range hidden = hidden_rows(p, own.batch, queries.head, key, k);
                all.hidden[k] = {hidden.begin - row, hidden.end - row};
            }
            return all;
        }
    };
};
