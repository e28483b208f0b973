// Stage 56: persistent gradients. A block stays on its multiprocessor, and takes parts, which are key tiles
// or shares of one, from a counter. The copies of its next part begin before it has ended this one: of Q and
// dO always, of K and V where two buffers fit. There dK and dV leave during the next part.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/56_persistent_gradients/gradients.cuh"

/// Into how many parts the query tiles of a key tile are divided: as many as end soonest, by at least a
/// hundredth. The SM that is idle first takes a part. As in 55 its start and end count 4 tiles, or 7.
int parts_of(const Shape& s, bool causal, int sm_count) {
    const TileOrder order = order_of(s, causal, sm_count);
    const int Br = s.d == 64 ? Tile<64>::Br : Tile<128>::Br, Tr = ceil_div(s.Nq, Br), heads = s.H / s.Hkv;
    const int blocks = order.Tc * order.heads, most = std::min(16, Tr * heads);
    std::int64_t soonest = 0;
    int best = 1;
    for (int parts = 1; parts <= most && blocks < 8 * sm_count; ++parts) {  // eight rounds end evenly
        std::vector<std::int64_t> ends(sm_count);
        std::int64_t work = 0, end = 0;
        for (int n = 0; n < blocks * parts; ++n) {
            const int key = order.at(s, n / parts).tile * Tile<128>::Bc, part = n % parts;
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

std::size_t counter_bytes(const Shape&, int) {
    return sizeof(unsigned);  // TileOrder::taken
}

/// Sums, the parts of dK and dV, with a mask or without, and the counter
std::size_t workspace_bytes(const Shape& s, int sm_count) {
    const int parts = std::max(parts_of(s, false, sm_count), parts_of(s, true, sm_count));
    const std::size_t keys = std::size_t(s.B) * s.Hkv * ceil_div(s.Nk, Tile<128>::Bc) * Tile<128>::Bc;
    return counter_bytes(s, 0) + sums_bytes(s) + (parts == 1 ? 0 : parts * keys * 2 * s.d * sizeof(float));
}

template <class T, int d>
void backward(const Problem& p) {
    constexpr int Br = Tile<d>::Br;
    const int rows = ceil_div(p.Nq, Br) * Br;
    TileOrder order = order_of(p, p.causal, p.sm_count);
    order.parts = parts_of(p, p.causal, p.sm_count);
    order.total = order.Tc * order.heads * order.parts;
    order.dK = reinterpret_cast<float4*>(static_cast<std::byte*>(p.workspace) + sums_bytes(p));
    order.dV = order.dK + std::int64_t{order.parts} * order.heads * order.Tc * Tile<d>::Bc * (d / 4);
    std::byte* end = static_cast<std::byte*>(p.workspace) + workspace_bytes(p, p.sm_count);
    order.taken = reinterpret_cast<unsigned*>(end) - 1;
    const Maps maps = {
        tensor_map<T, d>(p.Q, p.B, p.H, p.Nq, Br),    tensor_map<T, d>(p.K, p.B, p.Hkv, p.Nk, 64),
        tensor_map<T, d>(p.V, p.B, p.Hkv, p.Nk, 64),  tensor_map<T, d>(p.dO, p.B, p.H, p.Nq, Br),
        tensor_map<T, d>(p.dK, p.B, p.Hkv, p.Nk, 64), tensor_map<T, d>(p.dV, p.B, p.Hkv, p.Nk, 64)};
    launch(prepare<T, d>, dim3(ceil_div(rows, row_threads / (d / 8)), p.H, p.B), row_threads, 0, p);
    launch(order.parts > 1 ? gradients<T, d, true> : gradients<T, d, false>,
           dim3(std::min(p.sm_count, order.total)), threads, sizeof(Shared<T, d>), p, maps, order,
           Sums<d>(p, 0, 0));
    launch(convert<T, d>, dim3(ceil_div(rows, row_threads / (d / 16)), p.H, p.B), row_threads, 0, p.dQ, p.Nq,
           rows, static_cast<const float4*>(p.workspace), 1, p.scale);
    if (order.parts == 1) return;
    const int keys = order.Tc * Tile<d>::Bc;
    const dim3 grid(ceil_div(keys, row_threads / (d / 16)), p.Hkv, p.B);
    launch(convert<T, d>, grid, row_threads, 0, p.dK, p.Nk, keys, order.dK, order.parts, p.scale);
    launch(convert<T, d>, grid, row_threads, 0, p.dV, p.Nk, keys, order.dV, order.parts, 1.0f);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(
    backward, Dims, .number = 56, .name = "persistent_gradients", .parent = 55,
    .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
    .change = "blocks take key tiles from a counter, and copy the next one's inputs before this one ends",
    .shows_in = "gradients", .pass = Pass::backward, .diff_budget = 180,
    .most_lines = 590,  // with an order and parts, five products, a sender, and blocks that stay
    .repeats_exactly = false, .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
