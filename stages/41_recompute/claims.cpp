// Keeps D alone, and computes P and dP twice: seven products for five, of the tiles that are seen.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    // At d = 256 tiles are of 32 x 32, and two blocks share the columns of dK and dV of a key tile.
    const int side = p.d() <= 128 ? 64 : 32;
    const Count parts = p.d() <= 128 ? 1 : 2, in_block = side / 16;  // warps, of 16 rows or keys each
    const auto Tiles = [&](Count N) { return (N + side - 1) / side; };
    const Count scores = Count(side) * side, product = scores * p.d() / (16 * 8 * 16);
    // Both kernels visit the same tiles: one query tile by query tile, the other key tile by key tile.
    const auto blocks = visits(p, side, side);
    const Count tiles = tiles_of(blocks), visits_of_both = (1 + parts) * tiles, Hkv = p.shape.Hkv;
    const Count query_blocks = p.heads() * Tiles(p.Nq()), key_blocks = p.B() * Hkv * Tiles(p.Nk()) * parts;
    c.parent_is("workspace_bytes", p.rows() * p.Tc() * tile * (4 + 2 + 2));
    c.is("workspace_bytes", p.rows() * 4);  // D
    c.is("launches", 3);
    c.is("blocks", p.heads() * ((p.Nq() + in_block - 1) / in_block) + query_blocks + key_blocks);
    c.is("tiles", visits_of_both);
    c.is("masked_tiles", (1 + parts) * masked_of(blocks));
    c.parent_is("mma", p.tiles() * 5 * 2 * p.d());
    c.is("mma", tiles * (3 + 2 * parts + 2) * product);  // S and dP in each block; dQ, dK and dV once
    c.is("exponentials", visits_of_both * scores);
    c.is("global_store_bytes", p.rows() * 4 + output_bytes(p));
    // D reads dO and O. One kernel reads Q, dO, L and D once and K and V per tile, the other K and V once and
    // Q, dO, L and D per tile.
    const Count row_bytes = 2 * p.d() * 2 + 2 * 4;
    const Count rows_visited = sum(blocks, [](auto& v) { return v.tiles * v.queries; });
    c.is("global_load_bytes", 2 * p.rows() * p.d() * 2 + (p.rows() + parts * rows_visited) * row_bytes +
                                  KV_bytes_of(blocks, p) + parts * 2 * p.B() * Hkv * p.Nk() * p.d() * 2);
    const Count ldmatrix =
        (2 * visits_of_both * (1 + in_block) + 3 * tiles * in_block) * in_block * p.d() / 16;
    const Count copies = (query_blocks + key_blocks + visits_of_both) * 2 * side * p.d() / 8;
    c.is("ldmatrix", ldmatrix);
    c.is("async_copies", copies);
    c.is("shared_tile_bytes", tile_bytes(copies, ldmatrix));
    // Each score reads its row's L and D; they are written whenever a query tile is copied.
    c.is("shared_exchange_bytes", (visits_of_both * scores + (query_blocks + parts * tiles) * side) * 2 * 4);
    c.is("barriers", visits_of_both * 2);
    c.stays("shuffles");
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})));

}  // namespace
