// Reads a fragment of K or V once for 32 rows.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count Bc = wide_Bc(p);
    const auto blocks = visits(p, wide_Br(p), wide_Bc(p));
    const Count tiles = tiles_of(blocks), warp_tiles = warp_tiles_of(blocks);
    c.is("blocks", blocks.size());
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(blocks));
    c.is("barriers", tiles * 2);
    // d = 256: one slice of 16 rows per warp, as in the parent, and so the parent's formulas.
    const Count ldmatrix = warp_tiles * (slices(p) + Bc / 16 + Bc / 16) * p.d() / 16;
    const Count copies = blocks.size() * wide_Br(p) * p.d() / 8 + tiles * 2 * Bc * p.d() / 8;
    c.is("mma", warp_tiles * slices(p) * p.d() * Bc / 64);
    c.is("ldmatrix", ldmatrix);
    c.is("shuffles", warp_tiles * slices(p) * 2 * 4);
    c.is("exponentials", warp_tiles * slices(p) * 16 * (Bc + in_a_quad));
    c.is("divides", (p.rows() - p.rows_without_keys()) * in_a_quad);
    c.is("global_store_bytes", output_bytes(p));
    c.is("global_load_bytes", p.rows() * p.d() * 2 + KV_bytes_of(blocks, p));
    c.is("async_copies", copies);
    c.is("shared_tile_bytes", tile_bytes(copies, ldmatrix));
    if (!c.has_parent()) return;  // it has no d = 256
    c.stays("divides");
    c.stays("global_store_bytes");
    // Rows and keys that fill the tiles, and no mask: the same products.
    if (p.causal || p.Nq() % 128 != 0 || p.Nk() % Bc != 0) return;
    const Count Q_bytes = p.rows() * p.d() * 2;
    c.parent_is("blocks", 2 * blocks.size());
    c.parent_is("global_load_bytes", Q_bytes + 2 * KV_bytes_of(blocks, p));
    std::vector<std::string_view> may_move{"blocks",       "tiles",
                                           "masked_tiles", "barriers",
                                           "ldmatrix",     "global_load_bytes",
                                           "async_copies", "shared_tile_bytes"};
    // A row's maximum and sum are for 128 keys at d = 64, which takes half as many shuffles and alphas.
    if (p.d() == 64) may_move.insert(may_move.end(), {"shuffles", "exponentials"});
    c.only_moves(may_move);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .resident_blocks = 2);

}  // namespace
