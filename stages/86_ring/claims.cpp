// P ranks send P - 1 messages, all but one part of K and V, while they compute nothing. On one rank the rows
// of O go to memory without a detour by shared memory, and the rest is the parent's.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const RankPlan plan(c.p, 1);
    claim_plan(c, plan);
    if (c.p.features.ranks > 1) c.is("exposed_bytes", plan.sent_bytes());
    if (c.p.features.ranks > 1) return;
    c.only_moves({"exponentials", "divides", "stmatrix", "bulk_stores", "bulk_bytes", "warp_syncs",
                  "shared_tile_bytes", "exponentials_during_products", "exponentials_during_own_products",
                  "mbarrier_stalls", "named_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = joined(cases_of({usual_shapes, wide_shapes}), cases_on_ranks()),
              .resident_blocks = 1);

}  // namespace
