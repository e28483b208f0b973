// Passes O through shared memory once, inside a warp.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = visits(p, wide_Br(p), wide_Bc(p));
    // Whole tiles are written, the rows that there are are read.
    c.is("shared_exchange_bytes", (blocks.size() * wide_Br(p) + p.rows()) * p.d() * 2);
    c.is("warp_syncs", blocks.size() * warps);
    // Rows past the end of a ragged tile are divided too, though nobody reads them.
    c.parent_is("divides", sum(blocks, [](auto& v) { return v.rows; }) * in_a_quad);
    c.is("divides", sum(blocks, [](auto& v) { return v.padded; }) * in_a_quad);
    c.only_moves({"shared_exchange_bytes", "warp_syncs", "divides"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .resident_blocks = 2);

}  // namespace
