// Computes, for both rows of tiles of a block, the union of their lists, two key tiles at a time, and no tile
// besides. Tests elements where a warpgroup's own lists do not say that a tile is full, and reads of the mask
// each entry of a list once for each block, and the words of partial tiles.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    claim_tile_lists(c);
    c.is("workspace_bytes", 4);
    // Blocks have the parent's 128 rows. A row may see no key of its first pair, and then m rises once more.
    if (c.p.features.tiles.empty() && c.p.d() > 64)
        c.only_moves({"tiles", "masked_tiles", "bulk_loads", "bulk_bytes", "global_load_bytes", "warp_syncs",
                      "mbarrier_arrivals", "shared_exchange_bytes", "shared_tile_bytes", "shuffles",
                      "exponentials", "exponentials_during_products", "exponentials_during_own_products"});
}

constexpr Shape long_shapes[] = {
    {1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {2, 2, 2, 400, 300, 256}, {1, 1, 1, 70, 2200, 128}};

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes, wide_shapes, crowded_shapes, ending_shapes}),
                              with_tiles(cases_of({long_shapes, usual_shapes, crowded_shapes, long_shapes,
                                                   ending_shapes}))),
              .resident_blocks = 1);

}  // namespace
