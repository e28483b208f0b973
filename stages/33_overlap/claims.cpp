// Takes exponentials during its own product, and a turn for two products that were two turns. O leaves
// through a buffer of its own.
#include "../30_tma_wgmma/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const auto tiles = query_tiles(c.p);
    const Count groups = warpgroups(c.p), threads = 128 * groups;
    const bool turns = c.p.d() <= 128;
    // The first scores and the last P V need no turn. The last warpgroup gives the first turn to the first.
    const auto waits = [&](Count turns_beside_tiles) {
        return turns ? threads * sum_of_tiles(tiles, [&](Count Tc) { return Tc + turns_beside_tiles; }) : 0;
    };
    const Count first_turns = turns ? 128 * tiles.size() : 0;
    c.parent_is("named_waits", waits(1));
    c.is("named_waits", waits(-1));
    c.parent_is("named_barriers", 2 * waits(1) + first_turns);
    c.is("named_barriers", 2 * waits(-1) + first_turns);
    // Q, K and V are full; each warpgroup releases K and V, but the last V, whose slot is not filled again.
    c.parent_is("mbarrier_arrivals",
                sum_of_tiles(tiles, [&](Count Tc) { return 1 + 2 * Tc + groups * 2 * Tc; }));
    c.is("mbarrier_arrivals",
         sum_of_tiles(tiles, [&](Count Tc) { return 1 + 2 * Tc + groups * (2 * Tc - 1); }));
    // A warp stores one or two panels together, between two __syncwarp: the buffer is free, O is in it.
    const Count panels = tiles.size() * 4 * groups * c.p.d() / 64, stores = panels / (c.p.d() == 64 ? 1 : 2);
    c.parent_is("bulk_stores", panels);
    c.is("bulk_stores", stores);
    c.parent_is("warp_syncs", panels);
    c.is("warp_syncs", 2 * stores);
    // By the model of time. The first tile's exponentials have no product of their warpgroup beside them; of
    // the others' at least a fifth has.
    const Count beside = c.child.counters.exponentials_during_own_products;
    const Count all = copied_tiles(tiles), later = c.child.counters.exponentials * (all - tiles.size()) / all;
    c.parent_is("exponentials_during_own_products", 0);
    c.is("exponentials_during_own_products", later == 0 ? 0 : std::max(beside, later / 5));
    c.only_moves({"named_waits", "named_barriers", "mbarrier_arrivals", "bulk_stores", "warp_syncs",
                  "wgmma_left_in_flight", "exponentials_during_products", "exponentials_during_own_products",
                  "mbarrier_stalls", "named_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .resident_blocks = 1);

}  // namespace
