// Copies by boxes, multiplies by warpgroups, and adds dQ by bulk copies.
#include "claims.h"

#include <algorithm>

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const GradientTiles of{p};
    const Count d = p.d(), Br = of.Br(), visited = of.visited(), blocks = of.blocks();
    claim_gradient_tiles(c);
    // S and dP in steps of 16 columns, dV and dK of 16 query rows, and half of dQ of 16 keys
    c.is("wgmma", visited * of.groups * (2 * d + 2 * Br + of.Bc) / 16);
    c.is("bulk_adds", visited * of.threads / 32);       // of each warp
    c.is("warp_syncs", visited * of.threads / 32 * 2);  // its slot is free; its part is complete
    // Each tile's dS; and at the end for K, and for the warpgroup's dK and dV
    c.is("named_barriers", (visited + 2 * blocks) * of.threads);
    c.is("named_waits", (visited + 2 * blocks) * of.threads);
    c.is("wgmma_left_in_flight", visited * of.groups * d / 16);  // of dP, at the wait for S
    // By the model of time: in every tile, and at the end, one of the two warpgroups waits for the other.
    c.is("named_stalls", (visited + blocks) * 128);
    // During more than a fifth of the exponentials their own warpgroup computes dP^T.
    c.parent_is("exponentials_during_own_products", 0);
    const Count beside = c.child.counters.exponentials_during_own_products;
    c.is("exponentials_during_own_products", std::max(beside, c.child.counters.exponentials / 5));
    if (!of.whole()) return;
    // The same products, of 4096 operations for each mma and 2048 for each column. The parent adds to dQ
    // by 16-byte atomics.
    c.parent_is("mma", visited * 5 * Br * of.Bc * d / 2048);
    c.parent_is("atomics", visited * Br * d / 4);
    c.only_moves({"global_store_bytes",
                  "shared_exchange_bytes",
                  "shared_tile_bytes",
                  "warp_syncs",
                  "mbarrier_arrivals",
                  "mbarrier_waits",
                  "shuffles",
                  "atomics",
                  "mma",
                  "mma_during_copies",
                  "ldmatrix",
                  "async_copies",
                  "copied_lines",
                  "bulk_loads",
                  "bulk_stores",
                  "bulk_adds",
                  "bulk_bytes",
                  "wgmma",
                  "wgmma_columns",
                  "wgmma_left_in_flight",
                  "stmatrix",
                  "named_barriers",
                  "named_waits",
                  "registers_moved",
                  "tiles",
                  "exponentials_during_products",
                  "exponentials_during_own_products",
                  "mbarrier_stalls",
                  "named_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes})), .resident_blocks = 1);

}  // namespace
