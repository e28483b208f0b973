// An order: blocks add dQ of a query tile in turns, as in stage 58, so that each run gives the same bits.
// Part of the namespace of the stages that name it.

/// From the last key tile that a query tile sees to the first. A counter for each query tile of each head
/// says how many key tiles have been added to its sums. One more counter gives blocks their numbers as they
/// begin, in the same order, so that no block waits for one that has not begun.
struct InTurns : AnyOrder {
    static constexpr bool last_first = true, has_turns = true;
    static constexpr int senders = 2;  // one waits for its turn while additions of the other are on their way
    struct Shared {
        int number;
        Mbarrier turn[groups], added[groups];  // at d = 256, where warpgroups add dQ themselves
    };

    static std::size_t counter_bytes(const Shape& s) { return counters(s) * sizeof(unsigned); }

    /// A section has so many heads that 8 key tiles of each run at once, so that few blocks wait for each
    /// other, if Q, dO and sums of dQ of the rows that see a key stay in half of the L2 cache: rows of a
    /// window, or of a document of mean length.
    static int section(const Problem& p, const TileOrder& order) {
        const int left = p.window.left, right = p.causal ? 0 : p.window.right;
        std::int64_t rows = ceil_div(p.Nq, std::max(p.documents.count, 1));
        if (left >= 0 && right >= 0) {
            rows = std::min(rows, std::int64_t{left} + right + 8 * tile_keys(p));
        }
        const std::int64_t bytes = 8 * rows * p.d * (p.H / p.Hkv), L2 = std::int64_t{p.sm_count} << 18;
        const std::int64_t most = std::min<std::int64_t>(p.sm_count / std::min(order.Tc, 8), L2 / bytes);
        return int(std::clamp<std::int64_t>(most, 1, order.heads));
    }

    /// The counter of the query tile that begins at this row. At d = 256 each half of the columns has one.
    template <int d>
    __device__ static unsigned* added(const Problem& p, int b, int h, int row, int half = 0) {
        return numbers<d>(p) + 1 + ((b * p.H + h) * tiles_of_head(p) + row / 64) * (d == 256 ? 2 : 1) + half;
    }

    /// `prepare` calls it for each row: no key tile has been added, and no block has a number.
    template <int d>
    __device__ static void reset(const Problem& p, int b, int h, int row) {
        for (int half = 0; half < (d == 256 ? 2 : 1) && row % 64 == 0; ++half) {
            store(added<d>(p, b, h, row, half), 0u);
        }
        if (b == 0 && h == 0 && row == 0) store(numbers<d>(p), 0u);
    }

    template <int d>
    __device__ static unsigned number(const Problem& p, Shared& shared) {
        if (threadIdx.x == 0) store(&shared.number, int(atomicInc(numbers<d>(p), ~0u)));
        __syncthreads();  // the block has its number
        return uniform(load(&shared.number));
    }

  protected:
    /// Tiles of 64 rows. A query tile of 128 rows uses the counter of the first of its two.
    __host__ __device__ static int tiles_of_head(const Shape& s) { return ceil_div(s.Nq, 128) * 2; }
    /// The counters of all heads and the one of blocks, rounded up to a multiple of 16 bytes
    __host__ __device__ static std::int64_t counters(const Shape& s) {
        return (std::int64_t{s.B} * s.H * tiles_of_head(s) * (s.d == 256 ? 2 : 1) + 4) / 4 * 4;
    }
    /// The counter that numbers blocks. It follows the sums, and all others follow it.
    template <int d>
    __device__ static unsigned* numbers(const Problem& p) {
        const std::int64_t rows = ceil_div(p.Nq, Tile<d>::Br) * Tile<d>::Br;
        return static_cast<unsigned*>(p.workspace) + rows * p.B * p.H * (d + 2);
    }
    /// Raises a counter once the additions are in memory.
    template <int d>
    __device__ static void raise(unsigned* count) {
        if constexpr (d != 256) bulk_wait<0>();
        raise_count(count);
    }
};
