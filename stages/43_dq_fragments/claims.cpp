// Computes each tile once, five products, and adds to dQ by atomics, by fragments: four elements at a time.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const KeyTiles of = whole_gradients(p);
    const Count visited = of.visited(p);
    claim_key_tiles(c, of);
    // The parent computes S and dP of each tile for dQ, and for each part of dK and dV.
    c.parent_is("mma", visited / of.parts * (2 + 1 + 2 * of.parts + 2) * of.scores() * p.d() / (16 * 8 * 16));
    c.parent_is("atomics", 0);
    claim_fragments(c, of);
    // L and D of two rows by each lane, and dS
    c.is("shared_exchange_bytes", visited * (of.warps * of.Br * 2 * 4 * 8 + of.scores() * 2));
    c.parent_is("barriers", (visited + visited / of.parts) * 2);
    c.is("barriers", visited * 2);  // the tile has arrived; dS is complete
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})));

}  // namespace
