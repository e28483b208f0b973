// The same work: products start before the next wait, and dQ leaves in a fourth of the copies, which one warp
// starts.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const GradientTiles of{c.p};
    const Count visited = of.visited(), blocks = of.blocks(), tiles = visited * of.groups;
    claim_gradient_tiles(c);
    // At the wait for S all of dP is in flight. Now at the wait for dP four steps of dV are, and at the wait
    // for dQ all of dK is.
    c.parent_is("wgmma_left_in_flight", tiles * c.p.d() / 16);
    c.is("wgmma_left_in_flight", tiles * (c.p.d() + of.Br() + 64) / 16);
    c.parent_is("bulk_adds", visited * of.threads / 32);  // of each warp
    c.is("bulk_adds", visited * of.groups);
    // Of each warp: its slot is free, its part is complete. Now of the sender: a warpgroup's dQ has been
    // read.
    c.parent_is("warp_syncs", visited * of.threads / 32 * 2);
    c.is("warp_syncs", visited * of.groups);
    // Each tile's dS. For each warpgroup's dQ, full and empty: its threads arrive at the one and wait at the
    // other, and the sender the other way round. At the end K, and the warpgroup's dK and dV.
    const Count before = (visited + 2 * blocks) * of.threads;
    c.parent_is("named_barriers", before);
    c.is("named_barriers", before + visited * of.groups * 2 * (128 + 32));
    c.parent_is("named_waits", before);
    c.is("named_waits", before + visited * of.groups * (128 + 32));
    c.only_moves({"wgmma_left_in_flight", "bulk_adds", "warp_syncs", "named_barriers", "named_waits",
                  // By the model of time:
                  "exponentials_during_products", "exponentials_during_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes})), .resident_blocks = 1);

}  // namespace
