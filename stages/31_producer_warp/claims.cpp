// Does the parent's work with a warp more, and moves registers to those who multiply.
#include "../30_tma_wgmma/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count groups = warpgroups(p), consumers = 128 * groups, producers = 128;
    const auto blocks = query_tiles(p);
    const Count passes = copied_tiles(blocks);
    // What a thread has at the launch, what the producer keeps, and what the others get of the rest.
    const Count launched = 65536 / (producers + consumers) / 8 * 8;
    const Count kept = groups == 3 ? 32 : 40, claimed = groups == 3 ? 160 : 232;
    c.is("registers_moved",
         blocks.size() * (producers * (launched - kept) + consumers * (claimed - launched)));
    // Each warp asks what its warpgroup is: four more of them. Those that multiply shuffle at their first
    // tile, for the maxima of two rows, and at the end, for their sums.
    c.is("shuffles", blocks.size() * (4 * (1 + groups) + 4 * groups * (4 + 4)));
    // Who copies does so elsewhere. A tile of K or V is still copied, arrived at and waited for as before.
    c.is("bulk_loads", blocks.size() * groups + passes * 2);
    c.is("mbarrier_arrivals", blocks.size() + passes * 2 * (1 + groups));
    c.is("mbarrier_waits", blocks.size() * consumers + passes * 2 * (1 + consumers));
    // When things happen moves. It is not claimed.
    c.only_moves({"registers_moved", "shuffles", "exponentials_during_products", "mbarrier_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .resident_blocks = 1);

}  // namespace
