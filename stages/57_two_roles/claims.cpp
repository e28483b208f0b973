// One warpgroup sums up dV, the other dK, and all five products are computed once.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

LADDER_CLAIMS(.claim = claim_two_roles, .cases = backward(cases_of({wide_shapes})), .resident_blocks = 1);

}  // namespace
