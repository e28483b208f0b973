// Rows of Q and of K are read once, by the block that finds their scale; those of V twice, as before. There
// is a scale for each block of rows.
#include "../70_fp8_products/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count KV_heads = p.B() * p.shape.Hkv, V_blocks = KV_heads * ((p.Nk() + fp8_rows - 1) / fp8_rows),
                with_rows = fp8_blocks_with_rows(p), all_blocks = fp8_heads(p) * fp8_blocks(p);
    const auto tiles = query_tiles(p, true, promoting_warpgroups(p), promoting_Bc(p));
    const Count multiplying = persistent_blocks(tiles, p);
    const Count rows = sum_of_groups(tiles, [](auto& group) { return group.rows; });
    c.parent_is("blocks", 2 * all_blocks + multiplying);
    c.is("blocks", V_blocks + all_blocks + multiplying);
    c.is("barriers", V_blocks + with_rows + multiplying);
    c.is("workspace_bytes", fp8_bytes(p) + 4 * (V_blocks + all_blocks + 1));
    c.is("global_store_bytes", output_bytes(p) + fp8_bytes(p) + 4 * (V_blocks + with_rows));
    // Rows of Q and K, and the maxima of their blocks, which each block read. A thread that multiplies read
    // the scales of Q and K of its head; now, if its rows see a key, that of its rows and one for each key
    // tile.
    const auto blocks = [](Count N) { return (N + fp8_rows - 1) / fp8_rows; };
    const Count read_again =
        2 * p.d() * (p.heads() * p.Nq() + KV_heads * p.Nk()) +
        4 * (p.heads() * blocks(p.Nq()) * blocks(p.Nq()) + KV_heads * blocks(p.Nk()) * blocks(p.Nk()));
    const Count scales_of_heads = 2 * promoting_warpgroups(p) * tiles.size(),
                scales_of_blocks = writing_groups(tiles) + group_tiles(tiles);
    c.is("global_load_bytes",
         c.parent.counters.global_load_bytes - read_again + 4 * 128 * (scales_of_blocks - scales_of_heads));
    c.is("divides", rows * in_a_quad + 257 * with_rows);
    c.only_moves({"blocks", "barriers", "workspace_bytes", "global_load_bytes", "global_store_bytes",
                  "divides", "shared_exchange_bytes", "shuffles", "exponentials_during_products",
                  "exponentials_during_own_products", "mbarrier_stalls", "named_stalls"});
}

constexpr Shape crowds[] = {{3, 2, 1, 200, 130, 64}, {2, 3, 3, 130, 200, 128}};

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, crowds}, {"falling"}), .resident_blocks = 1);

}  // namespace
