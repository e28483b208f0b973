/// @file
/// The tiles of the 30s: what blocks of two or three warpgroups that multiply copy and visit.
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

/// All query tiles, head by head, of so many warpgroups and keys. `own_diagonal`: each warpgroup visits what
/// its own rows see; otherwise what those of the block see. Rows that see nothing visit one tile, which is
/// masked. A tile holds rows of one head, or of the `packed` heads of a group.
inline std::vector<QueryTile> query_tiles(const Counted& p, bool own_diagonal, Count groups, int Bc,
                                          int packed = 1) {
    const int Br = 64 * static_cast<int>(groups), rows_of_head = packed * p.shape.Nq;
    const auto key_tiles = [&](int first, int rows) {
        const int seen = seen_by(p, packed, std::min(first + rows, rows_of_head) - 1);
        return std::max(1, (seen + Bc - 1) / Bc);
    };
    std::vector<QueryTile> list;
    for (Count head = 0; head < p.heads() / packed; ++head) {
        for (int first = 0; first < rows_of_head; first += Br) {
            QueryTile of_block;
            of_block.tiles = key_tiles(first, Br);
            for (int row = first; row < first + Br; row += 64) {
                GroupVisit group;
                group.tiles = !own_diagonal ? of_block.tiles : row < rows_of_head ? key_tiles(row, 64) : 0;
                for (int j = 0; j < static_cast<int>(group.tiles); ++j)
                    group.masked += (j + 1) * Bc > seen_by(p, packed, row);
                for (int r = row; r < row + 64; ++r)
                    group.rows += group.tiles > 0 && seen_by(p, packed, r) > 0;
                of_block.groups.push_back(group);
            }
            list.push_back(of_block);
        }
    }
    return list;
}
inline std::vector<QueryTile> query_tiles(const Counted& p, bool own_diagonal = false) {
    return query_tiles(p, own_diagonal, warpgroups(p), hopper_Bc(p));
}

template <class F>
Count sum_of_groups(const std::vector<QueryTile>& tiles, F&& f) {
    Count total = 0;
    for (const QueryTile& of_block : tiles) {
        for (const GroupVisit& group : of_block.groups) total += f(group);
    }
    return total;
}

/// The sum over all query tiles of f(key tiles that the block copies).
template <class F>
Count sum_of_tiles(const std::vector<QueryTile>& tiles, F&& f) {
    Count total = 0;
    for (const QueryTile& of_block : tiles) total += f(of_block.tiles);
    return total;
}

/// Key tiles that blocks copy
inline Count copied_tiles(const std::vector<QueryTile>& tiles) {
    return sum_of_tiles(tiles, [](Count Tc) { return Tc; });
}

/// (warpgroup, key tile) pairs
inline Count group_tiles(const std::vector<QueryTile>& tiles) {
    return sum_of_groups(tiles, [](auto& group) { return group.tiles; });
}

/// Of a persistent kernel: one block per multiprocessor, if there are tiles for all
inline Count persistent_blocks(const std::vector<QueryTile>& tiles, const Counted& p) {
    return std::min<Count>(p.sm_count, tiles.size());
}

}  // namespace ladder::formulas
