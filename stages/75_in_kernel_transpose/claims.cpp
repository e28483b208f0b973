// Transposes each tile of V once, where it is copied: 32 keys and 16 columns by each ldmatrix and stmatrix,
// without bank conflicts. The kernels that round write V as it is, with no keys past the last one; they read
// as much as before, and the warpgroups multiply as before.
#include "../70_fp8_products/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto& parent = c.parent.counters;
    const int Bc = fp8_Bc(p);
    const Count groups = fp8_warpgroups(p), warps = 3, KV_heads = p.B() * p.shape.Hkv;
    const auto tiles = query_tiles(p, true, groups, Bc);
    const Count copied = copied_tiles(tiles), blocks = persistent_blocks(tiles, p);
    const Count parts = copied * Bc / 32 * p.d() / 16;
    // Bytes of V past the last key: in the last tile, and in the last block
    const Count last = (p.Nk() + Bc - 1) / Bc, of_tile = p.d() * (last * Bc - p.Nk());
    const Count of_block = p.d() * ((p.Nk() + fp8_rows - 1) / fp8_rows * fp8_rows - p.Nk());
    const Count ends =
        std::count_if(tiles.begin(), tiles.end(), [&](auto& tile) { return tile.tiles == last; });
    c.parent_is("ldmatrix", 0);
    c.is("ldmatrix", parts);
    c.is("stmatrix", parent.stmatrix + parts);
    c.is("bank_conflicts", 0);
    c.is("global_store_bytes", parent.global_store_bytes - KV_heads * of_block);
    c.is("global_load_bytes", parent.global_load_bytes - ends * of_tile);
    c.is("workspace_bytes", c.parent.workspace_bytes - KV_heads * of_block);
    // A copy of V has Bc rows of d instead of d rows of Bc keys, both padded to 128 bytes.
    const Count copies = copied * Bc * fp8_row(p) - copied * p.d() * 128;
    c.is("bulk_bytes", parent.bulk_bytes + copies);
    c.is("shared_tile_bytes", parent.shared_tile_bytes + copies + 2 * parts * 32 * 16);
    c.is("warp_syncs", parent.warp_syncs + warps * copied);
    // Each of the warps reads a tile's number and is told the end; asks which warp it is, and once for each
    // query tile how many key tiles there are.
    c.is("shared_exchange_bytes", parent.shared_exchange_bytes + 32 * warps * 16 * (tiles.size() + blocks));
    c.is("shuffles", parent.shuffles + (warps + 1) * blocks + warps * tiles.size());
    // In place of none: the warps release the rows of a tile, and pass on what they have transposed.
    c.is("mbarrier_arrivals", parent.mbarrier_arrivals + 32 * warps * tiles.size() + 2 * warps * copied);
    c.is("mbarrier_waits", parent.mbarrier_waits + 32 * warps * (tiles.size() + blocks + 2 * copied));
    c.only_moves({"ldmatrix", "stmatrix", "global_store_bytes", "global_load_bytes", "workspace_bytes",
                  "bulk_bytes", "shared_tile_bytes", "warp_syncs", "shared_exchange_bytes", "shuffles",
                  "mbarrier_arrivals", "mbarrier_waits", "mbarrier_stalls", "named_stalls",
                  "exponentials_during_products", "exponentials_during_own_products"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes}, {"falling"}),
              .resident_blocks = 1);

}  // namespace
