// Has a block per query tile, and writes O once, in 16 bits.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    c.parent_is("blocks", p.heads());
    c.is("blocks", p.heads() * p.Tr());
    c.is("global_store_bytes", output_bytes(p));
    c.is("workspace_bytes", 0);
    // Q is read once; K and V once per query tile.
    c.is("global_load_bytes", p.rows() * p.d() * 2 + 2 * p.heads() * p.Tr() * p.Nk() * p.d() * 2);
    // A barrier behind the copies of each tile, and two in each slice.
    c.is("barriers", p.tiles() + p.slice_tiles() * 2);
    c.only_moves({"blocks", "global_load_bytes", "global_store_bytes", "async_copies", "shared_tile_bytes"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes}));

}  // namespace
