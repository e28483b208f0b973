// Visits the key tiles of a query tile's own document, and masks those on an edge of it or of the window.
#include <algorithm>

#include "harness/count/claims.h"
#include "harness/features/documents.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// Keys begin .. end - 1
struct KeyRange {
    int begin, end;
};

KeyRange keys_of(const Counted& p, const reference::Document& own, int row) {
    const int position = row - own.end_row + own.end_key, right = p.causal ? 0 : p.features.window.right;
    return {p.features.window.left < 0 ? own.first_key
                                       : std::max(own.first_key, position - p.features.window.left),
            right < 0 ? own.end_key : std::min(own.end_key, position + right + 1)};
}

void claim(Claims& c) {
    const Counted& p = c.p;
    auto documents = documents_of({.shape = p.shape, .features = p.features});
    const Count blocks = documents.empty() ? p.Tr() : p.Nq() / 64 + documents.size();
    if (documents.empty()) documents = {{0, p.shape.Nq, 0, p.shape.Nk}};
    Count visited = 0, masked = 0, row_slices = 0;
    for (const reference::Document& own : documents) {
        for (int first = own.first_row; first < own.end_row; first += 64) {
            const int last = std::min(first + 64, own.end_row) - 1;
            for (int key = own.first_key; key < own.end_key; key += 64) {
                bool sees_some = false, sees_all = true;  // row by row, and not by the kernel's bounds
                for (int row = first; row <= last; ++row) {
                    const KeyRange keys = keys_of(p, own, row);
                    sees_some = sees_some || (keys.begin < std::min(key + 64, keys.end) && keys.end > key);
                    sees_all = sees_all && keys.begin <= key && keys.end >= key + 64;
                }
                if (!sees_some) continue;
                visited += 1;
                masked += !sees_all;
                row_slices += std::min<Count>(4, (own.end_row - first + 15) / 16);
            }
        }
    }
    c.is("blocks", p.heads() * blocks);
    c.is("tiles", p.heads() * visited);
    c.is("masked_tiles", p.heads() * masked);
    c.is("mma", p.heads() * row_slices * p.d());
    c.is("barriers", p.heads() * visited * 2);
    c.is("exponentials", p.heads() * row_slices * 16 * (tile + in_a_quad));
    if (p.features.documents.empty()) c.only_moves({});
}

/// The first three have tiles that one document alone has, tiles of several, and documents without rows or
/// keys.
std::vector<Case> packed_cases() {
    return packed_in_windows({{{1, 2, 1, 512, 512, 64}, "200,40,272"},
                              {{1, 1, 1, 400, 400, 128}, "64,128,0,1,63,65,79"},
                              {{1, 2, 1, 230, 330, 64}, "0x30,100x5,30x0,100x295"},
                              {{1, 1, 1, 400, 400, 64}, "400"},
                              {{1, 2, 2, 60, 60, 128}, "10,10,10,10,10,10"}},
                             {30, 70});
}

LADDER_CLAIMS(.claim = claim, .cases = joined(cases_of({usual_shapes}), packed_cases()));

}  // namespace
