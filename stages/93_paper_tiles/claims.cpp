// Does for each tile of 256 keys what 01 does for each tile of 64.
#include "../04_split_q/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// What a kernel with these loops does with tiles of Bc keys, of which each of its four warps takes a
/// quarter.
template <class Is>
void with_tiles(const Counted& p, Count Bc, Is&& is) {
    const Count Tc = (p.Nk() + Bc - 1) / Bc, tiles = p.heads() * p.Tr() * Tc;
    const Count slice_tiles = p.heads() * ((p.Nq() + 15) / 16) * Tc;
    is("tiles", tiles);
    is("barriers", tiles + slice_tiles * 2);  // after the copies of a tile, and in its slices
    is("shared_exchange_bytes", exchanged_by_slices(slice_tiles, p));
    is("shuffles", slice_tiles * warps * 2 * 4);
    // The first key tile has nothing to read, the last writes the 16-bit output and L instead. Every lane of
    // a row reads its m and l: 4 lanes of each of the 4 warps.
    const Count O_bytes = (Tc - 1) * p.rows() * p.d() * 4, m_and_l_bytes = (Tc - 1) * p.rows() * 2 * 4;
    const Count Q_bytes = Tc * p.rows() * p.d() * 2, KV_bytes = 2 * p.heads() * p.Nk() * p.d() * 2;
    is("global_store_bytes", O_bytes + m_and_l_bytes + output_bytes(p));
    is("global_load_bytes", O_bytes + m_and_l_bytes * in_a_quad * warps + Q_bytes + KV_bytes);
    is("async_copies", (tiles * tile + 2 * p.heads() * Tc * Bc) * p.d() / 8);
    // Of a slice: the fragments of Q in every warp, those of K and V once; products with both
    is("ldmatrix", slice_tiles * (warps + 2 * Bc / 16) * p.d() / 16);
    is("mma", slice_tiles * p.d() * Bc / 64);
    // P, and alpha in each lane of a row
    is("exponentials", slice_tiles * 16 * (Bc + in_a_quad * warps));
}

void claim(Claims& c) {
    with_tiles(c.p, tile, [&](const char* counter, Count n) { c.parent_is(counter, n); });
    with_tiles(c.p, 256, [&](const char* counter, Count n) { c.is(counter, n); });
    c.is("workspace_bytes", c.p.rows() * (c.p.d() + 2) * 4);  // O, m and l
    c.stays("workspace_bytes");
    c.only_moves({"tiles", "masked_tiles", "barriers", "shared_exchange_bytes", "shared_tile_bytes",
                  "shuffles", "global_store_bytes", "global_load_bytes", "async_copies", "copied_lines",
                  "ldmatrix", "mma", "exponentials", "divides"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes}));

}  // namespace
