/// @file
/// What the persistent kernels of the 30s that take query tiles from a counter do, tile by tile. Nothing here
/// depends on which block takes which tile; what does, or on model time, is not claimed.
#pragma once

#include "../30_tma_wgmma/claims.h"

namespace ladder::formulas {

/// Bulk stores of a warp's 16 rows of O, of one panel or two
inline Count stores_of_warp(const Counted& p) {
    return p.d() == 256 ? 2 : 1;
}

/// (warpgroup, query tile) pairs that write rows of O
inline Count writing_groups(const std::vector<QueryTile>& tiles) {
    return sum_of_groups(tiles, [](auto& group) { return group.tiles > 0; });
}

/// Problems with more query tiles than multiprocessors, so that blocks go on to a second one
inline constexpr Shape crowded_shapes[] = {
    {3, 2, 1, 200, 130, 64}, {2, 3, 3, 130, 200, 128}, {2, 3, 1, 130, 70, 256}};

/// Query tiles whose rows end where those of a warpgroup do, so that the next one begins at Nq
inline constexpr Shape ending_shapes[] = {{1, 1, 1, 64, 130, 64}, {2, 2, 1, 192, 100, 128}};

/// Each warp asks which warpgroup it is in. Two rows of a lane: two shuffles for the first maximum, and two
/// that add up l.
inline Count persistent_shuffles(const std::vector<QueryTile>& tiles, const Counted& p) {
    return 4 * ((1 + warpgroups(p)) * persistent_blocks(tiles, p) + writing_groups(tiles) * 2 * (2 + 2));
}

inline Count persistent_waits(const std::vector<QueryTile>& tiles, const Counted& p) {
    const Count blocks = persistent_blocks(tiles, p);
    // For Q or a slot for it, and at the end of a block; for K and for V. The producer is one thread.
    return tiles.size() + blocks + 2 * copied_tiles(tiles) +
           128 * (warpgroups(p) * (tiles.size() + blocks) + 2 * group_tiles(tiles));
}

}  // namespace ladder::formulas
