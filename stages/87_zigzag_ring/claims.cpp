// Each rank has an early and a late chunk: under a causal mask all have the same work in each step. As many
// bytes are sent as by the parent, all of them during kernels.
#include "../86_ring/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const RankPlan plan(p, 2), parents(p, 1);
    claim_plan(c, plan);
    if (p.features.ranks == 1) return c.only_moves({});
    c.parent_is("exposed_bytes", parents.sent_bytes());
    c.is("exposed_bytes", 0);
    c.parent_is("busiest_products", parents.sum_of_busiest(product_columns));
    // Where chunks are whole tiles, no step has a rank that others wait for.
    const int chunk = 2 * p.features.ranks * std::max(hopper_Bc(p), 64);
    if (p.shape.Nq % chunk == 0 && p.shape.Nk % chunk == 0)
        c.is("busiest_products", c.child.counters.wgmma_columns / p.features.ranks);
}

LADDER_CLAIMS(.claim = claim, .cases = joined(cases_of({usual_shapes}), cases_on_ranks()),
              .resident_blocks = 1);

}  // namespace
