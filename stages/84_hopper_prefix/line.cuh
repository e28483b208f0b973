// How blocks divide the keys of a cache: all query tiles in one line, of which each block takes an equal
// share. Part of the namespace of the stages that include it.

/// Row r of the queries of key/value head h_kv, request by request: query i of head h of request b. The heads
/// of its group alternate.
struct PackedRow {
    int b, h, i;

    __device__ PackedRow(const Problem& p, int h_kv, int r) {
        const int group = p.H / p.Hkv;
        b = r / group / p.Nq;
        h = h_kv * group + r % group;
        i = r / group % p.Nq;
    }
    static __host__ __device__ int count(const Shape& s) { return s.H / s.Hkv * s.Nq; }  // of a request
};

/// A mask: which keys row i of a request sees, whose keys are all Nk.
struct Causal {
    __device__ static Range keys_of(const Problem& p, int i) {
        return {0, p.causal ? min(p.Nk, i + p.Nk - p.Nq + 1) : p.Nk};
    }
    static int most_keys(const Problem& p) { return p.Nk; }  // that the rows of a request see
};

/// The keys that row i of a request of Nk keys sees
template <class Mask>
__device__ Range keys_of_row(Problem p, int Nk, int i) {
    p.Nk = Nk;
    return Mask::keys_of(p, i);
}

__device__ int keys_of_request(const Problem& p, int b) {
    return p.lengths == nullptr ? p.Nk : load(p.lengths + b);
}

/// The query tile of the rows from first_row on of head h_kv, as many as a tile has, with these keys of a
/// request, in Tc tiles, which begin at `begin` in the line.
struct QueryTile {
    int request, h_kv, first_row;  // request -1: the rows of all, and the keys of their prefix
    Range keys;
    int Tc, begin;
};

/// All query tiles in one line: first those of the prefix, whose rows are those of all requests, and then
/// request by request those of their own keys; each head by head. Each has `start` places, for what it costs
/// a block to begin and end with one, and then a place for each key tile. Each block takes an equal share.
template <class Tile, class Mask>
struct Line {
    static constexpr int Br = Tile::Br, Bc = Tile::Bc;
    int start = 0, Tr, prefix_Tr;  // query tiles of a head: of a request's own keys, of the prefix
    int total, blocks;             // all places, and the blocks that take some of them

    __device__ Line(const Problem& p, int most_blocks)
        : Tr(ceil_div(PackedRow::count(p), Br)), prefix_Tr(ceil_div(p.B * PackedRow::count(p), Br)) {
        total = before(p, p.B + 1);
        blocks = min(most_blocks, total);
        if (total < 16 * blocks) return;  // short shares end where query tiles do
        start = 2;
        total = before(p, p.B + 1);
    }
    /// The first place of a block's share: total block / blocks. Blocks beyond have none.
    __device__ int share(int block) const {
        block = min(block, blocks);
        return total / blocks * block + total % blocks * block / blocks;
    }

    /// Keys of the n-th list: 0 is the prefix, n the own keys of request n - 1, from the first that its first
    /// row sees.
    __device__ static Range keys(const Problem& p, int n) {
        if (n == 0) return {0, p.prefix};
        const int Nk = keys_of_request(p, n - 1);
        return {max(p.prefix, keys_of_row<Mask>(p, Nk, 0).begin), Nk};
    }
    /// Its key tiles for each query tile. A request without keys still has one, for a block to write its
    /// rows.
    __device__ static int key_tiles(const Problem& p, int n) {
        const Range own = keys(p, n);
        return max(n == 0 ? 0 : 1, ceil_div(own.end - own.begin, Bc));
    }
    /// Its places in the line
    __device__ int places(const Problem& p, int n) const {
        const int Tc = key_tiles(p, n);
        return Tc == 0 ? 0 : p.Hkv * (n == 0 ? prefix_Tr : Tr) * (start + Tc);
    }
    /// The places of all lists before the n-th. A lane counts those of one at a time.
    __device__ int before(const Problem& p, int n) const {
        int sum = 0;
        for (int m = threadIdx.x % 32; m < n; m += 32) sum += places(p, m);
        for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
        return sum;
    }

    /// Query tile r of the n-th list, whose places begin at `begin`
    __device__ QueryTile tile(const Problem& p, int n, int begin, int r) const {
        const int rows = n == 0 ? prefix_Tr : Tr, Tc = key_tiles(p, n);
        const int first = max(0, n - 1) * PackedRow::count(p) + r % rows * Br;
        return {n - 1, r / rows, first, keys(p, n), Tc, begin + r * (start + Tc) + start};
    }
    /// The query tile that place t of the line belongs to
    __device__ QueryTile find(const Problem& p, int t) const {
        const int lane = threadIdx.x % 32;
        int begin = 0;
        for (int first = 0;; first += 32) {
            const int own = first + lane <= p.B ? places(p, first + lane) : 0;
            int end = begin + own;
            for (int n = 1; n < 32; n *= 2) {
                const int before = __shfl_up_sync(~0u, end, n) - begin;
                if (lane >= n) end += before;
            }
            const unsigned later = __ballot_sync(~0u, end > t);
            if (later != 0) {
                const int n = __ffs(later) - 1, list = first + n;
                begin = __shfl_sync(~0u, end - own, n);
                return tile(p, list, begin, (t - begin) / (start + key_tiles(p, list)));
            }
            begin = __shfl_sync(~0u, end, 31);
        }
    }
};

/// Rows of the workspace: O (rows, d), not divided by l, and m and l (rows, 2). A block has Br rows for a
/// query tile that began in another's share, and Br for one that ends in another's. With a prefix a query
/// tile of one block is a part, too; its rows lie in the order of all rows, those of the prefix's pass first.
template <class Tile>
struct Workspace {
    float *O, *m_l;

    static __host__ __device__ std::int64_t rows(const Shape& s, int most_blocks) {
        return std::int64_t{2} * most_blocks * Tile::Br + std::int64_t{2} * s.B * s.H * s.Nq;
    }
    __device__ Workspace(const Problem& p, int most_blocks)
        : O(static_cast<float*>(p.workspace)), m_l(O + rows(p, most_blocks) * p.d) {}
};

/// The parts of a query tile
struct Parts {
    int Br, block, splits, whole;  // the first of the blocks, their number, the row if there is only one

    template <class Line>
    __device__ Parts(const Problem& p, int most_blocks, const Line& line, const QueryTile& tile)
        : Br(Line::Br) {
        const std::int64_t t = tile.begin, all = line.total;
        block = ((t + 1) * line.blocks - 1) / all;
        splits = ((t + tile.Tc) * line.blocks - 1) / all - block + 1;
        whole = 2 * most_blocks * Br + tile.first_row +
                ((tile.request < 0 ? 0 : p.Hkv) + tile.h_kv) * p.B * PackedRow::count(p);
    }
    /// Row k of part s
    __device__ int row(int s, int k) const {
        return splits == 1 ? whole + k : (2 * (block + s) + (s == 0)) * Br + k;
    }
};
