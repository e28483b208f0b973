// Launches the merge early. The work stays the same.
#include "../37_packed_rows/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    c.parent_is("early_launches", 0);
    c.is("early_launches", c.child.counters.launches - 1);  // the merge, where query tiles are shared
    c.only_moves({"early_launches"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, draft_shapes}), .resident_blocks = 1);

}  // namespace
