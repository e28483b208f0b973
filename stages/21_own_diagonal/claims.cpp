// Has warps that skip, at d = 256, the tiles of which none of their rows sees a key.
#include <algorithm>

#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    if (p.d() != 256 || !p.causal) {
        c.only_moves({});
        return;
    }
    const int in_block = 8;  // warps, of 16 rows
    const auto blocks = visits(p, 128, 64, 1, 1, true);
    Count warp_tiles = 0, first_tiles = 0, mma_during_copies = 0;
    for (std::size_t k = 0; k < blocks.size(); ++k) {
        const int query_tile = static_cast<int>(k % ((p.Nq() + 127) / 128));
        for (int warp = 0; warp < in_block; ++warp) {
            const int last_row = query_tile * 128 + 16 * warp + 15;
            const int seen = std::max(0, last_row + 1 + p.shape.Nk - p.shape.Nq);
            const Count tiles = std::min<Count>((seen + 63) / 64, blocks[k].tiles);
            warp_tiles += tiles;
            first_tiles += tiles > 0;
            // Only the P V of the block's last tile has no copy behind it.
            mma_during_copies += (2 * tiles - (tiles > 0 && tiles == blocks[k].tiles)) * p.d() / 2;
        }
    }
    const Count ldmatrix = warp_tiles * (1 + 4 + 4) * p.d() / 16;
    c.is("mma", warp_tiles * p.d());
    c.is("mma_during_copies", mma_during_copies);
    c.is("ldmatrix", ldmatrix);
    c.is("shared_tile_bytes", tile_bytes(c.parent.counters.async_copies, ldmatrix));
    c.is("votes", warp_tiles);
    c.is("shuffles", (first_tiles + blocks.size() * in_block) * 2 * 2);
    c.is("exponentials", warp_tiles * 16 * tile);
    // Tiles are copied, arrived at and waited for as before.
    c.only_moves(
        {"mma", "mma_during_copies", "ldmatrix", "shared_tile_bytes", "votes", "shuffles", "exponentials"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .resident_blocks = 2);

}  // namespace
