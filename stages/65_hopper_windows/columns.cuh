// Column bounds: a mask by intervals of rows for each key, in addition to a rule. A kernel before finds the
// intervals and what those of a key tile have in common; the producer classifies key tiles by them, a lane
// each. Part of the namespace of the stages that include it.

/// Query rows that see the keys of a tile: for each key, those of interval 0 except its gaps, intervals 1 and
/// 2. An empty interval begins at Nq and ends at 0: it does not extend a hull, and makes a common part
/// empty.
template <int Bc>
struct alignas(16) KeyTile {
    Range rows[3][Bc];
    struct alignas(16) {
        Range hull, common;
    } all[3];  // of the intervals of all keys
};

std::size_t key_tile_bytes(const Shape& s) {
    const int Bc = s.d <= 128 ? 128 : 64;
    return std::size_t(s.B) * s.H * ceil_div(s.Nk, Bc) *
           (Bc == 128 ? sizeof(KeyTile<128>) : sizeof(KeyTile<64>));
}

/// In the workspace: (B, heads that have bounds, Tc).
template <int Bc>
__device__ KeyTile<Bc>* key_tiles_of(const Problem& p, int b, int h) {
    const int heads = max(1, p.columns.heads), Tc = ceil_div(p.Nk, Bc);
    return static_cast<KeyTile<Bc>*>(p.workspace) + (std::int64_t{b} * heads + h / (p.H / heads)) * Tc;
}

/// Interval k of a key: of the rows that see it by the rule. Hidden rows at either end of interval 0 shorten
/// it; others are a gap.
template <class Rule>
__device__ Range rows_of(const Problem& p, int b, int head, int key, int k) {
    const Range none = {p.Nq, 0};
    if (key >= p.Nk) return none;
    const int count = p.columns.count;
    const int* own = p.columns.bounds + ((std::int64_t{b} * p.columns.heads + head) * p.Nk + key) * count;
    Range seen = Rule::rows_of(p, p.Nq, p.Nk, key);
    Range lower = {count > 0 ? load(own) : p.Nq, p.Nq}, upper = {0, 0};
    if (count == 2) (p.causal ? lower : upper).end = load(own + 1);
    if (count == 4) lower.end = load(own + 1), upper = {load(own + 2), load(own + 3)};
    for (Range* gap : {&lower, &upper}) {
        if (gap->begin <= seen.begin) seen.begin = max(seen.begin, gap->end);
        if (gap->end >= seen.end) seen.end = min(seen.end, gap->begin);
        if (gap->begin <= seen.begin || gap->begin >= gap->end || gap->end >= seen.end) *gap = none;
    }
    if (k > 0) return k == 1 ? lower : upper;
    return seen.begin < seen.end ? seen : none;
}

/// Warp k finds interval k of the keys of tile blockIdx.x.
template <class Rule, int Bc>
__global__ void __launch_bounds__(96) find_rows(const Problem p) {
    const int j = blockIdx.x, head = blockIdx.y, b = blockIdx.z, k = threadIdx.x / 32;
    KeyTile<Bc>* tile = key_tiles_of<Bc>(p, b, head * (p.H / gridDim.y)) + j;
    Range hull = {p.Nq, 0}, common = {0, p.Nq};
    for (int n = threadIdx.x % 32; n < Bc; n += 32) {
        const Range rows = rows_of<Rule>(p, b, head, j * Bc + n, k);
        store(&tile->rows[k][n], rows);
        hull = hull.hull(rows), common = common.common(rows);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const auto other = [&](int bound) { return __shfl_xor_sync(~0u, bound, lanes); };
        hull = hull.hull({other(hull.begin), other(hull.end)});
        common = common.common({other(common.begin), other(common.end)});
    }
    if (threadIdx.x % 32 == 0) store(&tile->all[k], {hull, common});
}

/// Starts it for all key tiles. Returns the workspace after them.
template <class Rule, int Bc>
void* find_rows_of_keys(const Problem& p) {
    launch(find_rows<Rule, Bc>, dim3(ceil_div(p.Nk, Bc), std::max(1, p.columns.heads), p.B), 96, 0, p);
    return static_cast<char*>(p.workspace) + key_tile_bytes(p);
}

template <class Rule>
struct Columns {
    static constexpr int most_groups = 2, lanes = 32;
    static constexpr bool reads_words = true, hides_by_words = true;
    template <int Bc>
    static constexpr int pieces = 1;
    template <class Tile>
    struct Words {
        alignas(16) Range rows[Tile::Bc];  // interval 0 of the keys, if the tile is cut
        int visit;                         // the number of K's key tile * classes + its class
    };

