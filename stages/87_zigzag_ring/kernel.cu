// Stage 87: zigzag ring. The sequence is cut into 2 P chunks, and rank r holds two of them, r and 2 P - 1 -
// r: an early and a late one. Under a causal mask all ranks then have the same work in each step. The keys of
// the next step travel during this step's kernel.

#include "stages/hopper.cuh"
#include "stages/ring.h"

namespace {

using namespace ladder;

#include "stages/86_ring/partial_attention.cuh"

/// Bytes of a slot for K or V of any rank, whose part may have one key more than this one's
std::size_t slot_bytes(const Shape& shape) {
    return part_bytes(shape, shape.Nk + 1);
}

/// The rank's part, of Q, K, V and O: chunks `rank` and 2 P - 1 - rank of the sequence.
template <class T, int d>
void forward(const Problem& p) {
    const int P = ring() ? ring()->ranks() : 1, rank = ring() ? ring()->rank() : 0;
    const int N = ring() ? ring()->Nk() : p.Nk;
    const auto early = [&](int source) { return chunk_rows(N, 2 * P, source); };
    const auto keys = [&](int source) { return early(source) + chunk_rows(N, 2 * P, 2 * P - 1 - source); };
    char* slots = static_cast<char*>(p.workspace) + sum_bytes(p);
    View K = p.K, V = p.V;
    for (int t = 0; t < P; ++t) {
        const int source = (rank - t + P) % P;  // whose keys this step attends to
        Problem step = p;
        step.workspace = slots + 4 * slot_bytes(p);
        step.K = K, step.V = V, step.Nk = keys(source), step.causal = p.causal && source == rank;
        const int next = keys((source - 1 + P) % P);
        char* slot = slots + t % 2 * 2 * slot_bytes(p);
        const std::size_t bytes = part_bytes(p, keys(source)), next_bytes = part_bytes(p, next);
        if (t + 1 < P) {  // the slot was read in the step before
            ring()->start({Message{K.data, bytes, slot, next_bytes},
                           Message{V.data, bytes, slot + slot_bytes(p), next_bytes}});
        }
        int first_row = 0;
        if (p.causal && source < rank) step.Nk = early(source);  // the late keys come after all rows
        if (p.causal && source > rank) {                         // and all keys after the early rows
            first_row = early(rank);
            step.Nq -= first_row;
            step.Q = from_row<T>(p.Q, first_row), step.O = from_row<T>(p.O, first_row), step.L += first_row;
        }
        const int final_rows = t + 1 == P ? step.Nq : p.causal && t == rank ? early(rank) : 0;
        float* sum = static_cast<float*>(p.workspace) + std::int64_t{first_row} * d;
        attend<T, d>(step, {sum, p.Nq, t == 0, final_rows});
        if (t + 1 == P) break;
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
LADDER_STAGE(forward, Dims, .number = 87, .name = "zigzag_ring", .parent = 86, .formerly = "87_overlap",
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {192, 128, 4}, {128, 128, 2},
                                     {128, 64, 2}),
             .change = "ranks hold an early and a late chunk: equal work; messages travel during kernels",
             .shows_in = "long", .takes = {Feature::ranks}, .rounds_large_scores = true, .chunks = 2,
             .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
