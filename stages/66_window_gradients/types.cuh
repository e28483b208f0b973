// What the backward pass asks of its types, and the simplest answers. Part of the namespace of the stages
// that include it.

struct TileIndex {
    int batch, head, tile;
};

/// The keys of a block, and the rows and keys that they belong to: those of a sequence,
/// or of a document in it
struct KeyTile {
    int batch, head, heads;   // key/value head, and how many query heads read it
    int number, first, last;  // of the tile among those of `keys`; of its keys
    Range rows, keys;
};

/// Something of each of a lane's two keys
template <class X>
struct OfKeys {
    X of[2];
};

/// What a type that needs no more of something gives for it
struct Nothing {};

/// A place: where the rows and the keys of a block lie. Here those of a head are one problem.
struct Dense {
    static int key_tiles(const Problem& p, int Bc) { return ceil_div(p.Nk, Bc); }
    /// Whether blocks may divide the query tiles of a key tile
    static bool divisible(const Problem&) { return true; }
    __device__ static KeyTile key_tile(const Problem& p, const TileIndex& n, int Bc) {
        const int first = n.tile * Bc, last = min(p.Nk, first + Bc) - 1;
        return {n.batch, n.head, p.H / p.Hkv, n.tile, first, last, {0, p.Nq}, {0, p.Nk}};
    }
    /// A number without a tile
    __device__ static bool leaves_out(const KeyTile&) { return false; }
    /// Stores 64 rows of dK or dV from this key on, if they share a box with rows that another block writes.
    template <class T, int d, class Panels>
    __device__ static bool store_rows(const Panels&, const View&, const Problem&, const KeyTile&, int) {
        return false;
    }
};

/// A mask that finds out nothing before the block of keys does, and stores nothing
struct NoLists {
    using Lists = Nothing;
    using Shared = Nothing;
    static std::size_t lists_bytes(const Shape&, int) { return 0; }
    template <int Br, int Bc>
    static Lists find_lists(const Problem&, int, std::byte*) {
        return {};
    }
};

/// A score: what becomes of an element of Q K^T, of head h, in two steps. In between, what is masked becomes
/// -inf. Exponents and L are in base 2.
struct Scaled {
    static constexpr bool has_slope = false;  // its derivative is not `scale` alone
    float scale;

    __device__ Scaled(const Problem& p, int, int) : scale(p.scale * log2_e) {}
    __device__ void move_to_keys(int) {}  // how far this lane's first key is past its first row's position
    __device__ float before_mask(float s, float L) const { return s * scale - L; }
    __device__ float after_mask(float x, float, int) const { return x; }  // the exponent, of its value c
};

/// Calls act(score) for what the score is in this problem: itself, or what any_score.cuh chooses.
template <class Score, class Act>
__device__ void choose(const Score& score, const Act& act) {
    act(score);
}

/// Dropout: which elements of P count, and by what their sum is less
struct NoDropout {
    static constexpr bool draws = false;  // by the warps that do not multiply
    template <int Br>
    struct Words {};
    struct Kept {
        __device__ float drop(float x, int) const { return x; }
    };

    template <int Br>
    __device__ static Kept read(const Words<Br>&, int, int) {
        return {};
    }
    __device__ static float share(const Problem&) { return 1.0f; }
    __device__ static float log2_share(const Problem&) { return 0.0f; }
};

/// The order in which blocks begin, and in which they add to a query tile's sums of dQ. Here as they come
struct AnyOrder {
    static constexpr bool last_first = false;  // of the key tiles of a head
    static constexpr bool has_turns = false;
    static constexpr int senders = 1;  // warps that take visits alternately to add their dQ
    struct Shared {};

    static std::size_t counter_bytes(const Shape&) { return 0; }
    /// Readies what is counted, for a row of a head.
    template <int d>
    __device__ static void reset(const Problem&, int, int, int) {}
    /// The block's number. All threads call it.
    template <int d>
    __device__ static unsigned number(const Problem&, Shared&) {
        return blockIdx.x;
    }
    /// How many of a block's query tiles, `count` over all heads, are before a part
    template <class QueryTiles>
    __device__ static int before(const Problem&, const KeyTile&, const QueryTiles&, int count, int part,
                                 int parts) {
        return count * part / parts;
    }
    /// How many heads' key tiles alternate
    template <class TileOrder>
    static int section(const Problem&, const TileOrder& order) {
        return order.section;
    }
    /// Finds out what the turns depend on, after the lists of the mask.
    template <int d, class Types>
    static void find_turns(const Problem&, int, const typename Types::Mask::Lists&) {}
    template <int d, class Visit>
    __device__ static void wait_turn(const Problem&, const KeyTile&, const Visit&) {}
    template <int d, class Visit>
    __device__ static void pass_turn(const Problem&, const KeyTile&, const Visit&) {}
    /// Whether dQ of these queries is added. Zeros need not be.
    template <class Queries>
    __device__ static bool adds(const Queries&) {
        return true;
    }
};

template <class M, class Where = Dense, class S = Scaled, class Drop = NoDropout, class O = AnyOrder>
struct Types {
    using Mask = M;
    using Place = Where;
    using Score = S;
    using Dropout = Drop;
    using Order = O;
};
