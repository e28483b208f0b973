// Visits the key tiles that the lists have, tests elements in the partial ones alone, and reads no more of
// the mask than the numbers of these tiles and the words of their rows.
#include <algorithm>

#include "harness/count/claims.h"
#include "harness/features/tiles.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    if (p.features.tiles.empty()) {  // nothing moves
        c.only_moves({});
        return;
    }
    const Case problem{.shape = p.shape, .features = p.features, .seed = p.seed};
    Count visited = 0, partial = 0, row_slices = 0, keys = 0;
    for (int head = 0; head < p.shape.B * p.shape.H; ++head) {
        const reference::Tiles tiles = tiles_of(problem, head / p.shape.H, head % p.shape.H);
        for (Count k = 0; k < tiles.kinds.size(); ++k) {
            if (tiles.kinds[k] == reference::Tiles::hidden) continue;
            const Count i = k / p.Tc(), j = k % p.Tc();
            visited += 1;
            partial += tiles.kinds[k] != reference::Tiles::full;
            row_slices += std::min<Count>(4, (p.Nq() - i * 64 + 15) / 16);
            keys += std::min<Count>(64, p.Nk() - j * 64);
        }
    }
    c.is("tiles", visited);
    c.is("masked_tiles", partial);
    c.is("mma", row_slices * p.d());
    c.is("barriers", visited * 2);
    c.is("exponentials", row_slices * 16 * (tile + in_a_quad));
    // Each of 128 threads: where the block's two lists begin and end, the number of each tile, and two words
    // of each partial one.
    const Count of_the_mask = 128 * (p.heads() * p.Tr() * 4 * 4 + visited * 4 + partial * 2 * 8);
    c.is("global_load_bytes", (p.rows() + 2 * keys) * p.d() * 2 + of_the_mask);
    c.is("workspace_bytes", 0);
}

/// The same problems with every pattern in turn, half of them the last.
std::vector<Case> with_tiles(std::vector<Case> cases) {
    const auto& patterns = tile_patterns();
    for (std::size_t k = 0; k < cases.size(); ++k) {
        cases[k].causal = false;
        cases[k].features.tiles = (k % 2 == 1 ? patterns.back() : patterns[k / 2 % patterns.size()]).name;
        cases[k].seed = k + 1;
    }
    return cases;
}

constexpr Shape long_shapes[] = {
    {1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {2, 2, 2, 400, 300, 64}, {1, 1, 1, 70, 2200, 64}};

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes}),
                              with_tiles(cases_of({long_shapes, usual_shapes, long_shapes}))));

}  // namespace
