// Takes exponentials beside its own product, and a turn for two products that were two turns.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const HopperTiles head(c.p);
    const Count heads = c.p.heads(), groups = head.groups, threads = head.threads;
    // The first scores and the last P V need no turn. The last warpgroup gives the first turn to the first.
    const auto waits = [&](Count turns_beside_tiles) {
        return head.turns ? heads * threads * head.sum([&](Count Tc) { return Tc + turns_beside_tiles; }) : 0;
    };
    const Count first_turns = head.turns ? heads * 128 * head.key_tiles.size() : 0;
    c.parent_is("named_waits", waits(1));
    c.is("named_waits", waits(-1));
    c.parent_is("named_barriers", 2 * waits(1) + first_turns);
    c.is("named_barriers", 2 * waits(-1) + first_turns);
    // Q, K and V are there; each warpgroup has read K and V, but nobody fills the place of the last V again.
    c.parent_is("mbarrier_arrivals",
                heads * head.sum([&](Count Tc) { return 1 + 2 * Tc + groups * 2 * Tc; }));
    c.is("mbarrier_arrivals", heads * head.sum([&](Count Tc) { return 1 + 2 * Tc + groups * (2 * Tc - 1); }));
    // By the model of time. The first tile's exponentials have no product of their warpgroup beside them; of
    // the others' at least a fifth has.
    const Count beside = c.child.counters.exponentials_beside_own_products;
    const Count later = c.child.counters.exponentials * heads * head.sum([](Count Tc) { return Tc - 1; }) /
                        (heads * head.sum([](Count Tc) { return Tc; }));
    c.parent_is("exponentials_beside_own_products", 0);
    c.is("exponentials_beside_own_products", later == 0 ? 0 : std::max(beside, later / 5));
    c.only_moves({"named_waits", "named_barriers", "mbarrier_arrivals", "exponentials_beside_products",
                  "exponentials_beside_own_products", "mbarrier_stalls", "named_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .resident_blocks = 1);

}  // namespace
