// Every message travels during a kernel. All else is the parent's.
#include "../85_ring/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    if (c.p.features.ranks > 1) {
        c.parent_is("exposed_bytes", RankPlan(c.p, 2).sent_bytes());
        c.is("exposed_bytes", 0);
        for (const char* counter : {"messages", "sent_bytes", "busiest_products"}) c.stays(counter);
    }
    c.stays("workspace_bytes");
    c.only_moves({});
}

LADDER_CLAIMS(.claim = claim, .cases = joined(cases_of({usual_shapes}), cases_on_ranks()),
              .resident_blocks = 1);

}  // namespace
