// Keeps P, dP and dS, all of them N x N, for five products.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count Hkv = p.shape.Hkv, tiles = p.tiles();  // with a mask, too: all of them
    const Count elements = p.rows() * p.Tc() * tile;   // of each matrix, whole key tiles
    c.is("workspace_bytes", elements * (4 + 2 + 2));   // dP in fp32, P and dS in 16 bits
    c.is("launches", 4);
    // A block for each tile of P, for each four rows, for each query tile of dQ and each key tile of dK and
    // dV
    c.is("blocks", tiles + p.heads() * ((p.Nq() + 3) / 4 + p.Tr()) + p.B() * Hkv * p.Tc());
    c.is("tiles", tiles);
    c.is("masked_tiles", tiles);
    c.is("mma", tiles * 5 * 2 * p.d());  // S, dP, dQ, dK and dV: 2 d for 64 x 64 x d
    // P, dP and dS are written once.
    c.is("global_store_bytes", elements * (4 + 2 + 2) + output_bytes(p));
    // The softmax's gradient reads P and dP twice, once for D; dS is read for dQ and for dK, P for dV. Q and
    // dO are read twice per tile, K three times and V once; L by the four lanes that hold a row.
    c.is("global_load_bytes", elements * (2 * (4 + 2) + 3 * 2) + 4 * p.rows() * p.Tc() * p.d() * 2 +
                                  3 * p.heads() * p.Tr() * p.Nk() * p.d() * 2 +
                                  p.rows() * p.Tc() * 4 * in_a_quad);
    // Of scores and dP five per 16 columns and warp, of the others four times as many as columns by 16, and
    // one for each 16 of what is summed over
    const Count ldmatrix = tiles * (2 * 5 * p.d() / 4 + 3 * (p.d() + 16));
    const Count copies = tiles * tile * (7 * p.d() + 3 * tile) / 8;  // seven tiles of d columns, three of 64
    c.is("ldmatrix", ldmatrix);
    c.is("async_copies", copies);
    c.is("shared_tile_bytes", tile_bytes(copies, ldmatrix));
    c.is("barriers", tiles * (3 + 2 + 2 * 2));
    c.is("shuffles", p.rows() * 5);
    // One for each score that is seen
    Count seen = 0;
    for (int row = 0; row < p.shape.Nq; ++row) seen += seen_by(p, 1, row);
    c.is("exponentials", p.heads() * seen);
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})));

}  // namespace
