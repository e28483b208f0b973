// The host's side of gradients.cuh: the order of blocks, how many share a key tile, and the launches.

/// The kernel of a key tile. wide_gradients.cuh has another one for d = 256.
template <class T, int d, class Types>
struct KeyTileKernel {
    static auto of_parts(int parts) {
        return parts > 1 ? gradients<T, d, Types, true> : gradients<T, d, Types, false>;
    }
    static constexpr std::size_t shared_bytes = sizeof(Shared<T, d, Types>);
};

/// Bc
int tile_keys(const Shape& s) {
    return s.d == 256 ? Tile<256>::Bc : Tile<128>::Bc;  // the latter at d = 64, too
}

std::size_t sums_bytes(const Shape& s) {
    const int Br = s.d == 64 ? Tile<64>::Br : Tile<128>::Br;
    return std::size_t(s.B) * s.H * ceil_div(s.Nq, Br) * Br * (s.d + 2) * sizeof(float);  // Sums
}

/// Under a mask a section has as many heads as have a key tile for each multiprocessor, if their Q, dO and
/// sums of dQ stay in the L2 cache: half a MB for each multiprocessor.
TileOrder order_of(const Shape& s, bool causal, int sm_count) {
    const int Tc = ceil_div(s.Nk, tile_keys(s)), heads = s.B * s.Hkv;
    const std::int64_t L2 = std::int64_t{sm_count} << 19,
                       bytes = std::int64_t{8} * s.Nq * s.d * (s.H / s.Hkv);
    const std::int64_t most = std::min<std::int64_t>(sm_count / Tc, L2 / bytes);
    return {Tc, heads, causal ? int(std::clamp<std::int64_t>(most, 1, heads)) : 1};
}

/// How many blocks share the query tiles of a key tile: as many as end soonest, by at least a hundredth. A
/// block goes to the SM that is idle first. Its start and end take as long as 4 tiles, or 7 with parts.
int parts_of(const Shape& s, bool causal, int sm_count) {
    const TileOrder order = order_of(s, causal, sm_count);
    const int Br = s.d == 64 ? Tile<64>::Br : Tile<128>::Br, Tr = ceil_div(s.Nq, Br), heads = s.H / s.Hkv;
    const int blocks = order.Tc * order.heads;
    const int most = s.d == 256 ? 1 : std::min(16, Tr * heads);  // wide_gradients.cuh makes no parts
    std::int64_t soonest = 0;
    int best = 1;
    for (int parts = 1; parts <= most && blocks < 8 * sm_count; ++parts) {  // eight rounds end evenly
        std::vector<std::int64_t> ends(sm_count);
        std::int64_t work = 0, end = 0;
        for (int n = 0; n < blocks * parts; ++n) {
            const int key = order.at(s, n / parts).tile * tile_keys(s), part = n % parts;
            const int tiles = heads * (Tr - (causal ? std::max(0, key + s.Nq - s.Nk) / Br : 0));
            const int own = tiles * (part + 1) / parts - tiles * part / parts + (parts == 1 ? 4 : 7);
            std::pop_heap(ends.begin(), ends.end(), std::greater());  // the soonest is last
            work += own, end = std::max(end, ends.back() += own);
            std::push_heap(ends.begin(), ends.end(), std::greater());
        }
        if (parts == 1 || end * 100 < soonest * 99) soonest = end, best = parts;
        if (work * 100 >= soonest * 99 * sm_count) break;  // more parts are more work
    }
    return best;
}

/// Sums, the counters of their order, what the mask has found, and the parts of dK and dV, under a causal
/// mask or without
template <class Types>
std::size_t workspace_bytes(const Shape& s, int sm_count) {
    const int parts = std::max(parts_of(s, false, sm_count), parts_of(s, true, sm_count));
    const std::size_t keys = std::size_t(s.B) * s.Hkv * ceil_div(s.Nk, tile_keys(s)) * tile_keys(s);
    return sums_bytes(s) + Types::Order::counter_bytes(s) + Types::Mask::lists_bytes(s, tile_keys(s)) +
           (parts == 1 ? 0 : parts * keys * 2 * s.d * sizeof(float));
}

template <class T, int d, class Types>
void launch_gradients(const Problem& p) {
    using Mask = typename Types::Mask;
    using Place = typename Types::Place;
    using Order = typename Types::Order;
    constexpr int Br = Tile<d>::Br, Bc = Tile<d>::Bc, box = Mask::template QueryTiles<Br, Bc>::Visit::rows;
    const int rows = ceil_div(p.Nq, Br) * Br;
    auto* workspace = static_cast<std::byte*>(p.workspace) + sums_bytes(p) + Order::counter_bytes(p);
    TileOrder order = order_of(p, Mask::longest_first(p) || Order::last_first, p.sm_count);
    order.Tc = Place::key_tiles(p, Tile<d>::Bc);
    order.section = Order::section(p, order);
    order.parts = Place::divisible(p) ? parts_of(p, p.causal, p.sm_count) : 1;
    order.dK = reinterpret_cast<float4*>(workspace + Mask::lists_bytes(p, Bc));
    order.dV = order.dK + std::int64_t{order.parts} * order.heads * order.Tc * Tile<d>::Bc * (d / 4);
    const Maps maps = {
        tensor_map<T, d>(p.Q, p.B, p.H, p.Nq, box),   tensor_map<T, d>(p.K, p.B, p.Hkv, p.Nk, 64),
        tensor_map<T, d>(p.V, p.B, p.Hkv, p.Nk, 64),  tensor_map<T, d>(p.dO, p.B, p.H, p.Nq, box),
        tensor_map<T, d>(p.dK, p.B, p.Hkv, p.Nk, 64), tensor_map<T, d>(p.dV, p.B, p.Hkv, p.Nk, 64)};
    launch(prepare<T, d, typename Types::Dropout, Order>,
           dim3(ceil_div(rows, row_threads / (d / 8)), p.H, p.B), row_threads, 0, p);
    if (p.dsinks != nullptr) launch(sum_sinks<d>, dim3(p.H), row_threads, row_threads / 8, p);
    const auto lists = Mask::template find_lists<Br, Bc>(p, order.Tc, workspace);
    Order::template find_turns<d, Types>(p, order.Tc, lists);
    using Kernel = KeyTileKernel<T, d, Types>;
    launch(Kernel::of_parts(order.parts), dim3(order.Tc * order.heads * order.parts), threads,
           Kernel::shared_bytes, p, maps, order, lists);
    launch(convert<T, d>, dim3(ceil_div(rows, row_threads / (d / 16)), p.H, p.B), row_threads, 0, p.dQ, p.Nq,
           rows, static_cast<const float4*>(p.workspace), 1, p.scale);
    if (order.parts == 1) return;
    const int keys = order.Tc * Tile<d>::Bc;
    const dim3 grid(ceil_div(keys, row_threads / (d / 16)), p.Hkv, p.B);
    launch(convert<T, d>, grid, row_threads, 0, p.dK, p.Nk, keys, order.dK, order.parts, p.scale);
    launch(convert<T, d>, grid, row_threads, 0, p.dV, p.Nk, keys, order.dV, order.parts, 1.0f);
}
