// Shuffles and rescales where the maximum rises by much, and else votes; adds up l once, at the end.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

// Scores that climb by 4, and their exponents by 4 log2(e) = 5.8, with every 64 keys. Of tiles of 64 keys
// every other one is more than 8 above m, and of 128 each.
const std::vector<Case> rising{{.shape = {1, 2, 1, 256, 512, 64}, .input = "rising"},
                               {.shape = {1, 1, 1, 65, 256, 128}, .input = "rising"},
                               {.shape = {1, 1, 1, 64, 320, 256}, .input = "rising"}};

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count Bc = wide_Bc(p);
    const auto blocks = visits(p, wide_Br(p), wide_Bc(p));
    const Count warp_tiles = warp_tiles_of(blocks), first_tiles = first_tiles_of(blocks);
    // Normal scores stay below 2^8 times the first tile's. So do falling ones. Rising ones do not.
    const Count tiles_per_rescale = 128 / Bc;
    const Count rescales =
        p.input == "rising"
            ? sum(blocks,
                  [&](auto& v) { return (v.tiles + tiles_per_rescale - 1) / tiles_per_rescale * v.warps; })
            : first_tiles;
    c.is("votes", warp_tiles);
    // In each slice a lane has two rows. Two shuffles find a row's maximum, and two add up its l.
    c.parent_is("shuffles", warp_tiles * slices(p) * 2 * (2 + 2));
    c.is("shuffles", (rescales + blocks.size() * warps) * slices(p) * 2 * 2);
    // P alone; a rescale's alpha but that of the first tile, which has nothing to rescale.
    c.parent_is("exponentials", warp_tiles * slices(p) * 16 * (Bc + in_a_quad));
    c.is("exponentials",
         warp_tiles * slices(p) * 16 * Bc + (rescales - first_tiles) * slices(p) * 16 * in_a_quad);
    c.only_moves({"votes", "shuffles", "exponentials"});
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes, wide_shapes}, {"normal", "falling"}), rising),
              .resident_blocks = 2);

}  // namespace
