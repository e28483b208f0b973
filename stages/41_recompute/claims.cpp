// Keeps L and D alone, and computes P and dP twice: seven products for five, of the tiles that are seen.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    // At d = 256 tiles are of 32 x 32, and two blocks share the columns of dK and dV of a key tile.
    const int side = p.d() <= 128 ? 64 : 32;
    const Count parts = p.d() <= 128 ? 1 : 2, in_block = side / 16;  // warps, of 16 rows or keys each
    const Count scores = Count(side) * side, product = scores * p.d() / (16 * 8 * 16);
    // Both kernels visit the same tiles: one query tile by query tile, the other key tile by key tile.
    const auto blocks = visits(p, side, side);
    const Count tiles = tiles_of(blocks), visits_of_both = (1 + parts) * tiles, Hkv = p.shape.Hkv;
    const Count padded = padded_rows(p, side), query_blocks = padded / side,
                key_blocks = p.B() * Hkv * up_to(p.Nk(), side) * parts;
    c.parent_is("workspace_bytes", p.rows() * p.Tc() * tile * (4 + 2 + 2));
    c.is("workspace_bytes", p.heads() * p.Tr() * tile * 2 * 4);  // L and D, for whole tiles
    c.is("launches", 3);
    c.is("blocks", prepare_blocks(p, side) + query_blocks + key_blocks);
    c.is("tiles", visits_of_both);
    c.is("masked_tiles", (1 + parts) * masked_of(blocks));
    c.parent_is("mma", p.tiles() * 5 * 2 * p.d());
    c.is("mma", tiles * (3 + 2 * parts + 2) * product);  // S and dP in each block; dQ, dK and dV once
    c.is("exponentials", visits_of_both * scores);
    c.is("global_store_bytes", padded * 2 * 4 + output_bytes(p));
    // L and D come from dO, O and L. One kernel reads Q, dO, L and D once and K and V per tile, the other K
    // and V once and Q, dO, L and D per tile; L and D with the rows past the last query.
    const Count rows_visited = sum(blocks, [](auto& v) { return v.tiles * v.queries; });
    c.is("global_load_bytes", p.rows() * (2 * p.d() * 2 + 4) +
                                  (p.rows() + parts * rows_visited) * 2 * p.d() * 2 +
                                  (query_blocks + parts * tiles) * side * 2 * 4 + KV_bytes_of(blocks, p) +
                                  parts * 2 * p.B() * Hkv * p.Nk() * p.d() * 2);
    const Count ldmatrix =
        (2 * visits_of_both * (1 + in_block) + 3 * tiles * in_block) * in_block * p.d() / 16;
    const Count copies = (query_blocks + key_blocks + visits_of_both) * 2 * side * p.d() / 8 +
                         (query_blocks + parts * tiles) * side / 2;
    c.is("ldmatrix", ldmatrix);
    c.is("async_copies", copies);
    c.is("shared_tile_bytes", tile_bytes(copies, ldmatrix));
    // Each lane reads L and D of its two rows per tile of dQ; for dK and dV those of all columns of its
    // pairs.
    c.is("shared_exchange_bytes", tiles * in_block * 32 * (2 * 2 * 4 + parts * 2 * side));
    c.is("barriers", visits_of_both * 2);
    c.is("shuffles", prepare_shuffles(p, side));
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})));

}  // namespace
