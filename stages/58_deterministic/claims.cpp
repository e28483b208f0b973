// The same work as the parent's, and each part of dQ is added in its turn, by threads that do nothing else.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const simt::Counters& before = c.parent.counters;
    const GradientTiles of{p};
    const bool is_wide = p.d() == 256;  // then each warpgroup adds its half of dQ's columns
    const Count parts = is_wide ? 2 : 1, query_tiles = is_wide ? p.Tr() : of.query_tiles();
    const Count blocks = is_wide ? p.B() * Count(p.shape.Hkv) * p.Tc() : of.blocks();
    const Count visited = is_wide ? tiles_of(visits(p, tile, tile)) : of.visited(), turns = visited * parts;
    const Count counters = p.heads() * query_tiles * parts * 4;
    c.is("workspace_bytes", c.parent.workspace_bytes + counters + 4);
    c.is("global_store_bytes", before.global_store_bytes + counters);
    // Each turn is waited for, and then said to be over.
    c.is("global_load_bytes", before.global_load_bytes + turns * 4);
    c.is("atomics", before.atomics + blocks + turns);
    c.parent_is("fences", 0);
    c.is("fences", 2 * turns);
    // A block's key tile, which all of its threads read
    c.is("shared_exchange_bytes", before.shared_exchange_bytes + blocks * 16 * (1 + 384));
    c.is("shuffles", before.shuffles + blocks * 12 * 3);
    // A warpgroup and the thread that waits for it tell each other: that dQ is there and that it has been
    // read, or that it may be added and that it has been.
    c.is("mbarrier_arrivals", before.mbarrier_arrivals + turns * (128 + 1));
    c.is("mbarrier_waits", before.mbarrier_waits + turns * (128 + 1));
    c.is("bulk_adds", is_wide ? 0 : visited);  // all of a tile; in the parent each warp its rows
    c.is("warp_syncs", 0);
    c.only_moves({"workspace_bytes", "global_store_bytes", "global_load_bytes", "atomics", "fences",
                  "shared_exchange_bytes", "shuffles", "mbarrier_arrivals", "mbarrier_waits", "bulk_adds",
                  "warp_syncs",
                  // By the model of time:
                  "exponentials_beside_products", "exponentials_beside_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})), .resident_blocks = 1);

}  // namespace
