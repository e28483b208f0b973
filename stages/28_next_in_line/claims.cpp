// Has no more blocks than fit, and the counter tells each what comes next.
#include <algorithm>

#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count in_line = tiles_in_line(p);
    if (in_line > 0) c.is("blocks", std::min<Count>(in_line, p.sm_count));
    c.is("atomics", in_line);
    c.is("workspace_bytes", few_keys(p) ? 4 : 0);
    // One barrier before a query tile, as before, and one behind it, when the next is known.
    c.is("barriers", c.parent.counters.barriers + in_line);
    // One thread writes which that is, and all 256 read it.
    c.is("shared_exchange_bytes", c.parent.counters.shared_exchange_bytes + in_line * (1 + 256) * 4);
    c.only_moves({"blocks", "atomics", "workspace_bytes", "barriers", "shared_exchange_bytes"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes}),
              .resident_blocks = 2);

}  // namespace
