// Launches one kernel instead of three: no kernel reads Q, K and V beforehand, finds maxima or writes rounded
// copies. The attention kernel copies and multiplies the same tiles as the parent's.
#include "../70_fp8_products/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto tiles = query_tiles(p, true, fp8_warpgroups(p), fp8_Bc(p));
    const Count multiplying = persistent_blocks(tiles, p),
                rows = sum_of_groups(tiles, [](auto&group) { return group.rows; });
    c.parent_is("launches", 3);
    c.is("launches", 1);
    c.is("blocks", multiplying);
    c.is("barriers", multiplying);
    c.is("workspace_bytes", 4);
    c.is("global_store_bytes", output_bytes(p));
    c.is("divides", rows * in_a_quad);
    c.only_moves({"launches", "blocks", "barriers", "workspace_bytes", "global_load_bytes",
                  "global_store_bytes", "divides", "shared_exchange_bytes", "shuffles", "mbarrier_stalls",
                  "named_stalls", "exponentials_beside_products", "exponentials_beside_own_products"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes}, {"falling"}),
              .resident_blocks = 1);

}  // namespace
