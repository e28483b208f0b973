// Reads the prefix's keys for 128 rows of all requests at a time, and own keys, in one launch of even shares;
// a second one merges. Bulk copies do not follow pages, so threads copy K and V.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const CacheWork work = claim_cache(c);
    c.is("exponentials", work.computed * 64 * cache_Bc(c.p) + work.rounds * 17 * 32);
}

LADDER_CLAIMS(.claim = claim, .cases = cache_cases(128), .resident_blocks = 1);

}  // namespace
