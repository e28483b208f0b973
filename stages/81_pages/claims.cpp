// Reads an entry of the block table for each key, and a shuffle for each key that a thread copies tells it.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const int Bc = c.p.d() > 128 ? 64 : 128;
    claim_line(c, Bc, lookups_of_pages(Bc));
    if (c.p.features.page_size == 0) c.only_moves({"shuffles"});
}

LADDER_CLAIMS(.claim = claim, .cases = joined(cases_of({decode_shapes}), paged_cases()));

}  // namespace
