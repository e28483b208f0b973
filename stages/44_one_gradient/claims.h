/// @file
/// What 44 to 46 count alike: two warps share their keys, and each sums up one gradient.
#pragma once

#include "../43_dq_fragments/claims.h"

namespace ladder::formulas {

inline KeyTiles pairs_of_warps(const Counted& p) {
    return {.slices = 256 / p.d(),
            .warps = p.d() == 64 ? 4u : 8u,
            .gradients = 1,
            .parts = 1,
            .Br = 64,
            .steps = p.d() == 64 ? 2u : 1u};
}

inline void claim_pairs(Claims& c) {
    const KeyTiles of = pairs_of_warps(c.p);
    claim_key_tiles(c, of);
    claim_fragments(c, of);
    // L or D of two rows by each lane and step; P out and in, and dS out
    c.is("shared_exchange_bytes", of.visited(c.p) * (of.warps * of.Br * 4 * 8 + 3 * of.scores() * 2));
    c.is("warp_syncs", of.visited(c.p) * of.steps * of.warps / 2);
}

}  // namespace ladder::formulas
