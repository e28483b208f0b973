// Takes its query tiles from a counter, under a mask the longest first, and has a block per multiprocessor
// there as well.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto tiles = query_tiles(p, false);
    const Count all = tiles.size(), blocks = persistent_blocks(tiles, p), groups = warpgroups(p);
    const Count parents = p.causal ? all : blocks;  // blocks of the parent that have a query tile
    c.is("workspace_bytes", 4);
    c.is("blocks", blocks);
    // Under a mask too, once for each block what was done for each query tile: mbarriers set up, registers
    // moved, first turn
    c.parent_is("barriers", parents);
    c.is("barriers", blocks);
    c.is("registers_moved", c.parent.counters.registers_moved / parents * blocks);
    const Count first_turns = p.d() <= 128 ? 128 : 0;
    c.is("named_barriers", c.parent.counters.named_barriers - first_turns * (parents - blocks));
    c.is("shuffles", persistent_shuffles(tiles, p));
    // After each query tile, also the last ones, a block asks for the next.
    c.parent_is("atomics", 0);
    c.is("atomics", all);
    // Which tile it is, 16 bytes: written once, read by each thread that multiplies; and that none is left
    c.parent_is("shared_exchange_bytes", 0);
    c.is("shared_exchange_bytes", (all + blocks) * 16 * (1 + 128 * groups));
    // Q is full; each thread has read it and `tile`. K and V are full; each warpgroup releases them. And once
    // for each block, no tile is left.
    c.is("mbarrier_arrivals", all * (1 + 128 * groups) + copied_tiles(tiles) * 2 * (1 + groups) + blocks);
    c.is("mbarrier_waits", persistent_waits(tiles, p));
    c.is("tiles", group_tiles(tiles));
    c.only_moves({"blocks", "barriers", "registers_moved", "named_barriers", "shuffles", "atomics",
                  "shared_exchange_bytes", "mbarrier_arrivals", "mbarrier_waits",
                  // These depend on which block took which tile, one after the other.
                  "exponentials_during_products", "exponentials_during_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

// Where each block takes one tile, block n has tile n. All heads of the claims' problems are one section, and
// those of one batch entry start together in the parent.
BlockOrder order(const Counted& p) {
    const auto tiles = query_tiles(p, false);
    if (!p.causal || tiles.size() > static_cast<Count>(p.sm_count)) return {};
    const Count Tr = tiles.size() / p.heads();
    const auto longest_first = [&](Count together) {
        std::vector<Count> order;
        for (Count first = 0; first < p.heads(); first += together) {
            for (Count i = Tr; i-- > 0;) {
                for (Count head = first; head < first + together; ++head) {
                    order.push_back(tiles[head * Tr + i].tiles * warpgroups(p));
                }
            }
        }
        return order;
    };
    return {longest_first(p.H()), longest_first(p.heads())};
}

// As many query tiles of two batch entries as there are multiprocessors
constexpr Shape batches[] = {{2, 2, 1, 256, 256, 128}};

LADDER_CLAIMS(.claim = claim,
              .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes, ending_shapes, batches}),
              .order = order, .resident_blocks = 1);

}  // namespace
