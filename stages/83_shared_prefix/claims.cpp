// Reads the prefix's keys for 16 rows of all requests at a time, and every other key as before.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    claim_prefix(c, 16);
    if (c.p.features.prefix == 0) c.only_moves({"workspace_bytes"});
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(joined(cases_of({decode_shapes}), paged_cases()), prefixed_cases()));

}  // namespace
