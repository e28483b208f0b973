// Dropout moves nothing that is counted: the same tiles, products and sums as without it, and no byte of a
// mask.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    if (p.features.dropout == Dropout()) {  // nothing moves
        c.only_moves({});
        return;
    }
    const std::vector<Visit> blocks = visits(p, tile, tile);
    c.is("tiles", tiles_of(blocks));
    c.is("masked_tiles", masked_of(blocks));
    c.is("mma", p.d() * warp_tiles_of(blocks));
    c.is("barriers", 2 * tiles_of(blocks));
    c.is("exponentials", 16 * (tile + in_a_quad) * warp_tiles_of(blocks));
    c.is("divides", p.rows() * in_a_quad - p.rows_without_keys() * in_a_quad);
    c.is("shuffles", 8 * warp_tiles_of(blocks));
    c.is("global_load_bytes", p.rows() * p.d() * 2 + KV_bytes_of(blocks, p));
    c.is("global_store_bytes", output_bytes(p));
    c.is("workspace_bytes", 0);
}

std::vector<Case> with_dropout(std::vector<Case> cases) {
    for (std::size_t k = 0; k < cases.size(); ++k)
        cases[k].features.dropout = {k % 3 == 0 ? 230 : static_cast<int>(k * 37 % 255) + 1, k + 1};
    return cases;
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes}), with_dropout(cases_of({usual_shapes}))));

}  // namespace
