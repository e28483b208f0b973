// The same work as without an order, and each part of dQ is added in its turn: at d = 256 each half of it.
// Under column bounds and lists of tiles two launches more find the turns.
#include "../66_window_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const GradientTiles of{p};
    const Features& f = p.features;
    const bool wide = p.d() == 256, packed = !f.documents.empty(), has_lists = !f.tiles.empty();
    const bool has_gaps = has_lists || !f.columns.empty();
    const simt::Counters &before = c.parent.counters, &now = c.child.counters;
    const Count Br = wide ? tile : of.Br(), Bc = wide ? tile : of.Bc, Hkv = p.shape.Hkv;
    const Count parts = packed || wide ? 1 : KeyTileOrder(of, p.causal).parts, all = (p.Nk() + Bc - 1) / Bc,
                key_tiles = packed ? p.Nk() / Bc + documents_in(p).size() : all,
                blocks = p.B() * Hkv * key_tiles * parts;  // with those that a document does not need
    // At d = 64 a slot has two of the tiles of lists, unless it is the last one and has one.
    Count turns = has_lists && p.d() == 64 ? now.bulk_adds : now.bulk_adds / 2, added = 0;
    if (!has_gaps) {
        const Count visited = visited_by_all(p, static_cast<int>(Br), static_cast<int>(Bc)).tiles;
        c.is("tiles", visited * (wide ? 1 : of.groups));
        c.is("wgmma_columns", visited * 5 * Br * Bc * p.d() / 1024);
        turns = wide ? 2 * visited : visited;
        added = wide ? visited * tile * p.d() / 4 : 0;  // by threads
    }
    // A block's number, and each turn once it is over
    c.is("atomics", blocks + turns + added);
    c.is("fences", 2 * turns);
    if (!c.has_parent()) return;
    c.parent_is("atomics", 0);
    c.parent_is("fences", 0);
    const Count tiles = (p.Nq() + 127) / 128 * 2, counters = p.heads() * of.query_tiles() * of.Br() / 64;
    c.is("workspace_bytes", c.parent.workspace_bytes + (p.heads() * tiles + 4) / 4 * 16 +
                                (p.heads() * all * tiles + 7) / 8 * 16);  // and turns, of two bytes
    if (has_gaps) {
        c.is("launches", before.launches + 2);
        c.is("tiles", before.tiles);
        return;
    }
    c.is("global_store_bytes", before.global_store_bytes + (counters + 1) * 4);
    // Each turn is waited for. In packed documents a block also looks for those that share a query tile.
    if (!packed) c.is("global_load_bytes", before.global_load_bytes + turns * 4);
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

/// Under column bounds, and under lists of tiles
std::vector<Case> with_gaps(std::vector<Case> cases) {
    for (std::size_t k = 0; k < cases.size(); ++k) {
        Features& f = cases[k].features;
        cases[k].seed = k + 1;
        if (k % 2 == 0) {
            f.columns = k % 4 == 0 ? "random" : "documents";
        } else {
            f.tiles = "random", cases[k].causal = false;
        }
    }
    return cases;
}

constexpr Shape few_blocks[] = {{1, 12, 1, 130, 200, 64}, {2, 8, 1, 200, 64, 128}};
constexpr Shape gap_shapes[] = {
    {1, 2, 1, 300, 500, 64}, {1, 2, 1, 300, 500, 64}, {1, 2, 2, 430, 300, 128}, {1, 4, 2, 300, 330, 128}};
constexpr Shape wide_windows[] = {{1, 2, 1, 200, 330, 256}, {2, 2, 1, 130, 70, 256}};

LADDER_CLAIMS(.claim = claim,
              .cases = backward(
                  joined(joined(joined(cases_of({usual_shapes, few_blocks}), with_scores(packed_cases())),
                                in_windows(cases_of({long_shapes, few_blocks, usual_shapes, wide_windows}))),
                         with_gaps(cases_of({gap_shapes})))),
              .resident_blocks = 1);

}  // namespace
