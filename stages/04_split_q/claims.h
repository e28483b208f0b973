/// @file
/// What warps exchange that divide the keys of a tile among themselves.
#pragma once

#include "harness/count/claims.h"

namespace ladder::formulas {

/// Bytes through shared memory for so many (slice of 16 query rows, key tile) pairs: each warp writes P V
/// (16 x d), 16 maxima and 16 sums; P V is read once, each maximum and sum by the 4 lanes of its row in all 4
/// warps.
inline Count exchanged_by_slices(Count slice_tiles, const Counted& p) {
    return slice_tiles * warps * 16 * (p.d() * 4 * 2 + 2 * 4 * (1 + in_a_quad * warps));
}

}  // namespace ladder::formulas
