// Computes each tile once, five products, and adds to dQ by atomics.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    // At d = 256 tiles are of 32 x 32, and two blocks share the columns of the gradients, each with all of S
    // and dP.
    const int side = p.d() <= 128 ? 64 : 32;
    const Count parts = p.d() <= 128 ? 1 : 2, in_block = side / 16;  // warps, of 16 rows or keys each
    const auto up_to = [](Count n, Count of) { return (n + of - 1) / of; };
    const Count scores = Count(side) * side, product = scores * p.d() / (16 * 8 * 16);
    const auto blocks = visits(p, side, side);  // those of 41's query tiles; here a block has a key tile
    const Count tiles = tiles_of(blocks), visited = parts * tiles, Hkv = p.shape.Hkv;
    const Count key_blocks = p.B() * Hkv * up_to(p.Nk(), side) * parts;
    const Count padded = up_to(p.Nq(), side) * side;  // rows of a head
    const Count prepare_blocks = p.heads() * up_to(padded * p.d() / 8, 256);
    // dQ, L and D in fp32, for whole tiles
    c.is("workspace_bytes", p.heads() * p.Tr() * tile * (p.d() + 2) * 4);
    c.is("launches", 3);
    c.is("blocks", prepare_blocks + key_blocks + p.heads() * up_to(padded * p.d() / 16, 256));
    c.parent_is("tiles", (1 + parts) * tiles);
    c.is("tiles", visited);
    c.is("masked_tiles", parts * masked_of(blocks));
    c.parent_is("mma", tiles * (2 * parts + 5) * product);
    c.is("mma", tiles * (2 * parts + 3) * product);
    c.parent_is("exponentials", (1 + parts) * tiles * scores);
    c.is("exponentials", visited * scores);
    c.parent_is("atomics", 0);
    c.is("atomics", tiles * side * p.d());  // elements of dQ; sm_90 adds four at once
    // dQ = 0, L and D, and then what every stage writes
    c.is("global_store_bytes", p.heads() * padded * (p.d() + 2) * 4 + output_bytes(p));
    // dO, O and L once; K and V once per block; Q, dO, L and D per tile, the last two with the rows behind
    // the last query; and the sums, by 16 rows.
    const Count rows_visited = sum(blocks, [](auto& v) { return v.tiles * v.queries; });
    c.is("global_load_bytes", p.rows() * (2 * p.d() * 2 + 4) + parts * 2 * p.B() * Hkv * p.Nk() * p.d() * 2 +
                                  parts * rows_visited * 2 * p.d() * 2 + visited * side * 2 * 4 +
                                  p.heads() * up_to(p.Nq(), 16) * 16 * p.d() * 4);
    const Count ldmatrix = (2 * visited * (1 + in_block) + 3 * tiles * in_block) * in_block * p.d() / 16 +
                           visited * in_block * in_block;  // dS, for dQ
    const Count copies = (key_blocks + visited) * 2 * side * p.d() / 8 + visited * side / 2;
    c.is("ldmatrix", ldmatrix);
    c.is("async_copies", copies);
    c.is("shared_tile_bytes", tile_bytes(copies, ldmatrix));
    c.is("shared_exchange_bytes", visited * scores * (2 * 4 + 2));  // L and D of each score, and its dS
    c.is("barriers", visited * 3);
    Count steps = 0;
    while ((8 << steps) < p.shape.d) ++steps;
    c.is("shuffles", prepare_blocks * 8 * steps);
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})));

}  // namespace
