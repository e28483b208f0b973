// A sixteenth of the exponentials of P are cubics, in every key tile of every warpgroup. No other count
// changes.
#include "../70_fp8_products/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const auto tiles = query_tiles(c.p, true, fp8_warpgroups(c.p), fp8_Bc(c.p));
    const Count of_P = group_tiles(tiles) * 64 * fp8_Bc(c.p);  // no maximum rises
    c.parent_is("exponentials", of_P);
    c.is("exponentials", of_P - of_P / 16);
    c.only_moves({"exponentials", "exponentials_during_products", "exponentials_during_own_products",
                  "mbarrier_stalls", "named_stalls"});
}

constexpr Shape crowds[] = {{3, 2, 1, 200, 130, 64}, {2, 3, 3, 130, 200, 128}, {1, 2, 2, 200, 130, 256}};

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, crowds}, {"falling"}), .resident_blocks = 1);

}  // namespace
