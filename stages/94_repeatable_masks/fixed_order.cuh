// An order: dQ of a query tile gets its parts in turns, as in stage 58, so that each run gives the same bits.
// Part of the namespace of the stages that name it.

/// Under a window, in packed documents or not: from the last key tile that sees a query tile to the first. A
/// counter for each query tile of each head says how many key tiles its sums have. One more gives blocks
/// their numbers as they begin, in the same order, so that none waits for one that has not begun.
struct FixedOrder {
    static constexpr bool last_first = true;
    struct Shared {
        int number;
    };

    static std::size_t counter_bytes(const Shape& s) {
        const std::size_t tiles = ceil_div(s.Nq, s.d == 64 ? Tile<64>::Br : Tile<128>::Br);
        return (s.B * s.H * tiles + 4) / 4 * 16;  // 4 bytes each, and what follows is aligned to 16
    }

    /// The counter of this row's query tile
    template <int d>
    __device__ static unsigned* added(const Problem& p, int b, int h, int row) {
        return numbers<d>(p) + 1 + (b * p.H + h) * ceil_div(p.Nq, Tile<d>::Br) + row / Tile<d>::Br;
    }

    /// A kernel before calls it for each row: no key tile has been added, and no block has a number.
    template <int d>
    __device__ static void reset(const Problem& p, int b, int h, int row) {
        if (row % Tile<d>::Br == 0) store(added<d>(p, b, h, row), 0u);
        if (b == 0 && h == 0 && row == 0) store(numbers<d>(p), 0u);
    }

    template <int d>
    __device__ static unsigned number(const Problem& p, Shared& shared) {
        if (threadIdx.x == 0) store(&shared.number, int(atomicInc(numbers<d>(p), ~0u)));
        __syncthreads();  // the block has its number
        return uniform(load(&shared.number));
    }

    /// Parts begin where those of a key tile would that all query tiles see, so that one of each key tile
    /// comes to a query tile at about the same time. In a band, where all key tiles have as many query tiles,
    /// each is divided evenly.
    template <class QueryTiles>
    __device__ static int before(const Problem& p, const KeyTile& own, const QueryTiles& see, int count,
                                 int part, int parts) {
        if (p.window.left >= 0 && (p.causal || p.window.right >= 0)) return count * part / parts;
        const int Tr = ceil_div(p.Nq, QueryTiles::Visit::rows), all = Tr * own.heads * part / parts,
                  of_head = see.tiles.end - see.tiles.begin;
        return all / Tr * of_head + min(max(0, all % Tr - see.tiles.begin), of_head);
    }

    template <int d, class Visit>
    __device__ static void wait_turn(const Problem& p, const KeyTile& own, const Visit& visit) {
        const auto queries = visit.queries(0);
        wait_for_count(added<d>(p, own.batch, queries.head, queries.row), turn<d>(p, own, queries.row));
    }

    /// When what has been added is in memory
    template <int d, class Visit>
    __device__ static void pass_turn(const Problem& p, const KeyTile& own, const Visit& visit) {
        const auto queries = visit.queries(0);
        bulk_wait<0>();
        raise_count(added<d>(p, own.batch, queries.head, queries.row));
    }

  private:
    /// The counter that numbers blocks. It follows the sums, and all others follow it.
    template <int d>
    __device__ static unsigned* numbers(const Problem& p) {
        const std::int64_t rows = ceil_div(p.Nq, Tile<d>::Br) * Tile<d>::Br;
        return static_cast<unsigned*>(p.workspace) + rows * p.B * p.H * (d + 2);
    }

    /// How many key tiles come before this one in the sums of the query tile at `row`: later ones of its
    /// document, and all of later documents that have rows in the tile.
    template <int d>
    __device__ static int turn(const Problem& p, const KeyTile& own, int row) {
        int count = key_tiles<d>(p, own.rows, own.keys, row).end - 1 - own.number;
        if (own.rows.end >= row + Tile<d>::Br) return count;
        const int* rows = p.documents.rows;
        int k = 0, end = p.documents.count;
        while (k < end) {  // the first document whose rows are past its own
            const int middle = (k + end) / 2;
            if (load(rows + middle) < own.rows.end) {
                k = middle + 1;
            } else {
                end = middle;
            }
        }
        for (; k < p.documents.count && load(rows + k) < row + Tile<d>::Br; ++k) {
            const int* keys = p.documents.keys + k;
            const Range tiles =
                key_tiles<d>(p, {load(rows + k), load(rows + k + 1)}, {load(keys), load(keys + 1)}, row);
            count += tiles.end - tiles.begin;
        }
        return count;
    }

    /// The key tiles, counted in a document with these rows and keys, that see the query tile at `row`
    template <int d>
    __device__ static Range key_tiles(Problem p, Range rows, Range keys, int row) {
        const Range seen = Range{row, row + Tile<d>::Br}.common(rows);
        if (seen.begin >= seen.end) return {0, 0};
        p.Nq = rows.end - rows.begin, p.Nk = keys.end - keys.begin;
        const int begin = Window::keys_of(p, seen.begin - rows.begin).begin,
                  end = Window::keys_of(p, seen.end - 1 - rows.begin).end;
        return {begin / Tile<d>::Bc, max(begin / Tile<d>::Bc, ceil_div(end, Tile<d>::Bc))};
    }
};
