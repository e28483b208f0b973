// Copies boxes, multiplies tiles of a warpgroup, and keeps P in registers.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count d = p.d(), groups = warpgroups(p), Br = 64 * groups, Bc = hopper_Bc(p);
    const std::vector<QueryTile> blocks = query_tiles(p);
    const Count Tc = copied_tiles(blocks);
    const Count keys_in = sum_of_tiles(blocks, [&](Count tiles) { return std::min(tiles * Bc, p.Nk()); });
    const Count in_block = 4 * groups, threads = 32 * in_block, tiles = group_tiles(blocks),
                all = blocks.size();
    // One box for the 64 rows of Q of each warpgroup, and for each tile of K and V; one of O for each warp's
    // 16 rows of a panel of 64 columns.
    const Count boxes = (2 * all * Br + 2 * Tc * Bc) * d * 2, stmatrix = all * in_block * d / 16;
    c.is("bulk_loads", all * groups + 2 * Tc);
    c.is("bulk_stores", all * in_block * d / 64);
    c.is("bulk_bytes", boxes);
    c.is("async_copies", 0);
    c.is("global_load_bytes", (p.rows() + 2 * keys_in) * d * 2);
    c.is("global_store_bytes", output_bytes(p));
    // S = Q K^T in steps of 16 columns, O += P V in steps of 16 keys.
    const Count columns = tiles * (d / 16 * Bc + Bc / 16 * d);
    c.is("wgmma", tiles * (d + Bc) / 16);
    c.is("wgmma_columns", columns);
    c.is("mma", 0);
    c.is("ldmatrix", 0);
    c.is("stmatrix", stmatrix);
    c.is("shared_tile_bytes", boxes + stmatrix * 32 * 16);
    c.is("shared_exchange_bytes", 0);
    c.is("barriers", all);
    c.is("warp_syncs", all * in_block * d / 64);  // before each store
    // Of thread 0, which expects Q and each tile of K and V; and of each warpgroup, which has read one.
    c.is("mbarrier_arrivals", all + 2 * Tc * (1 + groups));
    // All wait for Q and each tile, and thread 0 for a free slot before each copy.
    c.is("mbarrier_waits", threads * (all + 2 * Tc) + 2 * Tc);
    c.is("tiles", tiles);
    c.is("masked_tiles", sum_of_groups(blocks, [](auto& group) { return group.masked; }));
    c.is("votes", 4 * tiles);
    c.is("divides", in_a_quad * (all * Br - p.rows_without_keys()));
    // A warpgroup waits for its products before it goes on.
    c.is("exponentials_during_own_products", 0);
    // Normal scores rise by less than 2^8 behind the first tile: that is rescaled, and no other.
    if (p.input == "normal") {
        c.is("exponentials", tiles * 64 * Bc);
        c.is("shuffles", all * in_block * (1 + 4 + 4));  // uniform(); the maxima of two rows; their sums
    }
    // Query rows that fill the tiles.
    if (p.Nq() % Br != 0 || p.Nq() % 128 != 0) return;
    std::vector<std::string_view> may_move{"shared_exchange_bytes",
                                           "shared_tile_bytes",
                                           "warp_syncs",
                                           "mbarrier_arrivals",
                                           "mbarrier_waits",
                                           "shuffles",
                                           "mma",
                                           "mma_during_copies",
                                           "ldmatrix",
                                           "async_copies",
                                           "copied_lines",
                                           "bulk_loads",
                                           "bulk_stores",
                                           "bulk_bytes",
                                           "wgmma",
                                           "wgmma_columns",
                                           "stmatrix",
                                           "tiles",
                                           "masked_tiles",
                                           "exponentials_during_products",
                                           "mbarrier_stalls"};
    if (d == 128)  // tiles of twice the keys, which reach further beyond their end and the diagonal
        may_move.insert(may_move.end(), {"votes", "exponentials", "global_load_bytes"});
    if (d == 64)  // 192 rows in 12 warps, where 128 were in four
        may_move.insert(may_move.end(), {"blocks", "barriers", "votes", "exponentials", "global_load_bytes"});
    c.only_moves(may_move);
    // The same products, of 4096 operations for each mma and 2048 for each column.
    if (!p.causal && p.Nk() % 128 == 0) {
        c.parent_is("mma", columns / 2);
        c.parent_is("tiles", p.heads() * p.Nq() / 128 * p.Nk() / (d == 64 ? 128 : 64));
    }
}

/// Query rows that fill 192 and 128, and rows that see no key.
constexpr Shape more_shapes[] = {{1, 1, 1, 384, 256, 64}, {1, 2, 1, 200, 6, 128}};

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, more_shapes}),
              .resident_blocks = 1);

}  // namespace
