// Without promotion all work is the parent's. With promotion P V of a key tile is one product for each 64
// columns, with the same total of columns.
#include "../70_fp8_products/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    if (!p.features.promotion) {
        c.only_moves({});
        return;
    }
    const int Bc = promoting_Bc(p);
    const auto tiles = query_tiles(p, true, promoting_warpgroups(p), Bc);
    const Count computed = group_tiles(tiles);
    c.is("tiles", computed);
    c.is("wgmma", computed * (p.d() / 32 + p.d() / 64 * Bc / 32));
    c.is("wgmma_columns", computed * p.d() * Bc / 16);
    c.is("exponentials", computed * 64 * Bc);
    c.is("bank_conflicts", 0);
}

std::vector<Case> promoted(std::vector<Case> cases) {
    for (Case& c : cases) c.features.promotion = true;
    return cases;
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes, wide_shapes, crowded_shapes}, {"falling"}),
                              promoted(cases_of({usual_shapes, wide_shapes, crowded_shapes}, {"falling"}))),
              .resident_blocks = 1);

}  // namespace
