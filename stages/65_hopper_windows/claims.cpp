// Copies the key tiles of a window, multiplies by those of each warpgroup's rows, and masks at the edges.
#include "../35_tile_scheduler/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// Keys or key tiles begin .. end - 1
struct Range {
    int begin, end;
};

Range keys_of(const Counted& p, int row) {
    const int position = row + p.shape.Nk - p.shape.Nq, right = p.causal ? 0 : p.window.right;
    return {p.window.left < 0 ? 0 : std::max(0, position - p.window.left),
            right < 0 ? p.shape.Nk : std::min(p.shape.Nk, position + right + 1)};
}

/// Rows that see nothing visit one tile, which is masked.
Range key_tiles(const Counted& p, int first, int rows) {
    const int Bc = hopper_Bc(p), begin = keys_of(p, first).begin / Bc;
    if (first >= p.shape.Nq) return {0, 0};
    return {begin,
            std::max(begin + 1, (keys_of(p, std::min(p.shape.Nq, first + rows) - 1).end + Bc - 1) / Bc)};
}

std::vector<QueryTile> tiles_in_window(const Counted& p) {
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

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto tiles = tiles_in_window(p);
    const Count Bc = hopper_Bc(p), computed = group_tiles(tiles), copied = copied_tiles(tiles);
    const Count writing_warps = 4 * writing_groups(tiles), O_bytes = writing_warps * 16 * p.d() * 2;
    const Count loaded_bytes = (tiles.size() * 64 * warpgroups(p) + 2 * copied * Bc) * p.d() * 2;
    c.is("tiles", computed);
    c.is("masked_tiles", sum_of_groups(tiles, [](auto& group) { return group.masked; }));
    c.is("wgmma", computed * (p.d() / 16 + Bc / 16));
    c.is("wgmma_columns", computed * (p.d() / 16 * Bc + Bc / 16 * p.d()));
    c.is("votes", computed * 4);
    c.is("bulk_loads", tiles.size() * warpgroups(p) + 2 * copied);
    c.is("bulk_bytes", loaded_bytes + O_bytes);
    // A warpgroup waits for each tile that its block copies, whether it multiplies by it or not.
    const Count blocks = persistent_blocks(tiles, p);
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
    // In a window a row may begin after the first tile of its warpgroup, which then counts as a rise of m.
    if (p.window == Window())
        c.only_moves({"mbarrier_waits", "mbarrier_stalls", "named_waits", "named_barriers", "named_stalls",
                      "exponentials_beside_products", "exponentials_beside_own_products"});
}

std::vector<Case> in_windows(std::vector<Case> cases) {
    const Window windows[] = {{300, 0}, {127, 0}, {128, 30}, {-1, 5}, {0, 0}, {65, -1}};
    for (std::size_t k = 0; k < cases.size(); ++k) cases[k].window = windows[k % std::size(windows)];
    return cases;
}

constexpr Shape long_shapes[] = {{1, 2, 1, 700, 700, 64}, {1, 1, 1, 500, 650, 128}, {1, 1, 1, 400, 300, 256}};

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes, wide_shapes, crowded_shapes}),
                              in_windows(cases_of({long_shapes, usual_shapes, crowded_shapes}))),
              .resident_blocks = 1);

}  // namespace
