// Launches one kernel instead of three: no kernel reads Q, K and V beforehand, finds maxima or writes rounded
// copies. The attention kernel copies and multiplies the same tiles as the parent's. V comes by panels of 128
// columns: at d = 256 two copies for each tile. A warp reads all keys of 16 columns, then meets, and then
// writes.
#include "../70_fp8_products/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto& parent = c.parent.counters;
    const auto tiles = query_tiles(p, true, fp8_warpgroups(p), fp8_Bc(p));
    const Count multiplying = persistent_blocks(tiles, p), warps = 3, copied = copied_tiles(tiles),
                rows = sum_of_groups(tiles, [](auto&group) { return group.rows; });
    const Count more_panels = copied * (fp8_row(p) / 128 - 1);  // than tiles
    c.parent_is("launches", 3);
    c.is("launches", 1);
    c.is("blocks", multiplying);
    c.is("barriers", multiplying);
    c.is("workspace_bytes", 4);
    c.is("global_store_bytes", output_bytes(p));
    c.is("divides", rows * in_a_quad);
    c.is("warp_syncs", parent.warp_syncs + copied * p.d() / 16 + warps * more_panels);
    c.is("bulk_loads", parent.bulk_loads + more_panels);
    // Of the producer, which announces a panel's bytes and waits for its slot, and of the warps
    c.is("mbarrier_arrivals", parent.mbarrier_arrivals + (1 + warps) * more_panels);
    c.is("mbarrier_waits", parent.mbarrier_waits + (1 + 32 * warps) * more_panels);
    c.is("bank_conflicts", 0);
    c.only_moves({"warp_syncs", "bulk_loads", "mbarrier_arrivals", "mbarrier_waits", "launches", "blocks",
                  "barriers", "workspace_bytes", "global_load_bytes", "global_store_bytes", "divides",
                  "shared_exchange_bytes", "shuffles", "mbarrier_stalls", "named_stalls",
                  "exponentials_during_products", "exponentials_during_own_products"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes}, {"falling"}),
              .resident_blocks = 1);

}  // namespace
