// Quantizes Q, K and V by two launches of its own, and then multiplies half as often, with half of the bytes.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const int Bc = fp8_Bc(p);
    const Count groups = fp8_warpgroups(p), blocks = fp8_heads(p) * fp8_blocks(p),
                with_rows = fp8_blocks_with_rows(p);
    const auto parents = query_tiles(p, true), tiles = query_tiles(p, true, groups, Bc);
    const Count computed = group_tiles(tiles), multiplying = persistent_blocks(tiles, p);
    const Count rows = sum_of_groups(tiles, [](auto& group) { return group.rows; });
    const Count O_bytes = 4 * writing_groups(tiles) * 16 * p.d() * 2;
    const Count loaded = fp8_loaded_bytes(tiles, groups, Bc, p);
    c.parent_is("launches", 1);
    c.is("launches", 3);
    c.is("blocks", 2 * blocks + multiplying);
    // Each block of the two kernels has one barrier, for a maximum, if it has rows to round.
    c.is("barriers", blocks + with_rows + multiplying);
    c.is("workspace_bytes", fp8_bytes(p) + 4 * (blocks + fp8_heads(p) + 1));
    c.is("global_store_bytes", output_bytes(p) + fp8_bytes(p) + 4 * (blocks + fp8_heads(p)));
    c.is("divides", rows * in_a_quad + 256 * with_rows + fp8_heads(p));
    c.parent_is("wgmma", group_tiles(parents) * (p.d() + hopper_Bc(p)) / 16);
    c.is("wgmma", computed * (p.d() + Bc) / 32);
    c.is("wgmma_columns", computed * p.d() * Bc / 16);
    c.is("exponentials", computed * 64 * Bc);
    c.is("bulk_bytes", loaded + O_bytes);
    c.is("shared_tile_bytes", loaded + 2 * O_bytes);
    std::vector<std::string_view> may_move{"launches",
                                           "blocks",
                                           "barriers",
                                           "workspace_bytes",
                                           "global_load_bytes",
                                           "global_store_bytes",
                                           "divides",
                                           "shared_exchange_bytes",
                                           "shuffles",
                                           "wgmma",
                                           "wgmma_columns",
                                           "wgmma_left_in_flight",
                                           "exponentials",
                                           "bulk_bytes",
                                           "shared_tile_bytes",
                                           "registers_moved",
                                           "exponentials_during_products",
                                           "exponentials_during_own_products",
                                           "mbarrier_stalls",
                                           "named_stalls"};
    if (hopper_Bc(p) != Bc)  // d = 256: tiles have twice the keys; d = 128: half, and a third warpgroup
        may_move.insert(may_move.end(), {"tiles", "masked_tiles", "votes", "bulk_loads", "mbarrier_arrivals",
                                         "mbarrier_waits", "named_barriers", "named_waits"});
    if (warpgroups(p) != groups)
        may_move.insert(may_move.end(), {"warp_syncs", "atomics", "stmatrix", "bulk_stores"});
    c.only_moves(may_move);
}

// Scores that fall with the keys: the first tile sets m, and nothing is rescaled.
LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes}, {"falling"}),
              .resident_blocks = 1);

}  // namespace
