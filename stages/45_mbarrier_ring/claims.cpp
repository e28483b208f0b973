// Does the same work with a barrier fewer per tile, and copies of the next tile in flight.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const KeyTiles of = pairs_of_warps(p);
    const RingTiles tiles(p);
    claim_pairs(c);
    c.parent_is("barriers", tiles.all * (2 + of.steps));
    c.is("barriers", tiles.all * (1 + of.steps) + key_blocks(p, of));  // and once the mbarriers are set up
    // All threads say that their copies have landed, and that they have read the tile and its dS. All wait
    // for the tile, and before they copy, for the one before to have been read.
    c.is("mbarrier_arrivals", tiles.all * of.warps * 2 * 32);
    c.is("mbarrier_waits", tiles.all * of.warps * 2 * 32);
    // Copies of the next tile are in flight from the first product of a tile to its end: while dV, dK and dQ
    // are summed up, and S and dP of further steps.
    const Count product = mma_of_product(p);
    c.parent_is("mma_during_copies", 0);
    c.is("mma_during_copies", tiles.with_next * (3 * product + 2 * product * (of.steps - 1) / of.steps));
    if (p.Nk() % of.Bc() == 0 && p.Nq() % tile == 0)
        c.only_moves({"barriers", "mbarrier_arrivals", "mbarrier_waits", "mma_during_copies"});
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})));

}  // namespace
