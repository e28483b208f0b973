// A warp sums up dV or dK, not both, and reads a fragment of Q or dO once for all of its keys.
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
