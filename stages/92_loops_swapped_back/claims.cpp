// Has a block per head, which reads K and V once, and passes O, m and l through global memory.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = visits(p, tile, tile);  // the parent's; here a block has those of a head
    const Count tiles = tiles_of(blocks), warp_tiles = warp_tiles_of(blocks);
    c.parent_is("blocks", p.heads() * p.Tr());
    c.is("blocks", p.heads());
    c.is("workspace_bytes", p.rows() * (p.d() + 2) * 4);  // O, m and l
    // The first key tile of a row has nothing to read; the last writes the 16-bit output and L instead.
    const Count kept_rows = sum(blocks, [](auto& v) { return (v.tiles - (v.tiles > 0)) * v.queries; });
    const Count O_bytes = kept_rows * p.d() * 4, m_and_l_bytes = kept_rows * 2 * 4;
    c.parent_is("global_store_bytes", output_bytes(p));
    c.is("global_store_bytes", O_bytes + m_and_l_bytes + output_bytes(p));
    // Q is read once for each key tile, not once; K and V once for each head, not for each query tile. The 4
    // lanes of a row read its m and l.
    const Count Q_bytes = sum(blocks, [](auto& v) { return v.tiles * v.queries; }) * p.d() * 2;
    const Count KV_bytes = 2 * p.heads() * p.Nk() * p.d() * 2;
    c.parent_is("global_load_bytes", p.rows() * p.d() * 2 + KV_bytes_of(blocks, p));
    c.is("global_load_bytes", O_bytes + m_and_l_bytes * in_a_quad + Q_bytes + KV_bytes);
    c.is("async_copies", (tiles + 2 * p.heads() * p.Tc()) * tile * p.d() / 8);
    c.parent_is("warp_syncs", 0);
    c.is("warp_syncs", warp_tiles);
    c.only_moves({"blocks", "global_load_bytes", "global_store_bytes", "async_copies", "shared_tile_bytes",
                  "warp_syncs"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes}));

}  // namespace
