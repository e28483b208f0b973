// Copies the key tiles of a window, multiplies by those of each warpgroup's rows, and masks at the edges.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto tiles = tiles_in_window(p);
    claim_tiles(c, tiles, persistent_blocks(tiles, p), 4 * writing_groups(tiles));
    // In a window a row may begin after the first tile of its warpgroup, which then counts as a rise of m.
    if (p.features.window == Window())
        c.only_moves({"mbarrier_waits", "mbarrier_stalls", "named_waits", "named_barriers", "named_stalls",
                      "exponentials_during_products", "exponentials_during_own_products"});
}

std::vector<Case> in_windows(std::vector<Case> cases) {
    const Window windows[] = {{300, 0}, {127, 0}, {128, 30}, {-1, 5}, {0, 0}, {65, -1}};
    for (std::size_t k = 0; k < cases.size(); ++k) cases[k].features.window = windows[k % std::size(windows)];
    return cases;
}

constexpr Shape long_shapes[] = {{1, 2, 1, 700, 700, 64}, {1, 1, 1, 500, 650, 128}, {1, 1, 1, 400, 300, 256}};

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes, wide_shapes, crowded_shapes, ending_shapes}),
                              in_windows(cases_of({long_shapes, usual_shapes, crowded_shapes}))),
              .resident_blocks = 1);

}  // namespace
