// All ranks together read each key as often as one GPU does. A rank sends its rows' O and L in fp32 to each
// other one, once, however many keys it holds. On one rank merge_ranks() is added, and all else is the
// parent's.
#include "harness/count/claims.h"
#include "stages/ring.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// Bytes of what a rank finds for all rows: O, and L filled up to 16 bytes, in fp32
Count result_bytes(const Counted& p) {
    return p.rows() * p.d() * 4 + (p.rows() + 3) / 4 * 16;
}

/// The part of a rank as a problem of its own. A mask hides keys of the last rank alone: the cases have
/// enough of them.
Counted part_of(const Counted& p, int rank) {
    Counted own = p;
    const int P = p.features.ranks;
    own.features.ranks = 1;
    own.causal = p.causal && rank == P - 1;
    own.shape.Nk = chunk_rows(p.shape.Nk, P, rank);
    return own;
}

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count P = Count(p.features.ranks), Bc = p.d() > 128 ? 64 : 128;
    Count tiles = 0, KV_bytes = 0;
    for (int rank = 0; rank < p.features.ranks; ++rank) {
        const Counted own = part_of(p, rank);
        const auto blocks = visits(own, 16, int(Bc), own.group());
        tiles += tiles_of(blocks), KV_bytes += KV_bytes_of(blocks, own);
    }
    c.is("launches", 2 * P);
    c.is("tiles", tiles);
    c.is("mma", tiles * p.d() * Bc / 64);
    c.is("evict_first_bytes", KV_bytes);
    if (P > 1) {
        c.is("messages", 1);
        c.is("sent_bytes", (P - 1) * result_bytes(p));
        c.is("exposed_bytes", (P - 1) * result_bytes(p));
        return;
    }
    const simt::Counters& before = c.parent.counters;
    const Count blocks = (p.rows() + warps - 1) / warps;
    c.is("blocks", before.blocks + blocks);
    c.is("global_load_bytes", before.global_load_bytes + p.rows() * (p.d() + 2 * 32) * 4);
    c.is("global_store_bytes", before.global_store_bytes + p.rows() * (p.d() * 4 + 4));
    c.is("exponentials", before.exponentials + p.rows() * 32);
    c.is("divides", before.divides + (p.rows() - p.rows_without_keys()) * 32);
    c.is("workspace_bytes", c.parent.workspace_bytes + result_bytes(p));
    c.only_moves({"launches", "blocks", "global_load_bytes", "global_store_bytes", "exponentials", "divides",
                  "workspace_bytes"});
}

/// Caches that 2, 3, 4 and 5 ranks divide, evenly and not: one row and several, with and without a mask; the
/// same rows with twice the keys
std::vector<Case> divided_caches() {
    std::vector<Case> cases;
    const auto add = [&](const Shape& shape, int ranks, bool causal) {
        cases.push_back({.shape = shape, .causal = causal, .features = {.ranks = ranks}});
    };
    add({1, 8, 2, 1, 1024, 64}, 4, true);
    add({1, 8, 2, 1, 2048, 64}, 4, true);
    add({2, 4, 1, 5, 519, 128}, 2, true);
    add({1, 3, 3, 16, 1000, 64}, 3, true);
    add({1, 6, 2, 3, 300, 256}, 5, false);
    return cases;
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({decode_shapes, usual_shapes, wide_shapes}), divided_caches()));

}  // namespace
