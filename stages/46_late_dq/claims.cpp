// Does the same work with one barrier per block, and arrivals and waits of its own.
#include "../45_mbarrier_ring/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const KeyTiles of = pairs_of_warps(p);
    const RingTiles tiles(p);
    claim_pairs(c);
    c.parent_is("barriers", tiles.all * (1 + of.steps) + key_blocks(p, of));
    c.is("barriers", key_blocks(p, of));  // once the mbarriers are set up
    // As in 45; and the warps of dV say that P of a step is complete, those of dK that dS is. Those of dK
    // wait for each P, and for dS of the tile before, and all of them for dS of the last tile.
    c.is("mbarrier_arrivals", tiles.all * of.warps * (2 * 32 + 16 * (of.steps + 1)));
    c.is("mbarrier_waits",
         tiles.all * of.warps * (2 * 32 + 16 * (of.steps + 1)) + key_blocks(p, of) * of.warps * 32);
    // The warps of dK compute their half of dQ, of the tile before, before copies of the next one start;
    // those of dV do so after it.
    const Count product = mma_of_product(p);
    c.is("mma_during_copies", tiles.with_next * (2 * product + 2 * product * (of.steps - 1) / of.steps) +
                                  tiles.between * product / 2);
    if (p.Nk() % of.Bc() == 0 && p.Nq() % tile == 0)
        c.only_moves({"barriers", "mbarrier_arrivals", "mbarrier_waits", "mma_during_copies"});
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})));

}  // namespace
