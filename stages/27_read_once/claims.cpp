// Says of K and V, and of nothing else, that nobody reads them again.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const int Bc = c.p.d() > 128 ? 64 : 128;
    c.is("evict_first_bytes", KV_bytes_of(visits(c.p, 16, Bc, c.p.group()), c.p));
    c.only_moves({"evict_first_bytes"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
