/// @file
/// The tiles of the 30s' kernels in a window: what a block copies, what each of its warpgroups multiplies by,
/// and what follows from both.
#pragma once

#include "../35_tile_scheduler/claims.h"

namespace ladder::formulas {

/// Keys or key tiles begin .. end - 1
struct Range {
    int begin, end;
};

inline Range keys_of(const Counted& p, int row) {
    const int position = row + p.shape.Nk - p.shape.Nq, right = p.causal ? 0 : p.features.window.right;
    return {p.features.window.left < 0 ? 0 : std::max(0, position - p.features.window.left),
            right < 0 ? p.shape.Nk : std::min(p.shape.Nk, position + right + 1)};
}

/// Rows that see nothing visit one tile, which is masked.
inline Range key_tiles(const Counted& p, int first, int rows) {
    const int Bc = hopper_Bc(p), begin = keys_of(p, first).begin / Bc;
    if (first >= p.shape.Nq) return {0, 0};
    return {begin,
            std::max(begin + 1, (keys_of(p, std::min(p.shape.Nq, first + rows) - 1).end + Bc - 1) / Bc)};
}

inline std::vector<QueryTile> tiles_in_window(const Counted& p) {
    const int Bc = hopper_Bc(p), Br = 64 * static_cast<int>(warpgroups(p));
    std::vector<QueryTile> list;
    for (Count head = 0; head < p.heads(); ++head) {
        for (int first = 0; first < p.shape.Nq; first += Br) {
            const Range all = key_tiles(p, first, Br);
            QueryTile of_block{.tiles = Count(all.end - all.begin), .groups = {}};
            for (int row = first; row < first + Br; row += 64) {
                const Range own = key_tiles(p, row, 64);
                GroupVisit group{.tiles = Count(own.end - own.begin)};
                const int first_seen_by_all = keys_of(p, std::min(p.shape.Nq, row + 64) - 1).begin;
                for (int j = own.begin; j < own.end; ++j)
                    group.masked += j * Bc < first_seen_by_all || (j + 1) * Bc > keys_of(p, row).end;
                of_block.groups.push_back(group);
            }
            list.push_back(of_block);
        }
    }
    return list;
}

/// Of so many blocks that compute these query tiles and store so many boxes of 16 rows
inline void claim_tiles(Claims& c, const std::vector<QueryTile>& tiles, Count blocks, Count boxes) {
    const Counted& p = c.p;
    const Count Bc = hopper_Bc(p), computed = group_tiles(tiles), copied = copied_tiles(tiles);
    c.is("tiles", computed);
    c.is("masked_tiles", sum_of_groups(tiles, [](auto& group) { return group.masked; }));
    c.is("wgmma", computed * (p.d() / 16 + Bc / 16));
    c.is("wgmma_columns", computed * (p.d() / 16 * Bc + Bc / 16 * p.d()));
    c.is("votes", computed * 4);
    c.is("bulk_loads", tiles.size() * warpgroups(p) + 2 * copied);
    c.is("bulk_bytes", (tiles.size() * 64 * warpgroups(p) + 2 * copied * Bc + boxes * 16) * p.d() * 2);
    // A warpgroup waits for each tile that its block copies, whether it multiplies by it or not.
    c.is("mbarrier_waits",
         tiles.size() + blocks + 2 * copied + 128 * warpgroups(p) * (tiles.size() + blocks + 2 * copied));
    // Turns are those of 36. Threads of a warpgroup wait for each other before it releases a tile left out.
    const bool turns = p.d() <= 128;
    Count taken = 0, left_out = 0;
    for (const QueryTile& of_block : tiles) {
        taken += turns ? warpgroups(p) * (of_block.tiles - 1) : 0;
        for (const GroupVisit& group : of_block.groups) left_out += of_block.tiles - group.tiles;
    }
    c.is("named_waits", 128 * (taken + left_out));
    c.is("named_barriers", 128 * (2 * taken + left_out + (turns ? blocks : 0)));
}

}  // namespace ladder::formulas
