// Reads an entry of the block table for each key, and a shuffle for each key that a thread copies tells it.
// Two blocks for each multiprocessor divide the same keys.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const int Bc = paged_Bc(c.p);
    claim_line(c, paged_grid(c.p), Bc, lookups_of_pages(Bc));
    if (c.p.features.page_size != 0) return;
    c.stays("evict_first_bytes");
    if (c.p.d() == 64) {  // which tiles are visited does not depend on the number of blocks
        for (const char* counter : {"tiles", "masked_tiles", "mma", "ldmatrix"}) c.stays(counter);
    }
    if (c.p.d() == 256) c.only_moves({"shuffles"});
}

LADDER_CLAIMS(.claim = claim, .cases = joined(cases_of({decode_shapes}), paged_cases()));

}  // namespace
