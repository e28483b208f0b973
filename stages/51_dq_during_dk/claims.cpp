// The same work; dK's product is in flight while dQ leaves.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const GradientTiles of{c.p};
    const Count tiles = of.visited() * of.groups;
    claim_gradient_tiles(c);
    // At the wait for S all of dP is in flight; at the wait for dQ all of dK is, too.
    c.parent_is("wgmma_left_in_flight", tiles * c.p.d() / 16);
    c.is("wgmma_left_in_flight", tiles * (c.p.d() + of.Br()) / 16);
    c.only_moves({"wgmma_left_in_flight",
                  // By the model of time:
                  "exponentials_beside_products", "exponentials_beside_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes})), .resident_blocks = 1);

}  // namespace
