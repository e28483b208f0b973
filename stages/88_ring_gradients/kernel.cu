// Stage 88: gradients on a ring. K and V travel as in the forward pass, and sums of dK and dV follow in fp32,
// one step later: each rank adds the contribution of its rows for the keys that it holds. In the end the sums
// return to the keys' own rank, which adds its own contribution. dQ stays with its rows.

#include "stages/hopper.cuh"
#include "stages/ring.h"

namespace {

using namespace ladder;

#include "stages/55_split_queries/gradients.cuh"

/// Copies L of a chunk's rows, which begin with number `first` of (B, H, all_rows), to (B, H, rows).
__global__ void __launch_bounds__(row_threads)
    copy_rows(const float* L, int all_rows, int first, int rows, float* chunk_L) {
    const int row = blockIdx.x * row_threads + threadIdx.x, head = blockIdx.y;
    if (row >= rows) return;
    store(&chunk_L[std::int64_t{head} * rows + row], load(&L[std::int64_t{head} * all_rows + first + row]));
}

/// dK / scale and dV of keys in fp32, (2, B, Hkv, rows, d) by fragments; whole tiles, or none
struct KeySums {
    float4* dK_dV;
    int rows;
};

/// sums += x + y, which may cover only the first keys. `first`: initializes the sums.
template <int d>
__global__ void __launch_bounds__(row_threads)
    add_parts(const KeySums sums, const KeySums x, const KeySums y, bool first) {
    const int k = blockIdx.x * row_threads + threadIdx.x, matrix = blockIdx.y;
    const auto at = [&](const KeySums& of) {
        return of.dK_dV + std::int64_t{matrix} * of.rows * (d / 4) + k;
    };
    float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
    if (!first) sum = load(at(sums));
    const auto add = [&](const KeySums& part) {
        if (k >= part.rows * (d / 4)) return;
        const float4 more = load(at(part));
        sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    };
    add(x), add(y);
    store(at(sums), sum);
}

int whole_tiles(int keys) {
    return ceil_div(keys, Tile<128>::Bc) * Tile<128>::Bc;  // Bc is the same at d = 64
}

/// Bytes of a slot for K or V of any rank, whose part may have one key more than this one's
std::size_t slot_bytes(const Shape& s) {
    return part_bytes(s, s.Nk + 1);
}

std::size_t key_sums_bytes(const Shape& s, int keys) {
    return std::size_t(2) * s.B * s.Hkv * whole_tiles(keys) * s.d * sizeof(float);
}

template <int d>
int padded_rows(const Shape& s) {
    return ceil_div(s.Nq, Tile<d>::Br) * Tile<d>::Br;
}

/// The contribution of the rows of a problem: adds dQ to its sums, and writes dK and dV to `parts`.
template <class T, int d>
KeySums add_gradients(const Problem& p, float4* parts) {
    if (p.Nq == 0 || p.Nk == 0) return {parts, 0};
    TileOrder order = order_of(p, p.causal, p.sm_count);
    const int rows = whole_tiles(p.Nk);
    order.dK = parts, order.dV = parts + std::int64_t{order.heads} * rows * (d / 4);
    const TensorMap K = tensor_map<T, d>(p.K, p.B, p.Hkv, p.Nk, 64),
                    V = tensor_map<T, d>(p.V, p.B, p.Hkv, p.Nk, 64);
    const Maps maps = {tensor_map<T, d>(p.Q, p.B, p.H, p.Nq, Tile<d>::Br),  K, V,
                       tensor_map<T, d>(p.dO, p.B, p.H, p.Nq, Tile<d>::Br), K, V};  // dK and dV need none
    launch(gradients<T, d, true>, dim3(order.Tc * order.heads), threads, sizeof(Shared<T, d>), p, maps,
           order);
    return {parts, rows};
}

/// X (B, heads, N, d) = `factor` times sums (B, heads, rows, d) by fragments
template <class T, int d>
void convert_sums(const Shape& s, const View& X, int heads, int N, int rows, const void* sums, float factor) {
    launch(convert<T, d>, dim3(ceil_div(rows, row_threads / (d / 16)), heads, s.B), row_threads, 0, X, N,
           rows, static_cast<const float4*>(sums), 1, factor);
}

/// The rank's part: chunks `rank` and 2 P - 1 - rank of the sequence, an early and a late one.
template <class T, int d>
void backward(const Problem& p) {
    const int P = ring() ? ring()->ranks() : 1, rank = ring() ? ring()->rank() : 0;
    const int Nq = ring() ? ring()->Nq() : p.Nq, Nk = ring() ? ring()->Nk() : p.Nk;
    // A single rank has everything in its early chunk.
    const auto early = [&](int N, int source) { return P == 1 ? N : chunk_rows(N, 2 * P, source); };
    const auto late = [&](int N, int source) {
        return P == 1 ? 0 : chunk_rows(N, 2 * P, 2 * P - 1 - source);
    };
    const auto keys = [&](int source) { return early(Nk, source) + late(Nk, source); };
    char* unused = static_cast<char*>(p.workspace);
    const auto take = [&](std::size_t bytes) { return unused += bytes, unused - bytes; };

    Problem chunks[2] = {p, p};  // of rows, each a problem of its own
    chunks[0].Nq = early(Nq, rank), chunks[1].Nq = late(Nq, rank);
    for (Problem& chunk : chunks) chunk.workspace = take(sums_bytes(chunk));
    char* slots[2] = {take(2 * slot_bytes(p)), take(2 * slot_bytes(p))};
    float4 *sums[2], *parts[2], *own_sums;
    for (float4** buffer : {&sums[0], &sums[1], &parts[0], &parts[1], &own_sums})
        *buffer = reinterpret_cast<float4*>(take(key_sums_bytes(p, p.Nk + 1)));
    for (int c = 0, first = 0; c < 2; first += chunks[c++].Nq) {
        Problem& chunk = chunks[c];
        if (chunk.Nq == 0) continue;
        for (View* X : {&chunk.Q, &chunk.O, &chunk.dO, &chunk.dQ}) *X = from_row<T>(*X, first);
        chunk.L = reinterpret_cast<float*>(take(std::size_t(p.B) * p.H * chunk.Nq * sizeof(float)));
        launch(copy_rows, dim3(ceil_div(chunk.Nq, row_threads), p.B * p.H), row_threads, 0, p.L, p.Nq, first,
               chunk.Nq, chunk.L);
        launch(prepare<T, d>, dim3(ceil_div(padded_rows<d>(chunk), row_threads / (d / 8)), p.H, p.B),
               row_threads, 0, chunk);
    }

    View K = p.K, V = p.V;
    const auto source_of = [&](int t) { return (rank - t + 2 * P) % P; };  // whose keys step t attends to
    // While step t computes, K and V travel, and so do the sums of the previous step. The sums that arrive
    // belong to this step's keys, in step P to the rank's own. The contribution of step 0 does not travel.
    const auto sends_keys = [&](int t) { return t + 1 < P; };
    const auto sends_sums = [&](int t) { return t > 1; };
    const auto start = [&](int t) {
        const auto bytes = [&](int step) { return part_bytes(p, keys(source_of(step))); };
        const auto sum_bytes = [&](int step) { return key_sums_bytes(p, keys(source_of(step))); };
        char* slot = slots[t % 2];    // it was read in the previous step
        Message to_K, to_V, to_sums;  // empty
        if (sends_keys(t)) {
            to_K = {K.data, bytes(t), slot, bytes(t + 1)};
            to_V = {V.data, bytes(t), slot + slot_bytes(p), bytes(t + 1)};
        }
        if (sends_sums(t)) to_sums = {sums[(t + 1) % 2], sum_bytes(t - 1), sums[t % 2], sum_bytes(t)};
        ring()->start({to_K, to_V, to_sums});
    };
    const auto add = [&](const KeySums& to, const KeySums& x, const KeySums& y, bool first) {
        launch(add_parts<d>, dim3(to.rows * (d / 4) / row_threads, 2 * p.B * p.Hkv), row_threads, 0, to, x, y,
               first);
    };
    for (int t = 0; t < P; ++t) {
        const int source = source_of(t);
        const bool sends = sends_keys(t) || sends_sums(t);
        if (sends) start(t);
        KeySums part[2];
        for (int c = 0; c < 2; ++c) {
            Problem step = chunks[c];
            step.K = K, step.V = V, step.Nk = keys(source), step.causal = p.causal && source == rank;
            if (p.causal && source < rank) step.Nk = early(Nk, source);  // the late keys come after all rows
            if (p.causal && c == 0) step.Nk = source > rank ? 0 : early(Nk, source);
            part[c] = add_gradients<T, d>(step, parts[c]);
        }
        if (sends) ring()->wait();
        const KeySums to = {t == 0 ? own_sums : sums[t % 2], whole_tiles(keys(source))};
        add(to, part[0], part[1], t <= 1);
        const int next = keys(source_of(t + 1));
        K = in_one_piece(slots[t % 2], p, next), V = in_one_piece(slots[t % 2] + slot_bytes(p), p, next);
    }
    const int rows = whole_tiles(p.Nk);
    if (P > 1) {
        start(P), ring()->wait();
        add({own_sums, rows}, {sums[P % 2], rows}, {}, false);
    }

    for (const Problem& chunk : chunks) {
        if (chunk.Nq > 0)
            convert_sums<T, d>(chunk, chunk.dQ, p.H, chunk.Nq, padded_rows<d>(chunk), chunk.workspace,
                               p.scale);
    }
    const float4* dV = own_sums + std::int64_t{p.B} * p.Hkv * rows * (d / 4);
    convert_sums<T, d>(p, p.dK, p.Hkv, p.Nk, rows, own_sums, p.scale);
    convert_sums<T, d>(p, p.dV, p.Hkv, p.Nk, rows, dV, 1.0f);
}

std::size_t workspace_bytes(const Shape& s, int) {
    Shape rows = s;  // two chunks have no more tiles than one of them all and another tile
    rows.Nq += Tile<64>::Br;
    return sums_bytes(rows) + 4 * slot_bytes(s) + 5 * key_sums_bytes(s, s.Nk + 1) +
           std::size_t(s.B) * s.H * s.Nq * sizeof(float);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(backward, Dims, .number = 88, .name = "ring_gradients", .parent = 55,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
             .change = "dK and dV follow their keys around the ring in fp32, one step later, and end at the rank of the keys",
             .shows_in = "backward", .pass = Pass::backward, .takes = {Feature::ranks}, .diff_budget = 0,
             .repeats_exactly = false, .chunks = 2, .workspace_bytes = workspace_bytes);

}  // namespace
