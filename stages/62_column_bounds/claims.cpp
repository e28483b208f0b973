// Visits a key tile unless one interval of all its keys holds all rows of the query tile, and masks it only
// if minima and maxima of the bounds leave it open whether some key hides from some row.
#include <algorithm>
#include <climits>

#include "harness/count/claims.h"
#include "harness/features/columns.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// Keys begin .. end - 1 that a row sees of a window, whatever hides from it
struct KeyRange {
    int begin, end;
};

KeyRange keys_of(const Counted& p, int row) {
    const int position = row + p.shape.Nk - p.shape.Nq, right = p.causal ? 0 : p.features.window.right;
    return {p.features.window.left < 0 ? 0 : std::max(0, position - p.features.window.left),
            right < 0 ? p.shape.Nk : std::min(p.shape.Nk, position + right + 1)};
}

/// What a key tile is for the rows first .. end - 1
struct TileClass {
    bool visited, masked;
};

TileClass classify(const Counted& p, const std::vector<reference::HiddenRows>& hidden, int j, int first,
                   int end) {
    const int begin_key = 64 * j, end_key = std::min(64 * j + 64, p.shape.Nk);
    bool sees_some = false, masked = end_key < 64 * j + 64;
    for (int row = first; row < end; ++row) {
        const KeyRange keys = keys_of(p, row);
        sees_some = sees_some || (keys.begin < std::min(end_key, keys.end) && keys.end > begin_key);
        masked = masked || keys.begin > begin_key || keys.end < end_key;
    }
    for (int k = 0; k < 2 && !hidden.empty(); ++k) {
        bool holds_all = true;
        int least_begin = INT_MAX, largest_end = INT_MIN;  // of intervals with rows
        for (int key = begin_key; key < end_key; ++key) {
            const int from = hidden[key].begin[k], to = hidden[key].end[k];
            holds_all = holds_all && from <= first && to >= end;
            if (from >= to) continue;
            least_begin = std::min(least_begin, from);
            largest_end = std::max(largest_end, to);
        }
        sees_some = sees_some && !holds_all;
        masked = masked || (first < largest_end && end > least_begin);
    }
    return {sees_some, masked};
}

void claim(Claims& c) {
    const Counted& p = c.p;
    const Case problem{.shape = p.shape, .causal = p.causal, .features = p.features, .seed = p.seed};
    Count visited = 0, masked = 0, slices = 0, chunks = 0;
    for (int head = 0; head < p.shape.B * p.shape.H; ++head) {
        const auto hidden = hidden_rows(problem, head / p.shape.H, head % p.shape.H);
        for (int first = 0; first < p.shape.Nq; first += 64) {
            const int end = std::min(first + 64, p.shape.Nq);
            for (int j = 0; j < static_cast<int>(p.Tc()); ++j) {
                const TileClass tile = classify(p, hidden, j, first, end);
                visited += tile.visited;
                masked += tile.visited && tile.masked;
                slices += tile.visited ? std::min<Count>(4, (p.Nq() - first + 15) / 16) : 0;
            }
            const int from = keys_of(p, first).begin / 64, to = (keys_of(p, end - 1).end + 63) / 64;
            chunks += std::max(0, to - from + 31) / 32;
        }
    }
    c.is("tiles", visited);
    c.is("masked_tiles", masked);
    c.is("mma", slices * p.d());
    c.is("barriers", visited * 2);
    c.is("exponentials", slices * 16 * (tile + in_a_quad));
    c.is("votes", chunks * warps * 2);
    c.is("launches", p.features.columns.empty() ? 1 : 2);
    c.is("workspace_bytes", p.heads() * p.Tc() * 32);
}

/// The same problems with every pattern in turn, half of them the last, some of them in a window, too.
std::vector<Case> with_columns(std::vector<Case> cases) {
    const auto& patterns = column_patterns();
    for (std::size_t k = 0; k < cases.size(); ++k) {
        const bool any = k % 2 == 1;  // bounds, of intervals without rows, too
        cases[k].features.columns = (any ? patterns.back() : patterns[k / 2 % patterns.size()]).name;
        cases[k].seed = k + 1;
        if (k % 5 == 4) cases[k].features.window = {100, 20};
    }
    return cases;
}

/// The last has more key tiles than a warp classifies at a time.
constexpr Shape long_shapes[] = {
    {1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {2, 2, 2, 400, 300, 64}, {1, 1, 1, 70, 2200, 64}};

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes}),
                              with_columns(cases_of({long_shapes, usual_shapes, long_shapes}))));

}  // namespace
