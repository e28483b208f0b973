// The turns under a window, in packed documents or not. Part of the namespace of the stages that name it,
// after in_turns.cuh.

/// Turns follow from the mask: later documents come first, and in a document later key tiles.
struct FixedOrder : InTurns {
    /// Parts begin at the same query tile for all key tiles: where the parts of a key tile that all rows see
    /// would begin. So parts of all key tiles reach a query tile at about the same time. In a band, where all
    /// key tiles have equally many query tiles, each is divided evenly.
    template <class QueryTiles>
    __device__ static int before(const Problem& p, const KeyTile& own, const QueryTiles& see, int count,
                                 int part, int parts) {
        if (p.window.left >= 0 && (p.causal || p.window.right >= 0)) return count * part / parts;
        const int Tr = ceil_div(p.Nq, QueryTiles::Visit::rows), all = Tr * own.heads * part / parts,
                  of_head = see.tiles.end - see.tiles.begin;
        return all / Tr * of_head + min(max(0, all % Tr - see.tiles.begin), of_head);
    }

    template <int d, class Visit>
    __device__ static void wait_turn(const Problem& p, const KeyTile& own, const Visit& visit, int half = 0) {
        const auto queries = visit.queries(0);
        wait_for_count(added<d>(p, own.batch, queries.head, queries.row, half), turn<d>(p, own, queries.row));
    }

    template <int d, class Visit>
    __device__ static void pass_turn(const Problem& p, const KeyTile& own, const Visit& visit, int half = 0) {
        const auto queries = visit.queries(0);
        raise<d>(added<d>(p, own.batch, queries.head, queries.row, half));
    }

  private:
    /// How many key tiles come before this one in the sums of the query tile at `row`: later key tiles of its
    /// document, and all key tiles of later documents that have rows in the query tile.
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

    /// The key tiles of a document with these rows and keys that the query tile at `row` sees
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
