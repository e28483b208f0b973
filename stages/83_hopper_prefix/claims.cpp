// Reads the prefix's keys for 128 rows of all requests at a time, and own keys, in one launch of even shares;
// a second one merges. Bulk copies do not follow pages, so threads copy K and V.
#include "../37_packed_rows/claims.h"
#include "../82_shared_prefix/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

constexpr int Br = 128, Bc = 128;

/// Key tiles begin .. end - 1 of a query tile, which a block takes.
struct Piece {
    int query_tile, begin, end;
};

/// Rows of a query tile, and how many keys each sees.
struct Rows {
    std::vector<int> seen;
    int Tc, parts = 0;

    /// The key tiles from `begin` on that some of rows first .. last - 1 see
    Count tiles(std::size_t first, std::size_t last, const Piece& piece) const {
        if (first >= seen.size()) return 0;
        const int most = *std::max_element(seen.begin() + first, seen.begin() + std::min(last, seen.size()));
        return std::max(0, std::min(piece.end, (most + Bc - 1) / Bc) - piece.begin);
    }
};

/// All query tiles: those of the prefix, for the rows of all requests, and then those of own keys.
std::vector<Rows> tiles_of_queries(const Counted& p) {
    const int prefix = p.features.prefix, count = p.group() * p.shape.Nq;
    std::vector<Rows> tiles;
    const auto add = [&](const std::vector<int>& seen, int keys) {
        const int Tc = std::max(1, (keys + Bc - 1) / Bc);
        for (int h = 0; h < p.shape.Hkv; ++h) {
            for (auto row = seen.begin(); row < seen.end();
                 row += std::min<std::ptrdiff_t>(Br, seen.end() - row))
                tiles.push_back({{row, row + std::min<std::ptrdiff_t>(Br, seen.end() - row)}, Tc});
        }
    };
    if (prefix > 0) add(std::vector<int>(p.shape.B * count, prefix), prefix);
    for (const int keys : keys_of_requests(p)) {
        std::vector<int> seen(count, keys - prefix);
        for (int row = 0; p.causal && row < count; ++row)
            seen[row] = std::clamp(row / p.group() + keys - p.shape.Nq + 1 - prefix, 0, keys - prefix);
        add(seen, keys - prefix);
    }
    return tiles;
}

/// The blocks of the first launch: as many for one query tile as for another, where nearly all SMs have one
int blocks_of(const Counted& p) {
    const int tiles = p.shape.B * p.shape.Hkv * ((p.group() * p.shape.Nq + Br - 1) / Br);
    const int even = tiles * std::min((p.shape.Nk + Bc - 1) / Bc, p.sm_count / tiles);
    return p.features.prefix == 0 && 8 * even >= 7 * p.sm_count ? even : p.sm_count;
}

/// What the blocks take of them: even shares of all key tiles, and two more places for each query tile where
/// shares are long.
std::vector<Piece> pieces_of(const std::vector<Rows>& tiles, int grid) {
    Count total = 0;
    for (const Rows& tile : tiles) total += tile.Tc;
    const Count blocks = std::min<Count>(grid, total);
    const int start = total < 16 * blocks ? 0 : 2;
    total += start * tiles.size();
    std::vector<Piece> pieces;
    Count t = 0, block = 0;
    for (int n = 0; n < static_cast<int>(tiles.size()); ++n) {
        for (int place = -start; place < tiles[n].Tc;) {
            while (total * (block + 1) / blocks <= t) ++block;
            const int left = static_cast<int>(total * (block + 1) / blocks - t);
            const int end = std::min(tiles[n].Tc, place + left);
            if (end > 0) pieces.push_back({n, std::max(0, place), end});
            t += end - place;
            place = end;
        }
    }
    return pieces;
}

void claim(Claims& c) {
    const Counted& p = c.p;
    const bool has_prefix = p.features.prefix > 0;
    std::vector<Rows> tiles = tiles_of_queries(p);
    const std::vector<Piece> pieces = pieces_of(tiles, blocks_of(p));
    for (const Piece& piece : pieces) ++tiles[piece.query_tile].parts;
    Count computed = 0, copied = 0, groups = 0, part_rows = 0;
    for (const Piece& piece : pieces) {
        const Rows& tile = tiles[piece.query_tile];
        copied += tile.tiles(0, Br, piece);
        for (const int first : {0, 64}) {
            computed += tile.tiles(first, first + 64, piece);
            groups += tile.tiles(first, first + 64, piece) > 0;
        }
        if (has_prefix || tile.parts > 1) part_rows += tile.seen.size();
    }
    // A warp merges a row, 16 of its parts at a time: its lanes weigh each of them, and what came before.
    // Parts of the prefix come first among the query tiles, in the order of the rows.
    const int count = p.group() * p.shape.Nq, all = p.shape.B * count;
    const int prefix_Tr = has_prefix ? (all + Br - 1) / Br : 0, Tr = (count + Br - 1) / Br;
    Count rounds = 0;
    for (int h = 0; h < p.shape.Hkv; ++h) {
        for (int row = 0; row < all; ++row) {
            const int request = row / count, hidden = p.shape.Hkv * (prefix_Tr + request * Tr);
            int parts = tiles[hidden + h * Tr + row % count / Br].parts;
            if (!has_prefix && parts == 1) continue;
            if (has_prefix) parts += tiles[h * prefix_Tr + row / Br].parts;
            rounds += (parts + 15) / 16;
        }
    }
    c.is("launches", 2);
    c.is("early_launches", 1);
    c.is("blocks", blocks_of(p) + (p.rows() + 3) / 4);
    c.is("tiles", computed);
    c.is("wgmma", computed * (p.d() / 16 + Bc / 16));
    c.is("wgmma_columns", computed * (p.d() / 16 * Bc + Bc / 16 * p.d()));
    c.is("exponentials", computed * 64 * Bc + rounds * 17 * 32);
    c.is("bulk_loads", 0);
    c.is("async_copies", (2 * copied * Bc + groups * 64) * p.d() / 8);
    c.is("global_store_bytes", output_bytes(p) + part_rows * (p.d() + 2) * 4);
    c.is("workspace_bytes", 2 * (p.sm_count * Br + p.rows()) * (p.d() + 2) * 4);
}

/// The parent's, and those of 81 and 82 whose head dimensions the stage has.
std::vector<Case> cases() {
    std::vector<Case> cases =
        joined(joined(cases_of({usual_shapes, draft_shapes}), paged_cases()), prefixed_cases());
    std::erase_if(cases, [](const Case& c) { return c.shape.d > 128; });
    return cases;
}

LADDER_CLAIMS(.claim = claim, .cases = cases(), .resident_blocks = 1);

}  // namespace
