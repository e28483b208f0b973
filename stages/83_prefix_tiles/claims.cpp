// Reads the prefix's keys for 64 rows of all requests at a time, a warp for each 16; every other key as
// before.
#include "../82_shared_prefix/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    claim_prefix(c, 64);
    if (p.features.prefix == 0) return c.only_moves({"workspace_bytes"});
    // The parent reads it once for each 16 rows.
    c.parent_is("tiles", work_of_both(p, paged_grid(p), paged_Bc(p), 16).at("tiles"));
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(joined(cases_of({decode_shapes}), paged_cases()), prefixed_cases()));

}  // namespace
