// One warpgroup sums up dV, the other dK, and all five products are computed once.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    claim_two_roles(c);
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({wide_shapes})), .resident_blocks = 1);

}  // namespace
