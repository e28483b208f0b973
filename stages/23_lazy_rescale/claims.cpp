// Shuffles and rescales where the maximum rises by much, and else votes.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

// Scores that climb by 4, and their exponents by 4 log2(e) = 5.8, with each tile of 64 keys: every other one
// is more than 8 above m.
const std::vector<Case> rising{{.shape = {1, 2, 1, 256, 448, 64}, .input = "rising"},
                               {.shape = {1, 1, 1, 65, 256, 128}, .input = "rising"},
                               {.shape = {1, 1, 1, 64, 320, 256}, .input = "rising"}};

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = visits(p, wide_Br(p), 64);
    const Count warp_tiles = warp_tiles_of(blocks), first_tiles = first_tiles_of(blocks);
    // Normal scores stay below 2^8 times the first tile's. So do falling ones. Rising ones: every other tile.
    const Count rescales =
        p.input == "rising" ? sum(blocks, [](auto& v) { return (v.tiles + 1) / 2 * v.warps; }) : first_tiles;
    c.is("votes", warp_tiles);
    // A rescale needs the maximum of two rows per lane; l is added up at the end, as before.
    c.is("shuffles", (rescales + blocks.size() * warps) * slices(p) * 2 * 2);
    // P alone; a rescale's alpha but that of the first tile, which has nothing to rescale.
    c.is("exponentials",
         warp_tiles * slices(p) * 16 * tile + (rescales - first_tiles) * slices(p) * 16 * in_a_quad);
    c.only_moves({"votes", "shuffles", "exponentials"});
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes, wide_shapes}, {"normal", "falling"}), rising),
              .resident_blocks = 2);

}  // namespace
