// Divides once per row and visited key tile instead of once per row.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    c.parent_is("divides", (p.rows() - p.rows_without_keys()) * in_a_quad);
    // A row that sees no key has l = 0 and is not divided; rows behind the last query that a warp carries
    // along are.
    const auto blocks = visits(p, tile, tile);
    c.is("divides", sum(blocks, [](auto& v) { return v.tiles * v.padded; }) * in_a_quad);
    c.only_moves({"divides"});
    c.is("workspace_bytes", 0);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes}));

}  // namespace
