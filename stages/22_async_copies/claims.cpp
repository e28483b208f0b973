// Computes all but the last P V with copies in flight.
#include <algorithm>

#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = visits(p, wide_Br(p), wide_Bc(p));
    c.parent_is("mma_during_copies", 0);
    // S of a tile with its V in flight, P V with the next K, which the last tile does not have.
    c.is("mma_during_copies", sum(blocks, [&](auto& v) {
             return v.tiles == 0 ? 0 : (2 * v.tiles - 1) * v.warps * slices(p) * wide_Bc(p) * p.d() / 128;
         }));
    // Nothing is copied twice, and no barrier is added. A block without a key tile leaves Q alone too.
    std::vector<std::string_view> may_move{"mma_during_copies"};
    const bool all_start =
        std::all_of(blocks.begin(), blocks.end(), [](const Visit& v) { return v.tiles > 0; });
    if (!all_start)
        may_move.insert(may_move.end(),
                        {"global_load_bytes", "async_copies", "copied_lines", "shared_tile_bytes"});
    c.only_moves(may_move);
    const Count copies = sum(
        blocks, [&](auto& v) { return ((v.tiles > 0) * wide_Br(p) + 2 * v.tiles * wide_Bc(p)) * p.d() / 8; });
    c.is("global_load_bytes",
         sum(blocks, [&](auto& v) { return ((v.tiles > 0) * v.queries + 2 * v.keys) * p.d() * 2; }));
    c.is("async_copies", copies);
    c.is("shared_tile_bytes", tile_bytes(copies, c.parent.counters.ldmatrix));
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .resident_blocks = 2);

}  // namespace