    /// Of a key tile that a block visits: whether some of its rows may be outside interval 0, or in a gap.
    enum { cut = 1, gaps = 2, classes = 4 };

    static bool longest_first(const Problem& p) { return p.causal; }

    /// All lanes: calls act(visit) for each key tile that some row may see.
    template <class Tile, class Act>
    __device__ static void for_each(const Problem& p, TileIndex tile, int lane, Act act) {
        const int first_row = tile.tile * Tile::Br;
        const Range rows = {first_row, min(p.Nq, first_row + Tile::Br)};
        const KeyTile<Tile::Bc>* of_keys = key_tiles_of<Tile::Bc>(p, tile.batch, tile.head);
        const int end = ceil_div(Rule::keys_of(p, rows.end - 1).end, Tile::Bc);
        for (int first = Rule::keys_of(p, rows.begin).begin / Tile::Bc; first < end; first += 32) {
            const int own = min(first + lane, end - 1);  // a lane classifies one of 32 key tiles
            const auto seen = load(&of_keys[own].all[0]);
            const auto lower = load(&of_keys[own].all[1]), upper = load(&of_keys[own].all[2]);
            const int visit = own * classes + (seen.common.holds(rows) ? 0 : cut) +
                              (lower.hull.meets(rows) || upper.hull.meets(rows) ? gaps : 0);
            const bool hidden =
                !seen.hull.meets(rows) || lower.common.holds(rows) || upper.common.holds(rows);
            unsigned left = __ballot_sync(~0u, first + lane < end && !hidden);
            for (; left != 0; left &= left - 1) act(__shfl_sync(~0u, visit, __ffs(left) - 1));
        }
    }

    template <class Tile>
    __device__ static int count(const Problem& p, TileIndex tile, int lane) {
        int visits = 0;
        for_each<Tile>(p, tile, lane, [&](int) { visits += 1; });
        return visits;
    }

    template <class Tile>
    struct Visit {
        const KeyTile<Tile::Bc>* of_keys;
        int visit;

        __device__ int first_key(int) const { return visit / classes * Tile::Bc; }
        __device__ int write(Words<Tile>& words) const {
            store(&words.visit, visit);
            return (visit & cut) != 0 ? sizeof words.rows : 0;
        }
        __device__ void copy(Words<Tile>& words, int bytes, Mbarrier* full) const {
            if (bytes > 0) bulk_load(words.rows, of_keys[visit / classes].rows[0], bytes, full);
        }
    };
    template <class Tile, class Act>
    __device__ static void for_each_visit(const Problem& p, TileIndex tile, int lane, Act act) {
        const KeyTile<Tile::Bc>* of_keys = key_tiles_of<Tile::Bc>(p, tile.batch, tile.head);
        for_each<Tile>(p, tile, lane, [&](int visit) { act(Visit<Tile>{of_keys, visit}); });
    }

    template <class Tile>
    struct Visits {
        Range own, all;
        int batch, head, visit;

        __device__ Visits(const Problem& p, TileIndex tile, int g) : batch(tile.batch), head(tile.head) {
            all = {0, tile.visits};
            own = {0, tile.tile * Tile::Br + 64 * g < p.Nq ? tile.visits : 0};
        }
        __device__ void read(const Words<Tile>& words, int) { visit = load(&words.visit); }
        __device__ void prefetch(const Problem&, int) {}
        __device__ int first_key(int, int n) const { return visit / classes * Tile::Bc + 64 * n; }
        __device__ bool is_partial(int, int) const { return visit % classes != 0; }

        template <int n>
        __device__ void hide(const Problem& p, const Words<Tile>& words, int row, int, int,
                             float (&S)[n]) const {
            if (visit & cut) hide(words.rows, false, row, S);
            if (visit & gaps) {
                const KeyTile<Tile::Bc>& of_keys = key_tiles_of<Tile::Bc>(p, batch, head)[visit / classes];
#pragma unroll 1  // rare: short code matters more than its speed
                for (int k = 1; k < 3; ++k) hide(of_keys.rows[k], true, row, S);
            }
        }
        /// Exponents become -inf where the row is inside that interval of the key, or where it is not.
        template <int n>
        __device__ static void hide(const Range* of_keys, bool inside, int first_row, float (&S)[n]) {
#pragma unroll
            for (int c = 0; c < n; ++c) {
                const Range rows = load(&of_keys[threadIdx.x % 4 * 2 + column_of(c)]);
                const int row = first_row + 8 * row_of(c);
                if ((row >= rows.begin && row < rows.end) == inside) S[c] = -inf;
            }
        }
    };
};
