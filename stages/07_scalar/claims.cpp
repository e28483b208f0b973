// Computes S and O without a matrix instruction, and keeps nothing of N x N: it reads K and V once per query
// tile, and each thread reads all of a tile from shared memory.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count Bc = 32, Tc = (p.Nk() + Bc - 1) / Bc, tiles = p.heads() * p.Tr() * Tc;
    c.is("launches", 1);
    c.is("blocks", p.heads() * p.Tr());
    c.is("workspace_bytes", 0);
    for (const char* matrix_unit : {"mma", "ldmatrix", "async_copies", "shuffles"}) c.is(matrix_unit, 0);
    // Under a mask, too: algorithm 1 has none, and the stage skips nothing.
    c.is("tiles", tiles);
    c.is("masked_tiles", tiles);
    c.is("barriers", 2 * tiles);
    c.is("global_load_bytes", p.rows() * p.d() * 2 + 2 * p.heads() * p.Tr() * p.Nk() * p.d() * 2);
    c.is("global_store_bytes", output_bytes(p));
    // Whole tiles of Q, K and V are written. For each key tile a thread reads its row of Q, all of K and V,
    // and writes and reads its row of P.
    const Count Q_bytes = p.heads() * p.Tr() * tile * p.d() * 2, KV_bytes = tiles * 2 * Bc * p.d() * 2;
    const Count row_bytes = p.d() * 2 + 2 * Bc * p.d() * 2 + 2 * Bc * 4;
    c.is("shared_exchange_bytes", Q_bytes + KV_bytes + p.rows() * Tc * row_bytes);
    c.is("exponentials", p.rows() * Tc * (Bc + 1));  // P, and alpha
    c.is("divides", p.rows() - p.rows_without_keys());
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes}));

}  // namespace
