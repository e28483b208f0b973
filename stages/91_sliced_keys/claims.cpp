// Exchanges maxima, sums and P V between warps, for the tiles that 05 visits.
#include "../04_split_q/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = visits(p, tile, tile);
    const Count tiles = tiles_of(blocks), slice_tiles = warp_tiles_of(blocks);
    const Count rows_visited = slice_tiles * 16, divided = p.rows() - p.rows_without_keys();
    c.parent_is("shared_exchange_bytes", 0);
    c.is("shared_exchange_bytes", exchanged_by_slices(slice_tiles, p));
    // A barrier behind the copies of each tile and two in each slice, instead of two per tile
    c.parent_is("barriers", tiles * 2);
    c.is("barriers", tiles + slice_tiles * 2);
    // Every warp computes what the one that owned the row did.
    c.parent_is("shuffles", slice_tiles * 2 * 4);
    c.is("shuffles", slice_tiles * warps * 2 * 4);
    c.parent_is("exponentials", rows_visited * (tile + in_a_quad));
    c.is("exponentials", rows_visited * (tile + in_a_quad * warps));
    c.parent_is("divides", divided * in_a_quad);
    c.is("divides", divided * in_a_quad * warps);
    // Fragments of a slice: Q in every warp, K and V in quarters
    c.parent_is("ldmatrix", slice_tiles * (1 + 4 + 4) * p.d() / 16);
    c.is("ldmatrix", slice_tiles * warps * 3 * p.d() / 16);
    c.only_moves({"shared_exchange_bytes", "shared_tile_bytes", "barriers", "shuffles", "exponentials",
                  "divides", "ldmatrix"});
    c.is("workspace_bytes", 0);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes}));

}  // namespace
