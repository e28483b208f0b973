// Waits with later tiles in flight, and computes while they are.
#include <algorithm>

#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    c.parent_is("copies_left_in_flight", 0);
    c.parent_is("mma_during_copies", 0);
    const int group = p.group();
    const Count splits = splits_to_fill(p, visits(p, 16, 64, group).size(), p.d() > 128 ? 1 : 3);
    const auto blocks = visits(p, 16, 64, group, splits);
    c.is("workspace_bytes", part_bytes(splits, p));
    // The wait for a tile leaves those that follow, at most the ring less one.
    const Count depth = p.d() > 64 ? 2 : 4, copies_of_a_tile = 2 * tile * p.d() / 8;
    c.is("copies_left_in_flight", sum(blocks, [&](auto& v) {
             Count tiles = 0;
             for (Count j = 0; j < v.tiles; ++j) tiles += std::min(v.tiles - 1 - j, depth - 1);
             return tiles * copies_of_a_tile;
         }));
    // All tiles but a block's last have another one on its way.
    c.is("mma", tiles_of(blocks) * p.d());
    c.is("mma_during_copies", sum(blocks, [&](auto& v) { return (v.tiles - (v.tiles > 0)) * p.d(); }));
    // At d = 256 the ring leaves room for one block instead of two, and so for fewer splits.
    if (p.d() > 128 && splits_of(c.parent, p) != splits) return;
    c.only_moves({"copies_left_in_flight", "mma_during_copies"});
    c.stays("workspace_bytes");
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
