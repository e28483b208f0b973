// Reads and writes each tile of V once, like the parent, by as many ldmatrix and stmatrix, without bank
// conflicts. No warp waits for a slot to write to, and no warp releases a slot of rows.
#include "../70_fp8_products/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto tiles = query_tiles(p, true, fp8_warpgroups(p), fp8_Bc(p));
    const Count copied = copied_tiles(tiles), warps = 3, together = 3;
    // Pairs of blocks, of which a warp takes every third, and then three at a time
    const Count pairs = p.d() == 256 ? 64 : 32;
    Count steps = 0;
    for (Count warp = 0; warp < warps; ++warp)
        steps += (pairs - warp + warps * together - 1) / (warps * together);
    c.is("bank_conflicts", 0);
    c.is("warp_syncs", c.parent.counters.warp_syncs + steps * copied);
    c.is("mbarrier_arrivals", c.parent.counters.mbarrier_arrivals - warps * copied);
    c.is("mbarrier_waits", c.parent.counters.mbarrier_waits - 32 * warps * copied);
    c.only_moves({"warp_syncs", "mbarrier_arrivals", "mbarrier_waits", "mbarrier_stalls", "named_stalls",
                  "exponentials_beside_products", "exponentials_beside_own_products"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes}, {"falling"}),
              .resident_blocks = 1);

}  // namespace
