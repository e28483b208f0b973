// Multiplies a key tile by the query tiles that a window reaches, unless one interval of all its keys holds
// all rows of the query tile, and masks where minima and maxima of the bounds leave it open whether some key
// hides from some row. Needs no launch and no workspace for it.
#include <algorithm>

#include "../50_wgmma_gradients/claims.h"
#include "harness/features/columns.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// Whether a row sees a key, by the definition of a window, whatever hides from it
bool sees(const Counted& p, int row, int key) {
    const int distance = key - (row + p.shape.Nk - p.shape.Nq),
              right = p.causal ? 0 : p.features.window.right;
    return (p.features.window.left < 0 || -distance <= p.features.window.left) &&
           (right < 0 || distance <= right);
}

/// What a query tile, the rows first .. end - 1, is for the keys first_key .. end_key - 1.
struct TileClass {
    bool visited, masked;
};

TileClass classify(const Counted& p, const std::vector<reference::HiddenRows>& hidden, int first_key,
                   int end_key, int first, int end) {
    bool some = false, all = true;
    for (int row = first; row < end; ++row) {
        for (int key = first_key; key < end_key; ++key) {
            const bool seen = sees(p, row, key);
            some = some || seen;
            all = all && seen;
        }
    }
    for (int k = 0; k < 2 && !hidden.empty(); ++k) {
        bool holds_all = true;
        int least_begin = p.shape.Nq, largest_end = 0;  // of intervals with rows
        for (int key = first_key; key < end_key; ++key) {
            const int from = hidden[key].begin[k], to = hidden[key].end[k];
            holds_all = holds_all && from <= first && to >= end;
            if (from >= to) continue;
            least_begin = std::min(least_begin, from);
            largest_end = std::max(largest_end, to);
        }
        some = some && !holds_all;
        all = all && !(first < largest_end && end > least_begin);
    }
    return {some, !all};
}

void claim(Claims& c) {
    const Counted& p = c.p;
    if (p.features.columns.empty() && p.features.window == Window())
        return c.only_moves({"shuffles", "shared_exchange_bytes"});
    const Case problem{.shape = p.shape, .causal = p.causal, .features = p.features, .seed = p.seed};
    const GradientTiles of{p};
    const int Br = static_cast<int>(of.Br()), Bc = static_cast<int>(of.Bc);
    Count visited = 0, masked = 0;
    // The heads of a group share their gaps: a tile is left out where none of them sees it, and unmasked
    // where each sees all of it.
    const int heads = p.shape.H / p.shape.Hkv;
    for (int kv_head = 0; kv_head < p.shape.B * p.shape.Hkv; ++kv_head) {
        std::vector<std::vector<reference::HiddenRows>> hidden;
        for (int h = 0; h < heads; ++h)
            hidden.push_back(hidden_rows(problem, kv_head / p.shape.Hkv, kv_head % p.shape.Hkv * heads + h));
        for (int first_key = 0; first_key < p.shape.Nk; first_key += Bc) {
            const int end_key = std::min(first_key + Bc, p.shape.Nk);
            for (int first = 0; first < p.shape.Nq; first += Br) {
                TileClass group{false, end_key < first_key + Bc};
                for (const auto& of_head : hidden) {
                    const TileClass tile =
                        classify(p, of_head, first_key, end_key, first, std::min(first + Br, p.shape.Nq));
                    group = {group.visited || tile.visited, group.masked || tile.masked};
                }
                visited += group.visited ? heads : 0;
                masked += group.visited && group.masked ? heads : 0;
            }
        }
    }
    c.is("tiles", visited * of.groups);  // each warpgroup's 64 keys
    c.is("masked_tiles", masked * of.groups);
    c.is("exponentials", visited * of.Br() * of.Bc);
    c.is("wgmma_columns", visited * 5 * of.Br() * of.Bc * p.d() / 1024);
    c.is("bulk_adds", visited * of.groups);
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

constexpr Shape long_shapes[] = {
    {1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {2, 2, 2, 400, 300, 64}, {1, 4, 2, 900, 260, 128}};

LADDER_CLAIMS(.claim = claim,
              .cases = backward(joined(cases_of({usual_shapes}),
                                       with_columns(cases_of({long_shapes, usual_shapes, long_shapes})))),
              .resident_blocks = 1);

}  // namespace
