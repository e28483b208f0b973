// What the forward and the backward pass ask of their types, and the simplest answers. Part of the namespace
// of the stages that include it.

struct alignas(16) TileIndex {
    int batch, head, tile;  // of the rows of its place: 0, 1, ...
    int visits = 0;         // to key tiles, where the mask counts them beforehand
};

/// A place: where the rows and the keys of a query tile lie. Here those of a head are one problem.
struct Dense {
    static constexpr int first_row = 0, first_key = 0;
    __device__ int entry(int batch) const { return batch; }                    // of dropout's counters
    static int tiles(const Problem& p, int Br) { return ceil_div(p.Nq, Br); }  // numbers for those of a head
    __device__ bool find(const Problem&, int, TileIndex&) { return true; }     // false: a number without tile
    __device__ const Problem& problem_of(const Problem& p) const { return p; }
    /// Whether a box of 16 rows from this one on reaches into rows that another block writes
    __device__ bool shares_box(const Problem&, int) const { return false; }
};

/// A score: what becomes of an element of Q K^T. Exponents and m are in base 2.
struct Scaled {
    float scale;

    __device__ Scaled(const Problem& p, int, int) : scale(p.scale * log2_e) {}
    __device__ void move_to(const Problem&, int, int) {}  // a lane's first row, and its first key
    __device__ float exponent(float s, float m, int) const { return s * scale - m; }  // of its value c
    template <int n>
    __device__ void correct(float*) const {}  // the lane's exponents of a piece, where that takes a branch
};

/// Calls act(score) for what the score is in this problem: itself, or what any_score.cuh chooses.
template <class Score, class Act>
__device__ void choose(const Score& score, const Act& act) {
    act(score);
}

/// A sink: what a row's sum has in addition at its end. Returns the factor of O.
struct NoSink {
    __device__ static float add(const Problem&, int, float&, float&) { return 1.0f; }
};

/// Dropout: which elements of P count. Its warps, the last before those that multiply, write words to V's
/// slot.
struct NoDropout {
    template <int d>
    static constexpr int warpgroups = 1;  // that do not multiply
    template <int d>
    static constexpr int warps = 0;
    template <int Br, int Bc>
    struct Words {};

    template <class W, int n>
    __device__ static void drop(const W&, int, std::uint32_t (&)[n]) {}
    __device__ static float inverse(const Problem&, float l) { return divide(1.0f, l); }
};

/// The types of a kernel. A mask says which key tiles are visited, which of them need a test, and tests them:
/// see ranges.cuh.
template <class M, class Where = Dense, class S = Scaled, class Begin = NoSink, class Drop = NoDropout>
struct Types {
    using Mask = M;
    using Place = Where;
    using Score = S;
    using Sink = Begin;
    using Dropout = Drop;
};
