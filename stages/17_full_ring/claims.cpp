// Has a block per multiprocessor, and tiles of 128 keys.
#include "../25_even_shares/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    claim_shares(c, c.p.d() > 128 ? 64 : 128, c.p.sm_count);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
