/// @file
/// What any number of keys in a tile comes to, at d = 64.
#pragma once

#include "harness/count/claims.h"

namespace ladder::formulas {

/// At d = 64 a tile has Bc keys, whatever the parent's has, and nothing but their number
/// follows.
inline void claim_narrow_tiles(Claims& c, int Bc, Count parents_tiles) {
    const Counted& p = c.p;
    // Warps without a query row compute like the others.
    const auto blocks = visits(p, wide_Br(p), Bc, 1, 1, true);
    const Count tiles = tiles_of(blocks), warp_tiles = warp_tiles_of(blocks);
    // Q is read once for Bc keys.
    const Count ldmatrix = warp_tiles * (slices(p) + Bc / 16 + Bc / 16) * p.d() / 16;
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(blocks));
    c.is("barriers", tiles * 2);
    c.is("votes", warp_tiles);
    c.is("shuffles", (first_tiles_of(blocks) + blocks.size() * warps) * slices(p) * 2 * 2);
    c.is("mma", warp_tiles * slices(p) * p.d() * Bc / 64);
    c.is("ldmatrix", ldmatrix);
    c.is("exponentials", warp_tiles * slices(p) * 16 * Bc);
    c.is("divides", sum(blocks, [](auto& v) { return v.padded; }) * in_a_quad);
    c.is("shared_tile_bytes", tile_bytes(c.child.counters.async_copies, ldmatrix));
    // Rows and keys that fill the tiles, and no mask: the same products and bytes in other tiles.
    if (p.causal || p.Nq() % 128 != 0 || p.Nk() % 128 != 0) return;
    c.parent_is("tiles", parents_tiles);
    c.only_moves({"tiles", "barriers", "votes", "ldmatrix", "shared_tile_bytes", "mma_during_copies"});
}

}  // namespace ladder::formulas
