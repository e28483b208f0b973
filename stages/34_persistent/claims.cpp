// Has, without a mask, a block per multiprocessor, in which K, V and Q have slots that are filled again.
#include "../30_tma_wgmma/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto query = query_tiles(p);
    const Count groups = warpgroups(p), threads = 128 * groups;
    const Count tiles = query.size(), blocks = p.causal ? tiles : persistent_blocks(query, p);
    const auto all = [&](auto&& f) { return sum_of_tiles(query, f); };
    if (p.causal) {
        c.stays("blocks");
    } else {
        c.is("blocks", blocks);
    }
    // Once for each block, and no longer for each query tile: mbarriers set up, registers moved, first turn
    c.parent_is("barriers", tiles);
    c.is("barriers", blocks);
    c.is("registers_moved", c.parent.counters.registers_moved / tiles * blocks);
    // Each warp asks once which warpgroup it is of.
    c.is("shuffles", c.parent.counters.shuffles - 4 * (1 + groups) * (tiles - blocks));
    c.stays("named_waits");
    const Count first_turns = p.d() <= 128 ? 128 : 0;
    c.is("named_barriers", c.parent.counters.named_barriers - first_turns * (tiles - blocks));
    // Slots of Q are filled again, and so is that of the last V: both are released.
    c.parent_is("mbarrier_arrivals", all([&](Count Tc) { return 1 + 2 * Tc + groups * (2 * Tc - 1); }));
    c.is("mbarrier_arrivals", all([&](Count Tc) { return 1 + 2 * Tc + groups * (2 * Tc + 1); }));
    c.parent_is("mbarrier_waits", all([&](Count Tc) { return 2 * Tc + threads * (2 * Tc + 1); }));
    c.is("mbarrier_waits", all([&](Count Tc) { return 2 * Tc + 1 + threads * (2 * Tc + 1); }));
    c.only_moves({"blocks", "barriers", "registers_moved", "shuffles", "named_barriers", "mbarrier_arrivals",
                  "mbarrier_waits", "exponentials_during_products", "exponentials_during_own_products",
                  "mbarrier_stalls", "named_stalls"});
}

// More query tiles than multiprocessors, with one key tile, some, and as many as differ under a mask
constexpr Shape crowds[] = {{2, 9, 3, 200, 70, 64}, {1, 5, 1, 260, 260, 128}, {3, 3, 3, 130, 200, 256}};

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowds}), .resident_blocks = 1);

}  // namespace
