// Does the same work, and takes its query tiles from a counter, under a mask the longest first.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto tiles = query_tiles(p, false);
    const Count blocks = persistent_blocks(tiles, p), groups = warpgroups(p);
    c.is("workspace_bytes", 4);
    c.is("blocks", blocks);
    // Behind each query tile, also the last ones, a block asks for the next.
    c.parent_is("atomics", 0);
    c.is("atomics", tiles.size());
    // Which tile it is, 16 bytes: written once, read by each thread that multiplies; and that there is none.
    c.parent_is("shared_exchange_bytes", 0);
    c.is("shared_exchange_bytes", (tiles.size() + blocks) * 16 * (1 + 128 * groups));
    // Of Q that it is there and, of each thread, that it and `tile` have been read; of K and V the same, of
    // each warpgroup; and that there is no tile.
    c.is("mbarrier_arrivals",
         tiles.size() * (1 + 128 * groups) + copied_tiles(tiles) * 2 * (1 + groups) + blocks);
    c.is("mbarrier_waits", persistent_waits(tiles, p));
    c.is("shuffles", persistent_shuffles(tiles, p));
    c.is("tiles", group_tiles(tiles));
    c.only_moves({"atomics", "shared_exchange_bytes", "mbarrier_arrivals", "mbarrier_waits", "shuffles",
                  // These depend on which block took which tile, one behind the other.
                  "exponentials_beside_products", "exponentials_beside_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

// Where each block takes one tile, block n has tile n. All heads of the claims' problems are one section.
BlockOrder order(const Counted& p) {
    const auto tiles = query_tiles(p, false);
    if (tiles.size() > static_cast<Count>(p.sm_count)) return {};
    std::vector<Count> head_by_head;
    for (const QueryTile& of_block : tiles) head_by_head.push_back(of_block.tiles * warpgroups(p));
    if (!p.causal) return {head_by_head, head_by_head};
    std::vector<Count> longest_first;
    const Count Tr = tiles.size() / p.heads();
    for (Count i = Tr; i-- > 0;) {
        for (Count head = 0; head < p.heads(); ++head) longest_first.push_back(head_by_head[head * Tr + i]);
    }
    return {head_by_head, longest_first};
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes}), .order = order,
              .resident_blocks = 1);

}  // namespace
