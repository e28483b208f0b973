// Lists of tiles as a mask: any mask of tiles of 64 x 64. Part of the namespace of the stages that include
// it.

/// An entry of a block's transposed list: a tile of 64 query rows. For each 64 keys of the block it is full,
/// hidden, or the partial tile with this number.
struct alignas(16) QueryTile {
    static constexpr int full = -1, hidden = -2;
    int head, row, kind[2];  // query head, first row
};

/// Sets the kinds of query tile r of all lists for `pieces` key tiles from j on, if this list has them
template <int pieces>
__device__ void look_up(const TileList& list, std::int64_t r, int j, bool partial, int (&kind)[groups]) {
    const int end = load(list.first + r + 1);
    int n = load(list.first + r);
    for (int past = end; n < past;) {  // entries before n are less than j, those from `past` on are not
        const int middle = (n + past) / 2;
        load(list.tiles + middle) < j ? n = middle + 1 : past = middle;
    }
    for (int g = 0; g < pieces; ++g) {
        if (n < end && load(list.tiles + n) == j + g) kind[g] = partial ? n : QueryTile::full, ++n;
    }
}

/// The same for query tile i of head h, by both lists
template <int pieces>
__device__ void classify(const Problem& p, int b, int h, int i, int j, int (&kind)[groups]) {
    const int head = b % p.tiles.batches * p.tiles.heads + h / (p.H / p.tiles.heads);
    const std::int64_t r = std::int64_t{head} * ceil_div(p.Nq, 64) + i;
    look_up<pieces>(p.tiles.full, r, j, false, kind);
    look_up<pieces>(p.tiles.partial, r, j, true, kind);
}

/// The most entries of a block's list: all query tiles of a group of heads, and one that fills the last slot
__host__ __device__ int most_visits(const Shape& p) {
    return p.H / p.Hkv * ceil_div(p.Nq, 64) + 1;
}

/// Which of 16 keys from first_key on a query row sees, in a tile that is not full: a bit each
__device__ unsigned visible_keys(const Problem& p, int kind, int row, int first_key) {
    if (kind == QueryTile::hidden) return 0;
    const std::uint64_t* bits = p.tiles.bits + std::int64_t{kind} * 64 + row % 64;
    return load(reinterpret_cast<const std::uint16_t*>(bits) + first_key % 64 / 16);
}

/// What a kernel finds out before: the transposed lists of all blocks
struct TransposedLists {
    QueryTile* tiles;  // (B, Hkv, Tc, most_visits)
    int* slots;        // (B, Hkv, Tc): how many slots of the pipeline they fill
    int Tc;
};

/// Writes the transposed list of a block of `gradients`. One warp.
template <int tiles, int pieces>
__global__ void __launch_bounds__(32) find_visits(const Problem p, const TransposedLists lists) {
    const int j = blockIdx.x, h_kv = blockIdx.y, b = blockIdx.z, lane = threadIdx.x;
    const int list = (b * p.Hkv + h_kv) * lists.Tc + j, heads = p.H / p.Hkv, Tr = ceil_div(p.Nq, 64);
    QueryTile* to = lists.tiles + std::int64_t{list} * most_visits(p);
    int count = 0;
    for (int first = 0; first < heads * Tr; first += 32) {  // a lane classifies one query tile of 32
        const int n = first + lane;
        QueryTile visit = {h_kv * heads + n / Tr, n % Tr * 64, {QueryTile::hidden, QueryTile::hidden}};
        if (n < heads * Tr) classify<pieces>(p, b, visit.head, n % Tr, pieces * j, visit.kind);
        unsigned seen =
            __ballot_sync(~0u, visit.kind[0] != QueryTile::hidden || visit.kind[1] != QueryTile::hidden);
        for (; seen != 0; seen &= seen - 1, ++count) {
            if (lane == __ffs(seen) - 1) store(to + count, visit);
        }
    }
    if (lane > 0) return;
    store(to + count,
          QueryTile{h_kv * heads, 0, {QueryTile::hidden, QueryTile::hidden}});  // if half a slot is left
    store(lists.slots + list, ceil_div(count, tiles));
}

/// Lists of full and partial tiles
struct Tiles {
    using Lists = TransposedLists;
    using Shared = Nothing;
    static bool longest_first(const Problem& p) { return p.causal || p.tiles.heads > 0; }
    static std::int64_t blocks(const Shape& s, int Tc) { return std::int64_t{s.B} * s.Hkv * Tc; }
    static std::size_t lists_bytes(const Shape& s, int Bc) {
        const std::size_t all = blocks(s, ceil_div(s.Nk, Bc));
        return all * most_visits(s) * sizeof(QueryTile) + (all + 3) / 4 * 16;  // and slots
    }
    template <int Br, int Bc>
    static Lists find_lists(const Problem& p, int Tc, std::byte* workspace) {
        auto* tiles = reinterpret_cast<QueryTile*>(workspace);
        const Lists lists = {tiles, reinterpret_cast<int*>(tiles + blocks(p, Tc) * most_visits(p)), Tc};
        launch(find_visits<Br / 64, Bc / 64>, dim3(Tc, p.Hkv, p.B), 32, 0, p, lists);
        return lists;
    }

    /// The transposed list of a block, of all heads. Br rows, a slot, are of one tile or of two.
    template <int Br, int Bc>
    struct QueryTiles {
        const QueryTile* tiles;
        int slots;
        using Queries = QueryTile;

        struct Visit {
            static constexpr int rows = 64;
            const QueryTile* slot;
            __device__ Queries queries(int n) const { return load(slot + n); }
            __device__ void next() { slot += Br / 64; }
        };

        __device__ QueryTiles(const Problem& p, const KeyTile& own, const Lists& lists, const Shared&) {
            const int list = (own.batch * p.Hkv + own.head) * lists.Tc + own.number;
            tiles = lists.tiles + std::int64_t{list} * most_visits(p);
            slots = load(lists.slots + list);
        }
        __device__ void complete(const Shared&) {}
        __device__ int count(const KeyTile&) const { return slots; }
        __device__ Visit visit(const KeyTile&, int n) const { return {tiles + n * (Br / 64)}; }
        __device__ bool partial(const Problem&, const KeyTile&, const Queries& queries, int G) const {
            return queries.kind[G] != QueryTile::full;
        }
        /// Which of this warp's 16 keys two rows see that the lane looks up, 16 bits each: the other lanes
        /// need them. `columns` waits for them, when S is complete.
        __device__ std::uint32_t fetch(const Problem& p, const Queries& queries, bool masked, int G, int row,
                                       int first_key) const {
            std::uint32_t keys = 0;
#pragma unroll
            for (int r = 0; r < 2 && masked; ++r) {
                const int own_row = row + threadIdx.x % 32 * 2 + r;
                keys |= visible_keys(p, queries.kind[G], own_row, first_key) << 16 * r;
            }
            return keys;
        }

        /// A byte for rows 8 n, and from bit 16 on one for rows 8 n + 1, for n = 0 to 7
        struct Seeing {
            std::uint32_t rows;
            __device__ bool holds(int n) const { return rows >> (n % 8 * 16 + n / 8) & 1; }
        };
        __device__ OfKeys<Seeing> columns(const Problem&, const KeyTile&, const Queries&, std::uint32_t keys,
                                          int, int) const {
            const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
            std::uint32_t seen = 0;  // of key g, and in the upper byte of each half of key g + 8
#pragma unroll
            for (int n = 0; n < 8; ++n) seen |= (__shfl_sync(~0u, keys, 4 * n + t) >> g & 0x01010101) << n;
            return {{{seen}, {seen >> 8}}};
        }
    };
};
