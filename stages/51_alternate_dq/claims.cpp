// The same products, and who has no turn at dQ waits for nobody.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const GradientTiles of{p};
    const Count d = p.d(), Br = of.Br(), visited = of.visited(), blocks = of.blocks();
    claim_gradient_tiles(c);
    // dQ of 64 rows and all columns, of one warpgroup, in steps of 16 keys
    c.is("wgmma", visited * (of.groups * (2 * d + 2 * Br) + Br / 64 * of.Bc) / 16);
    // Of the four warps whose turn it is, for each 64 rows
    c.is("bulk_adds", visited * 4 * Br / 64);
    c.parent_is("warp_syncs", visited * 8 * 2);
    c.is("warp_syncs", visited * 4 * 2);
    // Both wait for dS in the parent; here the one whose turn it is.
    c.parent_is("named_waits", (visited + 2 * blocks) * of.threads);
    c.is("named_waits", (visited + 4 * blocks) * of.threads / 2);
    // By the model of time: the other's dS is there when a turn comes. Only at the end one waits.
    c.parent_is("named_stalls", (visited + blocks) * 128);
    c.is("named_stalls", blocks * 128);
    c.only_moves({"wgmma", "bulk_adds", "warp_syncs", "named_waits", "exponentials_beside_products",
                  "exponentials_beside_own_products", "mbarrier_stalls", "named_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes})), .resident_blocks = 1);

}  // namespace
