// Does the same work, and under a mask starts the longest blocks of several heads first.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    claim_gradient_tiles(c);
    c.only_moves({// By the model of time:
                  "exponentials_during_products", "exponentials_during_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

// Under a mask section by section, and in a section from the first key tile of all its heads to the last.
BlockOrder order(const Counted& p) {
    const GradientTiles of{p};
    const KeyTileOrder line(of, p.causal);
    const auto tiles_of_key_tile = [&](Count j) {
        const auto first = static_cast<std::int64_t>(j * of.Bc) - (p.shape.Nk - p.shape.Nq);
        const Count unseen = p.causal && first > 0 ? static_cast<Count>(first) / of.Br() : 0;
        const Count seen = of.query_tiles() - std::min(of.query_tiles(), unseen);
        return seen * p.H() / Count(p.shape.Hkv) * of.groups;
    };
    std::vector<Count> parent, tiles;
    for (Count head = 0; head < line.heads; ++head)
        for (Count j = 0; j < line.Tc; ++j) parent.push_back(tiles_of_key_tile(j));
    const Count rest = line.heads % line.section;  // heads of the first section, if it is not whole
    for (Count before = 0, section; before < line.heads; before += section) {
        section = before == 0 && rest > 0 ? rest : line.section;
        for (Count j = 0; j < line.Tc; ++j) tiles.resize(tiles.size() + section, tiles_of_key_tile(j));
    }
    // The kernel before has as many blocks or more, which visit no tiles.
    const Count before = p.heads() * ((of.query_tiles() * of.Br() * p.d() / 8 + 255) / 256);
    parent.resize(std::max<Count>(parent.size(), before)), tiles.resize(parent.size());
    return {parent, tiles};
}

// On 8 multiprocessors three key tiles make sections of two heads, and of five heads one is left for the
// first section; few query tiles see a key.
constexpr Shape sections[] = {{1, 5, 5, 2100, 384, 64}};

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, sections})), .order = order,
              .resident_blocks = 1);

}  // namespace
