// Under a window copies and multiplies what the parent does, and under column bounds and lists of tiles what
// 68 and 69 do. A softcap doubles the exponentials, and a sink takes two a row. A problem without any of them
// is the parent's work.
#include "../69_hopper_tiles/claims.h"
#include "../68_hopper_columns/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    if (!p.features.columns.empty()) return claim_columns(c);
    // There is room for column bounds: three intervals of each key, and what a tile of them has in common.
    const Count Bc = hopper_Bc(p);
    c.is("workspace_bytes", p.heads() * ((p.Nk() + Bc - 1) / Bc) * 3 * (Bc * 8 + 16) + 4);
    if (!p.features.tiles.empty()) return claim_tile_lists(c);
    const auto tiles = tiles_in_window(p);
    const Count written = 4 * writing_groups(tiles), computed = group_tiles(tiles);
    claim_tiles(c, tiles, persistent_blocks(tiles, p), written);
    // In a window a row may begin after the first tile of its warpgroup, which then counts as a rise of m;
    // with ALiBi later keys raise m.
    const Features& f = p.features;
    if (f.window == Window() && f.alibi.empty()) {
        const Count of_tiles = computed * 64 * hopper_Bc(p), of_sinks = written * 16 * 4 * 2;
        c.is("exponentials", of_tiles * (f.softcap > 0 ? 2 : 1) + (f.sinks.empty() ? 0 : of_sinks));
    }
    if (f == Features()) c.only_moves({"shared_exchange_bytes", "workspace_bytes"});
}

/// Each alone, and all at once in a window
std::vector<Case> with_scores(const std::vector<Case>& plain) {
    std::vector<Case> cases;
    for (std::size_t k = 0; k < plain.size(); ++k) {
        Case& c = cases.emplace_back(plain[k]);
        const bool all = k % 4 == 3;
        if (k % 4 == 0 || all) c.features.softcap = 30;
        if (k % 4 == 1 || all) c.features.alibi = "drawn";
        if (k % 4 == 2 || all) c.features.sinks = "drawn";
        if (all) c.features.window = {99, 20};
    }
    return cases;
}

/// Key tiles that are seen by some rows, and more of them than a warp classifies at a time, or exactly as
/// many
constexpr Shape masked_shapes[] = {
    {1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {2, 2, 2, 200, 300, 256}, {1, 1, 1, 130, 4098, 64}};

LADDER_CLAIMS(.claim = claim,
              .cases =
                  joined(joined(cases_of({usual_shapes, wide_shapes, crowded_shapes, ending_shapes}),
                                with_scores(cases_of({usual_shapes, wide_shapes, crowded_shapes}))),
                         joined(joined(hidden_by_gaps(),
                                       with_columns(cases_of({masked_shapes, ending_shapes, masked_shapes}))),
                                with_tiles(cases_of({masked_shapes, ending_shapes, masked_shapes})))),
              .resident_blocks = 1);

}  // namespace
