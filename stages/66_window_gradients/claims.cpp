// Multiplies a key tile by the query tiles whose windows reach it, and masks at the edges.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// Whether a row sees a key, by the definition of a window
bool sees(const Counted& p, int row, int key) {
    const int distance = key - (row + p.shape.Nk - p.shape.Nq),
              right = p.causal ? 0 : p.features.window.right;
    return (p.features.window.left < 0 || -distance <= p.features.window.left) &&
           (right < 0 || distance <= right);
}

void claim(Claims& c) {
    const Counted& p = c.p;
    const GradientTiles of{p};
    const int Br = static_cast<int>(of.Br()), Bc = static_cast<int>(of.Bc);
    Count visited = 0, masked = 0;
    for (int first_key = 0; first_key < p.shape.Nk; first_key += Bc) {
        const int last_key = std::min(first_key + Bc, p.shape.Nk) - 1;
        for (int first = 0; first < p.shape.Nq; first += Br) {
            bool some = false, all = first_key + Bc <= p.shape.Nk;
            for (int row = first; row < std::min(first + Br, p.shape.Nq); ++row) {
                for (int key = first_key; key <= last_key; ++key) {
                    const bool seen = sees(p, row, key);
                    some = some || seen;
                    all = all && seen;
                }
            }
            visited += some;
            masked += some && !all;
        }
    }
    visited *= p.heads(), masked *= p.heads();
    c.is("tiles", visited * of.groups);  // each warpgroup's 64 keys
    c.is("masked_tiles", masked * of.groups);
    c.is("exponentials", visited * of.Br() * of.Bc);
    c.is("wgmma_columns", visited * 5 * of.Br() * of.Bc * p.d() / 1024);
    if (p.features.window == Window()) c.only_moves({});
}

std::vector<Case> in_windows(std::vector<Case> cases) {
    const Window windows[] = {{63, 0}, {127, 0}, {100, 20}, {-1, 5}, {0, 0}, {65, -1}};
    for (std::size_t k = 0; k < cases.size(); ++k) cases[k].features.window = windows[k % std::size(windows)];
    return cases;
}

constexpr Shape long_shapes[] = {{1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {1, 1, 1, 400, 300, 128}};

LADDER_CLAIMS(.claim = claim,
              .cases = backward(joined(cases_of({usual_shapes}),
                                       in_windows(cases_of({long_shapes, usual_shapes})))),
              .resident_blocks = 1);

}  // namespace
