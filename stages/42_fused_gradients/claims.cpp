// Computes each tile once, five products, and adds to dQ by atomics.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count d = p.d();
    const KeyTiles of{.slices = d == 64 ? 2u : 1u,
                      .warps = d == 256 ? 2u : 4u,
                      .gradients = 2,
                      .parts = d == 256 ? 2u : 1u,
                      .Br = d == 256 ? 32u : 64u,
                      .steps = d == 64 ? 2u : 1u};
    const Count visited = of.visited(p);
    claim_key_tiles(c, of);
    c.parent_is("atomics", 0);
    // L and D of two rows by each lane and step, and dS
    c.is("shared_exchange_bytes", visited * (of.warps * of.Br * 2 * 4 * 8 + of.scores() * 2));
    c.is("barriers", visited * 3);
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})));

}  // namespace
