// Visits the key tiles between the edges of a window and masks those on an edge.
#include <algorithm>

#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// Keys begin .. end - 1
struct KeyRange {
    int begin, end;
};

KeyRange keys_of(const Counted& p, int row) {
    const int position = row + p.shape.Nk - p.shape.Nq, right = p.causal ? 0 : p.features.window.right;
    return {p.features.window.left < 0 ? 0 : std::max(0, position - p.features.window.left),
            right < 0 ? p.shape.Nk : std::min(p.shape.Nk, position + right + 1)};
}

void claim(Claims& c) {
    const Counted& p = c.p;
    Count visited = 0, masked = 0, row_slices = 0;
    for (int first = 0; first < p.shape.Nq; first += 64) {
        const int last = std::min(first + 64, p.shape.Nq) - 1;
        for (int j = 0; j < static_cast<int>(p.Tc()); ++j) {
            bool sees_some = false,
                 sees_all = true;  // row by row and key by key, and not by the kernel's bounds
            for (int row = first; row <= last; ++row) {
                const KeyRange keys = keys_of(p, row);
                sees_some = sees_some || (keys.begin < std::min(64 * j + 64, keys.end) && keys.end > 64 * j);
                sees_all = sees_all && keys.begin <= 64 * j && keys.end >= 64 * j + 64;
            }
            if (!sees_some) continue;
            visited += 1;
            masked += !sees_all;
            row_slices += std::min<Count>(4, (p.Nq() - first + 15) / 16);
        }
    }
    c.is("tiles", p.heads() * visited);
    c.is("masked_tiles", p.heads() * masked);
    c.is("mma", p.heads() * row_slices * p.d());
    c.is("barriers", p.heads() * visited * 2);
    c.is("exponentials", p.heads() * row_slices * 16 * (tile + in_a_quad));
    if (p.features.window == Window()) c.only_moves({});
}

std::vector<Case> in_windows(std::vector<Case> cases) {
    const Window windows[] = {{63, 0}, {64, 0}, {100, 20}, {-1, 5}, {0, 0}, {65, -1}};
    for (std::size_t k = 0; k < cases.size(); ++k) cases[k].features.window = windows[k % std::size(windows)];
    return cases;
}

constexpr Shape long_shapes[] = {{1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {1, 1, 1, 400, 300, 64}};

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes}), in_windows(cases_of({long_shapes, usual_shapes}))));

}  // namespace
