/// @file
/// Tiles whose rows are those of all heads of a group.
#pragma once

#include "../35_tile_scheduler/claims.h"

namespace ladder::formulas {

/// All query tiles, key/value head by key/value head
inline std::vector<QueryTile> packed_tiles(const Counted& p) {
    return query_tiles(p, true, warpgroups(p), hopper_Bc(p), p.group());
}

/// Bytes of K and V that a block reads for its key tiles begin .. end - 1: past the last key there are none.
inline Count KV_bytes_of_tiles(const Counted& p, Count begin, Count end) {
    const Count Bc = hopper_Bc(p);
    return end > begin ? (std::min(p.Nk(), end * Bc) - begin * Bc) * 2 * p.d() * 2 : 0;
}

/// A few rows of groups of 1 to 8 heads, which fill a warpgroup's rows or not, and more than a tile; more
/// query tiles than multiprocessors, also with a last wave that is nearly full; and as few that blocks share
/// each, or all, of them; and the rows of a warpgroup
inline constexpr Shape draft_shapes[] = {
    {1, 8, 2, 4, 2048, 64}, {1, 8, 1, 16, 1000, 128}, {1, 6, 2, 5, 700, 128}, {2, 8, 2, 50, 400, 64},
    {11, 2, 1, 2, 300, 64}, {11, 4, 1, 33, 260, 128}, {5, 3, 3, 2, 300, 128}, {3, 1, 1, 2, 6000, 64},
    {1, 8, 2, 9, 5, 64},    {2, 8, 1, 8, 300, 64}};

}  // namespace ladder::formulas
