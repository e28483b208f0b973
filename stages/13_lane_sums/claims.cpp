// Adds up l once, by four shuffles per slice at the end.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = visits(p, wide_Br(p), 64);
    const Count warp_tiles = warp_tiles_of(blocks);
    c.parent_is("shuffles", warp_tiles * slices(p) * 2 * 4);
    c.is("shuffles", warp_tiles * slices(p) * 2 * 2 + blocks.size() * warps * slices(p) * 2 * 2);
    c.only_moves({"shuffles"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .resident_blocks = 2);

}  // namespace
