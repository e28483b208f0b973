/// @file
/// What the persistent kernels of the 30s that take query tiles from a counter do, tile by tile. Nothing here
/// depends on which block takes which tile; what does, or on model time, is not claimed.
#pragma once

#include <algorithm>
#include <vector>

#include "harness/count/claims.h"

namespace ladder::formulas {

/// The kernels' constants that depend on d
inline Count warpgroups(const Counted& p) {
    return p.d() == 64 ? 3 : 2;
}
inline int hopper_Bc(const Counted& p) {
    return p.d() <= 128 ? 128 : 64;
}
/// Bulk stores of a warp's 16 rows of O, of one panel or two
inline Count stores_of_warp(const Counted& p) {
    return p.d() == 256 ? 2 : 1;
}

/// Key tiles of the 64 rows of a warpgroup
struct GroupVisit {
    Count tiles = 0, masked = 0;
    Count rows = 0;  ///< that see a key, those behind the last query included
};

/// A query tile: what its warpgroups visit, and the key tiles that the block copies
struct QueryTile {
    Count tiles = 0;
    std::vector<GroupVisit> groups;
};

/// All query tiles, head by head. `own_diagonal`: each warpgroup visits what its own rows see; otherwise what
/// those of the block see. Rows that see nothing visit one tile, which is masked.
inline std::vector<QueryTile> query_tiles(const Counted& p, bool own_diagonal) {
    const int Bc = hopper_Bc(p), Br = 64 * static_cast<int>(warpgroups(p));
    const auto key_tiles = [&](int first, int rows) {
        const int seen = seen_by(p, 1, std::min(first + rows, p.shape.Nq) - 1);
        return std::max(1, (seen + Bc - 1) / Bc);
    };
    std::vector<QueryTile> list;
    for (Count head = 0; head < p.heads(); ++head) {
        for (int first = 0; first < p.shape.Nq; first += Br) {
            QueryTile of_block;
            of_block.tiles = key_tiles(first, Br);
            for (int row = first; row < first + Br; row += 64) {
                GroupVisit group;
                group.tiles = !own_diagonal ? of_block.tiles : row < p.shape.Nq ? key_tiles(row, 64) : 0;
                for (int j = 0; j < static_cast<int>(group.tiles); ++j)
                    group.masked += (j + 1) * Bc > seen_by(p, 1, row);
                for (int r = row; r < row + 64; ++r) group.rows += group.tiles > 0 && seen_by(p, 1, r) > 0;
                of_block.groups.push_back(group);
            }
            list.push_back(of_block);
        }
    }
    return list;
}

template <class F>
Count sum_of_groups(const std::vector<QueryTile>& tiles, F&& f) {
    Count total = 0;
    for (const QueryTile& of_block : tiles) {
        for (const GroupVisit& group : of_block.groups) total += f(group);
    }
    return total;
}

/// Key tiles that blocks copy
inline Count copied_tiles(const std::vector<QueryTile>& tiles) {
    Count total = 0;
    for (const QueryTile& of_block : tiles) total += of_block.tiles;
    return total;
}

/// (warpgroup, key tile) pairs
inline Count group_tiles(const std::vector<QueryTile>& tiles) {
    return sum_of_groups(tiles, [](auto& group) { return group.tiles; });
}

/// (warpgroup, query tile) pairs that write rows of O
inline Count writing_groups(const std::vector<QueryTile>& tiles) {
    return sum_of_groups(tiles, [](auto& group) { return group.tiles > 0; });
}

/// One per multiprocessor, if there are tiles for all
inline Count persistent_blocks(const std::vector<QueryTile>& tiles, const Counted& p) {
    return std::min<Count>(p.sm_count, tiles.size());
}

/// Problems with more query tiles than multiprocessors, so that blocks go on to a second one
inline constexpr Shape crowded_shapes[] = {
    {3, 2, 1, 200, 130, 64}, {2, 3, 3, 130, 200, 128}, {2, 3, 1, 130, 70, 256}};

/// What all threads do for query tiles and key tiles, and at the end of their block
inline Count persistent_shuffles(const std::vector<QueryTile>& tiles, const Counted& p) {
    const Count blocks = persistent_blocks(tiles, p), groups = warpgroups(p);
    // `uniform` is one. Each warp asks which warpgroup it is in. Those of consumers read tile slots of three
    // numbers, also the last, which has none, and say thrice per key tile where operands are. Two rows of a
    // lane: two shuffles for the first maximum, and two add up l.
    return 4 * ((1 + groups) * blocks + groups * 3 * (tiles.size() + blocks) + group_tiles(tiles) * 3 +
                writing_groups(tiles) * 2 * (2 + 2));
}

inline Count persistent_waits(const std::vector<QueryTile>& tiles, const Counted& p) {
    const Count blocks = persistent_blocks(tiles, p);
    // For Q or a place for it, and at the end of a block; for K and for V. The producer is one thread.
    return tiles.size() + blocks + 2 * copied_tiles(tiles) +
           128 * (warpgroups(p) * (tiles.size() + blocks) + 2 * group_tiles(tiles));
}

inline Count persistent_warp_syncs(const std::vector<QueryTile>& tiles, const Counted& p) {
    return 4 * (warpgroups(p) * tiles.size() + writing_groups(tiles) * 2 * stores_of_warp(p));
}

}  // namespace ladder::formulas
