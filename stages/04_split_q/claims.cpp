// Exchanges nothing between warps.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    c.parent_is("shared_exchange_bytes", exchanged_by_slices(p.slice_tiles(), p));
    c.is("shared_exchange_bytes", 0);
    c.is("barriers", p.tiles() * 2);
    // A maximum and a sum by two shuffles each, for the two rows of a lane; by every warp, or by the
    // one.
    c.parent_is("shuffles", p.slice_tiles() * warps * 2 * 4);
    c.is("shuffles", p.slice_tiles() * 2 * 4);
    // Scores are the same; alpha is computed by 4 lanes of a row instead of 16, and so is the quotient.
    const Count rows_visited = p.slice_tiles() * 16, divided = p.rows() - p.rows_without_keys();
    c.parent_is("exponentials", rows_visited * (tile + in_a_quad * warps));
    c.is("exponentials", rows_visited * (tile + in_a_quad));
    c.parent_is("divides", divided * in_a_quad * warps);
    c.is("divides", divided * in_a_quad);
    // Fragments of a slice: Q and a quarter of K and V in each warp, or Q once and all of K and V.
    c.parent_is("ldmatrix", p.slice_tiles() * warps * 3 * p.d() / 16);
    c.is("ldmatrix", p.slice_tiles() * (1 + 4 + 4) * p.d() / 16);
    c.only_moves({"shared_exchange_bytes", "shared_tile_bytes", "barriers", "shuffles", "exponentials",
                  "divides", "ldmatrix"});
    c.is("workspace_bytes", 0);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes}));

}  // namespace
