// Takes even shares of the key tiles that requests have, and a lane of each warp looks at each request.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const auto nothing = [](const Counted&, const Visit&, int) { return ShareExtras(); };
    const int Bc = c.p.d() > 128 ? 64 : 128;
    claim_line(c, grid_of(c.p, Bc), Bc, nothing);
    if (!c.p.features.has_cache()) {  // which tiles are visited does not depend on who takes them
        for (const char* counter : {"tiles", "masked_tiles", "mma", "ldmatrix", "evict_first_bytes"})
            c.stays(counter);
    }
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({decode_shapes, usual_shapes, wide_shapes}), cases_with_lengths()));

}  // namespace
