// Moves half the bytes of K and V, which the parent's formulas count apart from scales and Q. Tiles have
// twice as many keys.
#include "../16_stream_k/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const int Bc = c.p.d() > 128 ? 128 : 256;
    claim_shares(c, Bc, c.p.sm_count, true);
    c.is("evict_first_bytes", KV_bytes_of(visits(c.p, 16, Bc, c.p.group()), c.p) / 2);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
