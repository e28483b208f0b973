// Has half the tiles at d = 64, and neither branch nor vote where they cost more.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const int Bc = p.d() == 64 ? 128 : 64;
    // At d = 64 warps without a query row compute like the others.
    const auto blocks = visits(p, wide_Br(p), Bc, 1, 1, p.d() == 64);
    const Count tiles = tiles_of(blocks), warp_tiles = warp_tiles_of(blocks),
                first_tiles = first_tiles_of(blocks);
    const Count at_the_end = blocks.size() * warps * slices(p) * 2 * 2;
    if (p.input == "rising") {
        // These scores climb by more than 2^8 with each tile of 128 keys, so each is rescaled; in the parent
        // every other one of 64.
        c.is("shuffles", warp_tiles * slices(p) * 2 * 2 + at_the_end);
        c.stays("shuffles");
        return;
    }
    if (p.d() == 128) c.only_moves({});
    if (p.d() == 256) {
        // The parent shuffles at the first tile, this stage at each; then it also computes alpha.
        c.parent_is("votes", warp_tiles);
        c.is("votes", 0);
        c.parent_is("shuffles", first_tiles * 2 * 2 + at_the_end);
        c.is("shuffles", warp_tiles * 2 * 2 + at_the_end);
        c.is("exponentials", c.parent.counters.exponentials + (warp_tiles - first_tiles) * 16 * in_a_quad);
        c.only_moves({"votes", "shuffles", "exponentials"});
    }
    if (p.d() == 64) claim_narrow_tiles(c, 128, 2 * tiles);
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes, wide_shapes}),
                              {{.shape = {1, 2, 2, 128, 512, 64}, .input = "rising"}}),
              .resident_blocks = 2);

}  // namespace
