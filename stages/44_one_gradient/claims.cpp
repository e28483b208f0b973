// A warp sums up dV or dK, of twice as many keys, and reads a fragment of Q or dO for all of them.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const KeyTiles of = pairs_of_warps(c.p);
    claim_pairs(c);
    c.is("barriers", of.visited(c.p) * (2 + of.steps));  // one for each step's P
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})));

}  // namespace
