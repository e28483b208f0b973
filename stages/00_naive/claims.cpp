// Keeps N x N matrices.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    if (p.causal) return;
    const Count elements = p.rows() * p.Tc() * tile;  // S in fp32 and P in 16 bits, whole key tiles
    c.is("workspace_bytes", elements * (4 + 2));
    c.is("launches", 3);
    // A block for each tile of S, for each four rows, and for each query tile of O
    c.is("blocks", p.tiles() + p.heads() * ((p.Nq() + 3) / 4 + p.Tr()));
    c.is("masked_tiles", p.Nk() % tile == 0 ? 0 : p.heads() * p.Tr());
    c.is("mma", p.slice_tiles() * p.d());
    // S is written once, P once, and O and L
    c.is("global_store_bytes", elements * (4 + 2) + output_bytes(p));
    // Q and V are read once per tile row and column as in every stage; S three times, by the passes over
    // a row; P once.
    const Count Q_bytes = p.rows() * p.Tc() * p.d() * 2,
                KV_bytes = 2 * p.heads() * p.Tr() * p.Nk() * p.d() * 2;
    c.is("global_load_bytes", Q_bytes + KV_bytes + elements * (3 * 4 + 2));
    c.is("exponentials", 2 * elements);  // once for the sum, once for the quotient
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes}));

}  // namespace
