// Warps that do not multiply write a bit for each element of a tile, and each lane that multiplies reads its
// own. No byte of a mask is in global memory, and all else is the parent's work, with dropout and without.
#include "../65_hopper_windows/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto tiles = tiles_in_window(p);
    const Count Bc = hopper_Bc(p), Br = 64 * warpgroups(p), copied = copied_tiles(tiles),
                computed = group_tiles(tiles), blocks = persistent_blocks(tiles, p),
                stores = 4 * writing_groups(tiles) * p.d() / 64;
    const Count more = p.d() == 128 ? 1 : 0, drawers = 3 + more;  // warpgroups; warps
    c.is("tiles", computed);
    c.is("wgmma_columns", computed * (p.d() / 16 * Bc + Bc / 16 * p.d()));
    // Indices of query tiles, 16 bytes: written by one thread, read by consumers and mask warps. A bit for
    // each element, which is written once, and read by the warpgroups that see its tile.
    c.is("shared_exchange_bytes", 16 * (tiles.size() + blocks) * (1 + 128 * warpgroups(p) + 32 * drawers) +
                                      copied * Br * Bc / 8 + computed * 64 * Bc / 8);
    // One panel of O at a time. No warp waits for its lanes before it arrives: each thread does for itself.
    c.is("bulk_stores", stores);
    c.is("warp_syncs", 2 * stores);
    // A warp that computes the mask waits for query tiles, and for slots of V.
    const Count waits = tiles.size() + blocks + 2 * copied;
    c.is("mbarrier_waits",
         waits * (1 + 128 * warpgroups(p)) + 32 * drawers * (tiles.size() + blocks + copied));
    // What is released is claimed: by the producer's warpgroup and, at d = 128, by that of the mask warps
    const Count released = p.d() == 128 ? 2 * (128 - 56) : p.d() == 64 ? 128 - 32 : 168 - 56;
    c.is("registers_moved", blocks * 2 * 128 * released);
    // In a window a row may begin after the first tile of its warpgroup, which then counts as a rise of m.
    if (p.features.window != Window()) return;
    c.is("exponentials", computed * 64 * Bc);
    // uniform(): the warpgroup and the role, in each warp that does not multiply, and the halves of the seed;
    // the head and the batch entry of each tile
    c.is("shuffles",
         persistent_shuffles(tiles, p) + (4 + 8 * more + 2 * drawers) * blocks + 2 * drawers * copied);
    if (p.features.dropout != Dropout()) return;  // the parent does not take it
    // K and V are released by each thread, which needs no barrier for a tile left out. Mask warps arrive with
    // V.
    c.is("mbarrier_arrivals",
         c.parent.counters.mbarrier_arrivals + copied * (2 * 127 * warpgroups(p) + 32 * drawers));
    c.only_moves({"shared_exchange_bytes", "bulk_stores", "warp_syncs", "mbarrier_arrivals", "mbarrier_waits",
                  "shuffles", "registers_moved", "named_waits", "named_barriers",
                  // By the model of time:
                  "exponentials_during_products", "exponentials_during_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

std::vector<Case> with_dropout(std::vector<Case> cases) {
    for (std::size_t k = 0; k < cases.size(); ++k)
        cases[k].features.dropout = {k % 3 == 0 ? 230 : static_cast<int>(k * 37 % 255) + 1, k + 1};
    for (std::size_t k = 0; k < cases.size(); k += 4) cases[k].features.window = {99, 20};
    return cases;
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes, wide_shapes, crowded_shapes}),
                              with_dropout(cases_of({usual_shapes, wide_shapes, crowded_shapes}))),
              .resident_blocks = 1);

}  // namespace
