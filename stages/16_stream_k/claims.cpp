// Gives as many blocks as fit at once even shares.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Count query_tiles = visits(c.p, 16, 64, c.p.group()).size();
    const bool three = c.p.d() <= 128 && query_tiles > static_cast<Count>(c.p.sm_count);
    claim_shares(c, 64, (three ? 3 : 1) * c.p.sm_count);
    for (const char* counter : {"tiles", "masked_tiles", "mma", "ldmatrix", "shuffles"}) c.stays(counter);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
