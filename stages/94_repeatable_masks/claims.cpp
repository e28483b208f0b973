// The same work as without an order, and each part of dQ is added in its turn.
#include "../66_window_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const GradientTiles of{p};
    const int Br = static_cast<int>(of.Br()), Bc = static_cast<int>(of.Bc);
    const Count visited = visited_by_all(p, Br, Bc).tiles;
    const bool packed = !p.features.documents.empty();
    const Count parts = packed ? 1 : KeyTileOrder(of, p.causal).parts, Hkv = p.shape.Hkv,
                key_tiles = packed ? p.Nk() / of.Bc + documents_in(p).size() : (p.Nk() + of.Bc - 1) / of.Bc,
                blocks = p.B() * Hkv * key_tiles * parts;  // with those that a document does not need
    c.is("tiles", visited * of.groups);
    c.is("wgmma_columns", visited * 5 * of.Br() * of.Bc * p.d() / 1024);
    // A block's number, and each turn once it is over
    c.is("atomics", blocks + visited);
    c.is("fences", 2 * visited);
    if (!c.has_parent()) return;
    const simt::Counters& before = c.parent.counters;
    const Count counters = p.heads() * of.query_tiles();
    c.parent_is("atomics", 0);
    c.parent_is("fences", 0);
    c.is("workspace_bytes", c.parent.workspace_bytes + (counters + 4) / 4 * 16);
    c.is("global_store_bytes", before.global_store_bytes + (counters + 1) * 4);
    c.is("global_load_bytes", before.global_load_bytes + visited * 4);  // each turn is waited for
    // The number, which all threads of a block read
    c.is("shared_exchange_bytes", before.shared_exchange_bytes + blocks * 4 * (1 + 384));
    c.is("shuffles", before.shuffles + blocks * 12);
    c.is("barriers", before.barriers + blocks);
    c.only_moves({"atomics", "fences", "workspace_bytes", "global_store_bytes", "global_load_bytes",
                  "shared_exchange_bytes", "shuffles", "barriers",
                  // By the model of time:
                  "exponentials_during_products", "exponentials_during_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

/// Under a causal mask also with all that changes a score
std::vector<Case> with_scores(std::vector<Case> cases) {
    for (Case& c : cases) {
        if (c.causal) c.features.softcap = 30, c.features.alibi = "drawn", c.features.sinks = "drawn";
    }
    return cases;
}

constexpr Shape few_blocks[] = {{1, 12, 1, 130, 200, 64}, {2, 8, 1, 200, 64, 128}};

LADDER_CLAIMS(.claim = claim,
              .cases = backward(joined(joined(cases_of({usual_shapes, few_blocks}),
                                              with_scores(packed_cases())),
                                       in_windows(cases_of({long_shapes, few_blocks, usual_shapes})))),
              .resident_blocks = 1);

}  // namespace
