// Packed documents: a place, where the rows and keys of a block lie. Part of the namespace of the stages
// that name it.

/// Key tiles begin where their documents do. Query tiles stay on the grid of the sequence: a block masks the
/// rows of other documents, and adds zeros to their dQ.
struct InDocuments {
    /// The numbers of document k begin with keys[k] / Bc + k: that leaves room for all of its tiles, wherever
    /// it begins.
    static int key_tiles(const Problem& p, int Bc) {
        return p.documents.count > 0 ? p.Nk / Bc + p.documents.count : ceil_div(p.Nk, Bc);
    }
    /// Parts have no room for so many key tiles.
    static bool divisible(const Problem& p) { return p.documents.count == 0; }

    __device__ static KeyTile key_tile(const Problem& p, const TileIndex& n, int Bc) {
        if (p.documents.count == 0) return Dense::key_tile(p, n, Bc);
        int k = 0, end = p.documents.count;
        while (k + 1 < end) {  // k's first number is at most this one, that of `end` is larger
            const int middle = (k + end) / 2;
            (load(p.documents.keys + middle) / Bc + middle <= n.tile ? k : end) = middle;
        }
        const int* bounds = p.documents.keys + k;
        const Range rows = {load(p.documents.rows + k), load(p.documents.rows + k + 1)},
                    keys = {load(bounds), load(bounds + 1)};
        const int number = n.tile - (keys.begin / Bc + k), first = keys.begin + number * Bc;
        return {n.batch, n.head, p.H / p.Hkv, number, first, min(keys.end, first + Bc) - 1, rows, keys};
    }
    /// A number that the document does not need
    __device__ static bool leaves_out(const KeyTile& own) { return own.first > own.last; }

    /// Stores this warpgroup's dK or dV to X, by threads, if a box would reach into the next document, whose
    /// keys another block writes.
    template <class T, int d>
    __device__ static bool store_rows(const T (&tile)[d / 64][64][64], const View& X, const Problem& p,
                                      const KeyTile& own, int first_key) {
        const int rows = own.keys.end - first_key;
        if (rows >= 64 || own.keys.end == p.Nk) return false;
        T* to = matrix<T>(X, own.batch, own.head) + first_key * X.row;
#pragma unroll 1  // rare: short code matters more than its speed
        for (int n = threadIdx.x % 128; n < rows * (d / 8); n += 128) {
            const int r = n / (d / 8), panel = n / 8 % (d / 64), column = n % 8 * 8;
            store(reinterpret_cast<uint4*>(to + r * X.row + 64 * panel + column),
                  load(reinterpret_cast<const uint4*>(&tile[panel][r][column ^ r % 8 * 8])));
        }
        return true;
    }
};
