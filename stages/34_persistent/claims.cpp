// Has a block per multiprocessor, in which each query tile's Q and O have places of their own.
#include "../30_tma_wgmma/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto query = query_tiles(p);
    const Count groups = warpgroups(p), threads = 128 * groups;
    const bool takes_turns = p.d() <= 128;
    const Count tiles = query.size(), blocks = persistent_blocks(query, p);
    const Count panels = p.d() == 64 ? 1 : 2, stores = tiles * 4 * groups * p.d() / 64 / panels;
    const auto all = [&](auto&& f) { return sum_of_tiles(query, f); };
    c.is("blocks", blocks);
    // Once for each block, and no longer for each query tile: mbarriers set up, registers moved, first turn
    c.parent_is("barriers", tiles);
    c.is("barriers", blocks);
    c.is("registers_moved", c.parent.counters.registers_moved / tiles * blocks);
    // Each warp asks once which warpgroup it is of.
    c.is("shuffles", c.parent.counters.shuffles - 4 * (1 + groups) * (tiles - blocks));
    const Count turns = takes_turns ? all([&](Count Tc) { return threads * (Tc - 1); }) : 0;
    c.stays("named_waits");
    c.parent_is("named_barriers", 2 * turns + takes_turns * 128 * tiles);
    c.is("named_barriers", 2 * turns + takes_turns * 128 * blocks);
    // A place of Q is filled again, and so is that of the last V: both have been read.
    c.parent_is("mbarrier_arrivals", all([&](Count Tc) { return 1 + 2 * Tc + groups * (2 * Tc - 1); }));
    c.is("mbarrier_arrivals", all([&](Count Tc) { return 1 + 2 * Tc + groups * (2 * Tc + 1); }));
    c.parent_is("mbarrier_waits", all([&](Count Tc) { return 2 * Tc + threads * (2 * Tc + 1); }));
    c.is("mbarrier_waits", all([&](Count Tc) { return 2 * Tc + 1 + threads * (2 * Tc + 1); }));
    // A warp stores one or two panels together, between two __syncwarp: O's place is free, O is in it.
    c.parent_is("bulk_stores", tiles * 4 * groups * p.d() / 64);
    c.is("bulk_stores", stores);
    c.parent_is("warp_syncs", tiles * 4 * groups);
    c.is("warp_syncs", 2 * stores);
    c.only_moves({"blocks", "barriers", "registers_moved", "shuffles", "named_barriers", "mbarrier_arrivals",
                  "mbarrier_waits", "bulk_stores", "warp_syncs", "exponentials_beside_products",
                  "exponentials_beside_own_products", "mbarrier_stalls", "named_stalls"});
}

// More query tiles than multiprocessors, with one key tile, some, and as many as differ under a mask
constexpr Shape crowds[] = {{2, 9, 3, 200, 70, 64}, {1, 5, 1, 260, 260, 128}, {3, 3, 3, 130, 200, 256}};

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowds}), .resident_blocks = 1);

}  // namespace
