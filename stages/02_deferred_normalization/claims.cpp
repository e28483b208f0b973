// Divides once per row instead of once per row and key tile.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count lanes_of_a_row = in_a_quad * warps;
    // A row that has seen no key has l = 0 and is not divided.
    c.parent_is("divides", (p.slice_tiles() * 16 - p.rows_without_keys() * p.Tc()) * lanes_of_a_row);
    c.is("divides", (p.rows() - p.rows_without_keys()) * lanes_of_a_row);
    c.only_moves({"divides"});
    c.stays("workspace_bytes");
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes}));

}  // namespace
