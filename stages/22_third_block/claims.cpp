// Has tiles of 64 keys again, at d = 64.
#include "../17_per_dimension/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

// Of the head dimension that the stage has
std::vector<Case> cases() {
    std::vector<Case> list = cases_of({usual_shapes});
    std::erase_if(list, [](const Case& c) { return c.shape.d != 64; });
    return list;
}

void claim(Claims& c) {
    claim_narrow_tiles(c, 64, tiles_of(visits(c.p, wide_Br(c.p), 128, 1, 1, true)));
}

LADDER_CLAIMS(.claim = claim, .cases = cases());

}  // namespace
