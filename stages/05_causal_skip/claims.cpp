// Visits the tiles under the diagonal and masks those on it.
#include <algorithm>

#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    if (!p.causal) {  // nothing moves
        c.only_moves({});
        return;
    }
    Count visited = 0, masked = 0, row_slices = 0;
    for (int i = 0; i < static_cast<int>(p.Tr()); ++i) {
        for (int j = 0; j < static_cast<int>(p.Tc()); ++j) {
            const int offset = p.shape.Nk - p.shape.Nq;  // row r sees the keys up to r + offset
            const int first_row = i * 64, last_row = first_row + 63, first_key = j * 64,
                      last_key = first_key + 63;
            if (first_key > last_row + offset) continue;
            visited += 1;
            row_slices += std::min<Count>(4, (p.Nq() - first_row + 15) / 16);
            masked += last_key > first_row + offset || last_key >= p.shape.Nk;
        }
    }
    c.parent_is("tiles", p.tiles());
    c.parent_is("masked_tiles", p.tiles());
    c.is("tiles", p.heads() * visited);
    c.is("masked_tiles", p.heads() * masked);
    c.is("mma", p.heads() * row_slices * p.d());
    c.is("barriers", p.heads() * visited * 2);
    c.is("exponentials", p.heads() * row_slices * 16 * (tile + in_a_quad));
    c.stays("blocks");
    c.stays("global_store_bytes");
    c.stays("divides");
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes}));

}  // namespace
