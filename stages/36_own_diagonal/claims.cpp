// Computes with the key tiles that the rows of a warpgroup see, and for rows that there are.
#include "../35_tile_scheduler/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto parents = query_tiles(p, false), tiles = query_tiles(p, true);
    const Count Bc = hopper_Bc(p), computed = group_tiles(tiles), writing_warps = 4 * writing_groups(tiles);
    const Count stores = writing_warps * stores_of_warp(p), O_bytes = writing_warps * 16 * p.d() * 2;
    const Count loaded_bytes = (tiles.size() * 64 * warpgroups(p) + 2 * copied_tiles(tiles) * Bc) * p.d() * 2;
    c.parent_is("tiles", group_tiles(parents));
    c.is("tiles", computed);
    c.is("masked_tiles", sum_of_groups(tiles, [](auto& group) { return group.masked; }));
    c.is("wgmma", computed * (p.d() / 16 + Bc / 16));
    c.is("wgmma_columns", computed * (p.d() / 16 * Bc + Bc / 16 * p.d()));
    c.is("exponentials", computed * 64 * Bc);
    c.is("votes", computed * 4);
    c.is("shuffles", persistent_shuffles(tiles, p));
    c.is("warp_syncs", 2 * stores);
    c.is("mbarrier_waits", persistent_waits(tiles, p));
    c.is("divides", sum_of_groups(tiles, [](auto& group) { return group.rows; }) * in_a_quad);
    c.is("stmatrix", writing_warps * p.d() / 16);
    c.is("bulk_stores", stores);
    c.is("bulk_bytes", loaded_bytes + O_bytes);
    c.is("shared_tile_bytes", loaded_bytes + 2 * O_bytes);
    // Tiles are copied as before. Whoever does not see one has the producer arrive, and takes its turns.
    std::vector<std::string_view> may_move{"exponentials_during_products", "exponentials_during_own_products",
                                           "mbarrier_stalls", "named_stalls"};
    if (computed != group_tiles(parents))
        may_move.insert(may_move.end(),
                        {"tiles", "masked_tiles", "wgmma", "wgmma_columns", "wgmma_left_in_flight",
                         "exponentials", "votes", "shuffles", "warp_syncs", "mbarrier_waits", "divides",
                         "stmatrix", "bulk_stores", "bulk_bytes", "shared_tile_bytes"});
    c.only_moves(may_move);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes, ending_shapes}),
              .resident_blocks = 1);

}  // namespace
