// Has a block per multiprocessor, tiles of 128 keys, and a hint that nobody reads them again.
#include "../16_stream_k/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const int Bc = c.p.d() > 128 ? 64 : 128;
    claim_shares(c, Bc, c.p.sm_count);
    c.parent_is("evict_first_bytes", 0);
    c.is("evict_first_bytes", KV_bytes_of(visits(c.p, 16, Bc, c.p.group()), c.p));
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
