// Sums of a key tile begin anew. Their registers are those of a third warpgroup: a query tile has 128 rows.
// What the sums lose is verified.
#include "../70_fp8_products/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const int Bc = promoting_Bc(p);
    const Count groups = promoting_warpgroups(p);
    const auto parents = query_tiles(p, true, fp8_warpgroups(p), fp8_Bc(p)),
               tiles = query_tiles(p, true, groups, Bc);
    const Count computed = group_tiles(tiles), O_bytes = 4 * writing_groups(tiles) * 16 * p.d() * 2;
    const Count loaded = fp8_loaded_bytes(tiles, groups, Bc, p);
    c.parent_is("tiles", group_tiles(parents));
    c.is("tiles", computed);
    c.is("wgmma", computed * (p.d() + Bc) / 32);
    c.is("wgmma_columns", computed * p.d() * Bc / 16);
    c.is("exponentials", computed * 64 * Bc);
    c.is("bulk_bytes", loaded + O_bytes);
    c.is("shared_tile_bytes", loaded + 2 * O_bytes);
    c.stays("global_store_bytes");
    c.stays("workspace_bytes");
    c.only_moves({"exponentials_during_products",
                  "exponentials_during_own_products",
                  "mbarrier_stalls",
                  "named_stalls",
                  "blocks",
                  "barriers",
                  "tiles",
                  "masked_tiles",
                  "wgmma",
                  "wgmma_columns",
                  "wgmma_left_in_flight",
                  "exponentials",
                  "votes",
                  "shuffles",
                  "warp_syncs",
                  "divides",
                  "stmatrix",
                  "bulk_stores",
                  "bulk_loads",
                  "bulk_bytes",
                  "shared_tile_bytes",
                  "shared_exchange_bytes",
                  "global_load_bytes",
                  "atomics",
                  "mbarrier_arrivals",
                  "mbarrier_waits",
                  "named_barriers",
                  "named_waits",
                  "registers_moved"});
}

constexpr Shape crowds[] = {{3, 2, 1, 200, 130, 64}, {2, 3, 3, 130, 200, 128}};

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, crowds}, {"falling"}), .resident_blocks = 1);

}  // namespace
