// Multiplies the same tiles by mma.sync: no wgmma, no turns; a warp reads fragments by ldmatrix, without bank
// conflicts, and arrives for itself. What sums lose no more is verified.
#include "../70_fp8_products/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const int Bc = fp8_Bc(p);
    const Count groups = fp8_warpgroups(p);
    const auto tiles = query_tiles(p, true, groups, Bc);
    const Count warp_tiles = 4 * group_tiles(tiles);
    // A product of 16 rows, 8 columns and 32 columns or keys between; of Q a fragment for 32 columns, of K
    // and V one for 16 rows and 32 bytes.
    const Count ldmatrix = warp_tiles * (p.d() / 32 + Bc / 16 * p.d() / 32 + p.d() / 16 * Bc / 32);
    c.parent_is("wgmma", group_tiles(tiles) * (p.d() + Bc) / 32);
    c.is("wgmma", 0);
    c.is("mma", warp_tiles * (Bc / 8 * p.d() / 32 + p.d() / 8 * Bc / 32));
    c.is("ldmatrix", ldmatrix);
    c.is("bank_conflicts", 0);
    c.is("shared_tile_bytes", c.parent.counters.shared_tile_bytes + ldmatrix * 32 * 16);
    c.is("warp_syncs", c.parent.counters.warp_syncs + warp_tiles * (2 + Bc / 32));
    // For each K and V that is copied one arrival of each warp, not of each warpgroup.
    c.is("mbarrier_arrivals",
         c.parent.counters.mbarrier_arrivals + 2 * copied_tiles(tiles) * groups * (4 - 1));
    c.is("named_barriers", 0);
    c.only_moves({"wgmma", "wgmma_columns", "wgmma_left_in_flight", "mma", "ldmatrix", "shared_tile_bytes",
                  "warp_syncs", "mbarrier_arrivals", "named_barriers", "named_waits", "named_stalls",
                  "mbarrier_stalls", "exponentials_during_products", "exponentials_during_own_products"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes}, {"falling"}),
              .resident_blocks = 1);

}  // namespace
