/// @file
/// What 57 and 98 count alike: two warpgroups of the same 64 keys, one of which sums up dV and the other dK.
#pragma once

#include "harness/count/claims.h"

namespace ladder::formulas {

/// `lists`: bytes of the workspace that 98 has in addition
inline void claim_two_roles(Claims& c, Count lists = 0) {
    const Counted& p = c.p;
    constexpr Count threads = 256;  // that multiply
    const Count d = p.d(), key_blocks = p.B() * Count(p.shape.Hkv) * p.Tc();
    const std::vector<Visit> blocks = visits(p, tile, tile);
    const Count tiles = tiles_of(blocks), padded = p.Tr() * tile;
    const Count prepare_blocks = p.heads() * padded * d / 8 / 256;
    // dQ, L and D in fp32, for whole tiles
    c.is("workspace_bytes", p.heads() * padded * (d + 2) * 4 + lists);
    c.is("launches", 3);
    c.is("blocks", prepare_blocks + key_blocks + prepare_blocks / 2);
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(blocks));
    // S, dP, dV and dK are one product of a warpgroup each, dQ is half of both: 2.5 for each of them.
    c.is("wgmma", tiles * (2 * d / 16 + 2 * tile / 16 + 2 * tile / 16));
    c.is("wgmma_columns", tiles * 5 * tile * d / 16);
    c.is("mma", 0);
    c.is("ldmatrix", 0);
    c.is("exponentials", tiles * tile * tile);
    c.is("atomics", tiles * tile * d / 4);  // of four elements of dQ each, as sm_90 adds them
    c.is("bulk_adds", 0);
    // K and V of a block, then dK and dV; Q, dO, L and D of each tile.
    const Count bulk_bytes = key_blocks * 4 * tile * d * 2 + tiles * 2 * tile * (d * 2 + 4);
    c.is("bulk_loads", key_blocks * 2 + tiles * 4);
    c.is("bulk_stores", key_blocks * 2);
    c.is("bulk_bytes", bulk_bytes);
    // dS of a tile by the four warps of dK, and what all eight have in the end
    const Count stmatrix = tiles * tile * tile / 256 + key_blocks * 2 * tile * d / 256;
    c.is("stmatrix", stmatrix);
    c.is("shared_tile_bytes", bulk_bytes + stmatrix * 32 * 16);
    // L by the warpgroup of dV, two rows at a time, and D by that of dK, for keys g and again for g + 8; P
    // out and in, in 16 bits
    c.is("shared_exchange_bytes", tiles * (128 * tile * (1 + 2) + 2 * tile * tile * 2));
    c.is("global_load_bytes", p.rows() * (2 * d * 2 + 4) + 2 * p.B() * Count(p.shape.Hkv) * p.Nk() * d * 2 +
                                  sum(blocks, [](auto& v) { return v.tiles * v.queries; }) * 2 * d * 2 +
                                  tiles * tile * 2 * 4 + p.heads() * ((p.Nq() + 15) / 16) * 16 * d * 4);
    c.is("global_store_bytes", p.heads() * padded * (d + 2) * 4 + output_bytes(p));
    c.is("barriers", key_blocks);  // once the mbarriers are set up
    c.is("warp_syncs", 0);
    // All say that they have read a tile, and the thread that copies expects it.
    c.is("mbarrier_arrivals", key_blocks + tiles * (threads + 1));
    c.is("mbarrier_waits", key_blocks * threads + tiles * (threads + 1));
    // P is complete: those of dV need not wait. dS is complete: those of dK wait for each other only, at a
    // barrier of their own. Twice after the loop.
    c.is("named_barriers", tiles * 5 * threads / 2 + key_blocks * 2 * threads);
    c.is("named_waits", tiles * (threads / 2 + threads) + key_blocks * 2 * threads);
    c.is("registers_moved", key_blocks * (128 * (168 - 24) + threads * (240 - 168)));
    // D of a row by 32 lanes; uniform() of each warp, and of each that multiplies for a tile
    c.is("shuffles", prepare_blocks * 8 * 5 + key_blocks * 12 + tiles * 8);
}

}  // namespace ladder::formulas
