// Packs the rows of a group, so that K and V are read once for all of its heads; Q and O go without bulk
// copies.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto parents = query_tiles(p, true), tiles = packed_tiles(p);
    const Count Bc = hopper_Bc(p), computed = group_tiles(tiles), Q_bytes = p.rows() * p.d() * 2;
    const auto KV_bytes = [&](Count Tc) { return KV_bytes_of_tiles(p, 0, Tc); };
    c.parent_is("global_load_bytes", sum_of_tiles(parents, KV_bytes) + Q_bytes);
    c.is("global_load_bytes", sum_of_tiles(tiles, KV_bytes) + Q_bytes);
    c.stays("global_store_bytes");
    c.is("blocks", persistent_blocks(tiles, p));
    c.is("atomics", tiles.size());
    c.is("tiles", computed);
    c.is("masked_tiles", sum_of_groups(tiles, [](auto& group) { return group.masked; }));
    c.is("wgmma", computed * (p.d() / 16 + Bc / 16));
    c.is("wgmma_columns", computed * (p.d() / 16 * Bc + Bc / 16 * p.d()));
    c.is("exponentials", computed * 64 * Bc);
    c.is("votes", computed * 4);
    c.is("shuffles", persistent_shuffles(tiles, p));
    c.is("mbarrier_waits", persistent_waits(tiles, p));
    c.is("divides", sum_of_groups(tiles, [](auto& group) { return group.rows; }) * in_a_quad);
    // K and V alone are bulk copies. A warpgroup with rows copies 64 of Q, 16 bytes at a time.
    c.is("bulk_loads", 2 * copied_tiles(tiles));
    c.is("bulk_bytes", 2 * copied_tiles(tiles) * Bc * p.d() * 2);
    c.is("async_copies", writing_groups(tiles) * 64 * p.d() / 8);
    c.is("bulk_stores", 0);
    c.is("stmatrix", 0);
    c.is("warp_syncs", 0);
    c.stays("workspace_bytes");
    c.stays("launches");
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, draft_shapes}), .resident_blocks = 1);

}  // namespace
