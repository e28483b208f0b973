// The same work; dV's product of 64 queries is in flight when dP is waited for.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const GradientTiles of{c.p};
    const Count tiles = of.visited() * of.groups;
    claim_gradient_tiles(c);
    c.parent_is("wgmma_left_in_flight", tiles * (c.p.d() + of.Br()) / 16);
    c.is("wgmma_left_in_flight", tiles * (c.p.d() + of.Br() + 64) / 16);
    c.only_moves({"wgmma_left_in_flight",
                  // By the model of time:
                  "exponentials_beside_products", "exponentials_beside_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes})), .resident_blocks = 1);

}  // namespace
