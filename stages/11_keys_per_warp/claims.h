/// @file
/// What warps do that each have keys of their own, and merge after the last key tile.
#pragma once

#include "harness/count/claims.h"

namespace ladder::formulas {

/// Four warps write O, m and l; each reads m and l of all of them twice, and a quarter of their O.
inline Count exchanged_by_warps(const std::vector<Visit>& blocks, const Counted& p) {
    return blocks.size() * warps * 32 * 16 * (p.d() / 8 + 1 + 2 * warps + p.d() / 8);
}

/// Each warp weighs the four of them for each row that has keys.
inline Count exponentials_of_merged_warps(const std::vector<Visit>& blocks) {
    return sum(blocks, [](auto& v) { return v.padded * in_a_quad * warps * warps; });
}

/// Each warp has a maximum of its own for each tile, of Bc keys; and then they merge.
inline Count exponentials_of_warps(const std::vector<Visit>& blocks, Count Bc) {
    return tiles_of(blocks) * 16 * (Bc + in_a_quad * warps) + exponentials_of_merged_warps(blocks);
}

/// Each lane of each warp works out 1 / l of its rows.
inline Count divides_of_warps(const std::vector<Visit>& blocks) {
    return sum(blocks, [](auto& v) { return v.rows * in_a_quad * warps; });
}

}  // namespace ladder::formulas
