// The order under masks whose key tiles have gaps. Part of the namespace of the stages that name it, after
// in_turns.cuh and the masks.

/// Writes 1 for each query tile of 64 rows that a block of `gradients` visits, as the mask itself tells that
/// block, and 0 for the others. One warp.
template <int d, class Types>
__global__ void __launch_bounds__(32)
    mark_visits(const Problem p, const typename Types::Mask::Lists lists, int tiles, std::uint16_t* turns) {
    using QueryTiles = typename Types::Mask::template QueryTiles<Tile<d>::Br, Tile<d>::Bc>;
    auto& shared = shared_memory<typename Types::Mask::Shared>();
    const TileIndex tile = {int(blockIdx.z), int(blockIdx.y), int(blockIdx.x)};
    const KeyTile own = Types::Place::key_tile(p, tile, Tile<d>::Bc);
    const auto turn = [&](int h, int i) {
        return turns + ((std::int64_t{own.batch} * p.H + h) * gridDim.x + own.number) * tiles + i;
    };
    for (int n = threadIdx.x; n < own.heads * tiles; n += 32) {
        store(turn(own.head * own.heads + n / tiles, n % tiles), std::uint16_t(0));
    }
    QueryTiles see(p, own, lists, shared);
    __syncthreads();  // zeros, and what the mask has written, are complete
    see.complete(shared);
    for (int n = threadIdx.x; n < see.count(own); n += 32) {
        const auto visit = see.visit(own, n);
        for (int part = 0; part < Tile<d>::Br / QueryTiles::Visit::rows; ++part) {
            const auto queries = visit.queries(part);
            if (Types::Order::adds(queries)) store(turn(queries.head, queries.row / 64), std::uint16_t(1));
        }
    }
}

/// Replaces each mark by the number of marks at later key tiles. A thread for each query tile.
__global__ void __launch_bounds__(row_threads)
    count_later(const Problem p, int Tc, int tiles, std::uint16_t* turns) {
    constexpr int batch = 8;  // key tiles whose marks are read at once
    const int i = blockIdx.x * row_threads + threadIdx.x;
    if (i >= tiles) return;
    std::uint16_t* turn = turns + (std::int64_t{blockIdx.z} * p.H + blockIdx.y) * Tc * tiles + i;
    unsigned later = 0;
    for (int end = Tc; end > 0; end -= batch) {
        unsigned visits[batch];
#pragma unroll
        for (int n = 0; n < batch; ++n) {
            visits[n] = n < end ? load(turn + std::int64_t{end - 1 - n} * tiles) : 0;
        }
#pragma unroll
        for (int n = 0; n < batch; ++n) {
            if (n < end) store(turn + std::int64_t{end - 1 - n} * tiles, std::uint16_t(later));
            later += visits[n];
        }
    }
}

/// Under column bounds and lists of tiles, two kernels find the turns of all visits.
struct ListedOrder : InTurns {
    /// Counters, and the turns (B, H, Tc, tiles_of_head)
    static std::size_t counter_bytes(const Shape& s) {
        const std::size_t all = std::size_t(s.B) * s.H * ceil_div(s.Nk, tile_keys(s)) * tiles_of_head(s);
        return InTurns::counter_bytes(s) + (all + 7) / 8 * 16;
    }

    template <int d, class Types>
    static void find_turns(const Problem& p, int Tc, const typename Types::Mask::Lists& lists) {
        const int tiles = tiles_of_head(p);
        std::byte* counters = static_cast<std::byte*>(p.workspace) + sums_bytes(p);
        auto* turns = reinterpret_cast<std::uint16_t*>(counters + InTurns::counter_bytes(p));
        launch(mark_visits<d, Types>, dim3(Tc, p.Hkv, p.B), 32, sizeof(typename Types::Mask::Shared), p,
               lists, tiles, turns);
        launch(count_later, dim3(ceil_div(tiles, row_threads), p.H, p.B), row_threads, 0, p, Tc, tiles,
               turns);
    }

    using AnyOrder::adds;
    /// An entry that only fills a slot has no query tile.
    __device__ static bool adds(const QueryTile& queries) {
        return queries.kind[0] != QueryTile::hidden || queries.kind[1] != QueryTile::hidden;
    }

    template <int d, class Visit>
    __device__ static void wait_turn(const Problem& p, const KeyTile& own, const Visit& visit, int half = 0) {
        for_each_tile<d>(visit, [&](int h, int row) {
            const auto* turns = reinterpret_cast<const std::uint16_t*>(numbers<d>(p) + counters(p));
            const std::int64_t head = (std::int64_t{own.batch} * p.H + h) * ceil_div(p.Nk, Tile<d>::Bc);
            const std::uint16_t* turn = turns + (head + own.number) * tiles_of_head(p) + row / 64;
            wait_for_count(added<d>(p, own.batch, h, row, half), load(turn));
        });
    }

    template <int d, class Visit>
    __device__ static void pass_turn(const Problem& p, const KeyTile& own, const Visit& visit, int half = 0) {
        for_each_tile<d>(visit, [&](int h, int row) { raise<d>(added<d>(p, own.batch, h, row, half)); });
    }

  private:
    /// Calls act(head, row) for the query tiles of a visit: one, or two of 64 rows in a slot of 128.
    template <int d, class Visit, class Act>
    __device__ static void for_each_tile(const Visit& visit, const Act& act) {
        for (int n = 0; n < Tile<d>::Br / Visit::rows; ++n) {
            const auto queries = visit.queries(n);
            if (adds(queries)) act(queries.head, queries.row);
        }
    }
};
