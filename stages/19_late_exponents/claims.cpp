// Rescales at d = 256 where the maximum rises by much, and else votes.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    if (p.d() != 256) {
        c.only_moves({});
        return;
    }
    const Count in_block = 8;  // warps
    const auto blocks = visits(p, 128, 64, 1, 1, true);
    const Count warp_tiles = tiles_of(blocks) * in_block;
    const Count first_tiles = sum(blocks, [](auto& v) { return v.tiles > 0; }) * in_block;
    // Rising scores climb by 4 log2(e) = 5.8 with each tile of 64 keys: every other tile is rescaled.
    const Count rescales =
        p.input == "rising" ? sum(blocks, [](auto& v) { return (v.tiles + 1) / 2; }) * in_block : first_tiles;
    const Count at_the_end = blocks.size() * in_block * 2 * 2;
    c.parent_is("votes", 0);
    c.is("votes", warp_tiles);
    c.parent_is("shuffles", warp_tiles * 2 * 2 + at_the_end);
    c.is("shuffles", rescales * 2 * 2 + at_the_end);
    // P; alpha where O is rescaled, in the parent in all tiles but the first.
    const Count P = warp_tiles * 16 * tile;
    c.parent_is("exponentials", P + (warp_tiles - first_tiles) * 16 * in_a_quad);
    c.is("exponentials", P + (rescales - first_tiles) * 16 * in_a_quad);
    c.only_moves({"votes", "shuffles", "exponentials"});
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes, wide_shapes}),
                              {{.shape = {1, 1, 1, 128, 320, 256}, .input = "rising"}}),
              .resident_blocks = 2);

}  // namespace
