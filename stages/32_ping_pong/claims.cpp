// Does the parent's work in turns: exponentials are computed while another warpgroup multiplies.
#include "../30_tma_wgmma/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    if (p.d() > 128) {  // no turns, and not even the model's times move
        c.is("named_barriers", 0);
        return c.only_moves({});
    }
    const Count groups = warpgroups(p), consumers = 128 * groups;
    const auto blocks = query_tiles(p);
    // A turn for the first scores, and one for each P V and the scores behind it. The last warpgroup gives
    // the first one, too.
    const Count turns = copied_tiles(blocks) + blocks.size();
    c.is("named_waits", consumers * turns);
    c.is("named_barriers", 2 * consumers * turns + blocks.size() * 128);
    // In the model's time, all exponentials are beside another warpgroup's product from the second tile on,
    // but for the ends. Of two warpgroups, which start together, one is ahead by a product of 64 clocks: it
    // computes 16 a clock beside the other's last scores, and the other as many beside its first P V.
    const Count edge = 64 * 16, in_tile = 64 * groups * hopper_Bc(p);
    if (groups == 2) {
        c.parent_is("exponentials_during_products", copied_tiles(blocks) * 2 * edge);
        c.is("exponentials_during_products",
             sum_of_tiles(blocks, [&](Count Tc) { return 2 * edge + (Tc - 1) * in_tile; }));
    } else {
        // Of three, the first two are ahead by one product each, and the first has ended its exponentials
        // for 160 clocks when the others have. At the end the last ones are alone for 128.
        c.is("exponentials_during_products", sum_of_tiles(blocks, [&](Count Tc) {
                 const Count first = 2 * edge + 160 * 16, alone = Tc > 1 ? 128 * 16 : 0;
                 return first + (Tc - 1) * in_tile - alone;
             }));
    }
    c.only_moves(
        {"named_barriers", "named_waits", "named_stalls", "exponentials_during_products", "mbarrier_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .resident_blocks = 1);

}  // namespace
