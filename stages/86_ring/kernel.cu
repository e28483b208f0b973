// Stage 86: a ring of GPUs. Each of P ranks holds a part of the sequence: its rows of Q and its keys. K and V
// travel around the ring, and in each of P steps a rank attends to the part that has reached it. The results
// of the steps are merged in fp32.

#include "stages/hopper.cuh"
#include "stages/ring.h"

namespace {

using namespace ladder;

#include "stages/86_ring/partial_attention.cuh"

/// Bytes of a slot for K or V of any rank, whose part may have one key more than this one's
std::size_t slot_bytes(const Shape& shape) {
    return part_bytes(shape, shape.Nk + 1);
}

/// The rank's part, of Q, K, V and O: chunk `rank` of the sequence.
template <class T, int d>
void forward(const Problem& p) {
    const int P = ring() ? ring()->ranks() : 1, rank = ring() ? ring()->rank() : 0;
    const int N = ring() ? ring()->Nk() : p.Nk;
    const auto keys = [&](int source) { return chunk_rows(N, P, source); };
    char* slots = static_cast<char*>(p.workspace) + sum_bytes(p);
    const int last = p.causal ? rank : P - 1;  // the step after which the rank sees no more keys
    View K = p.K, V = p.V;
    for (int t = 0; t < P; ++t) {
        const int source = (rank - t + P) % P;  // whose keys this step attends to
        Problem step = p;
        step.workspace = slots + 4 * slot_bytes(p);
        step.K = K, step.V = V, step.Nk = keys(source), step.causal = p.causal && source == rank;
        if (!p.causal || source <= rank) {  // otherwise all of these keys come after the rank's rows
            attend<T, d>(step, {static_cast<float*>(p.workspace), p.Nq, t == 0, t == last ? p.Nq : 0});
        }
        if (t + 1 == P) break;
        const int next = keys((source - 1 + P) % P);
        char* slot = slots + t % 2 * 2 * slot_bytes(p);
        const std::size_t bytes = part_bytes(p, keys(source)), next_bytes = part_bytes(p, next);
        ring()->start({Message{K.data, bytes, slot, next_bytes},
                       Message{V.data, bytes, slot + slot_bytes(p), next_bytes}});
        ring()->wait();
        K = in_one_piece(slot, p, next), V = in_one_piece(slot + slot_bytes(p), p, next);
    }
}

std::size_t workspace_bytes(const Shape& shape, int) {
    return sum_bytes(shape) + 4 * slot_bytes(shape) + sizeof(unsigned);
}

std::size_t counter_bytes(const Shape&, int) {
    return sizeof(unsigned);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 86, .name = "ring", .parent = 36, .formerly = "85_ring",
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {192, 128, 4}, {128, 128, 2},
                                     {128, 64, 2}),
             .change = "each rank holds a part of the sequence; K and V travel around a ring of ranks",
             .shows_in = "long", .takes = {Feature::ranks}, .diff_budget = 0,
             .most_lines = 500,  // with the steps of a ring
             .rounds_large_scores = true, .chunks = 1, .workspace_bytes = workspace_bytes,
             .counter_bytes = counter_bytes);

}  // namespace
