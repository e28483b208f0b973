/// @file
/// The line of all query tiles of a cache, and what its blocks copy, multiply and merge.
#pragma once

#include "../37_packed_rows/claims.h"
#include "../83_shared_prefix/claims.h"

namespace ladder::formulas {

constexpr int cache_Br = 128;

/// Keys of a tile
inline int cache_Bc(const Counted& p) {
    return p.d() > 128 ? 64 : 128;
}

/// Keys begin .. end - 1, counted from the first that a query tile has
struct SeenKeys {
    int begin, end;
};

/// The keys that row i of a request with so many keys may see. In a tree a window may reach as far as that of
/// row 0.
inline SeenKeys keys_of_row(const Counted& p, int keys, int i) {
    const Window window = p.features.window;
    const int position = i + keys - p.shape.Nq, right = p.causal ? 0 : window.right,
              last = p.features.tree.empty() ? position : keys - p.shape.Nq;
    return {window.left < 0 ? 0 : std::max(0, last - window.left),
            right < 0 ? keys : std::min(keys, position + right + 1)};
}

/// Key tiles begin .. end - 1 of a query tile, which a block takes.
struct Piece {
    int query_tile, begin, end;
};

/// Rows of a query tile, and the keys that each sees: neither bound falls from a row to the next.
struct Rows {
    std::vector<SeenKeys> seen;
    int Bc, Tc, parts = 0;

    /// The key tiles of a piece that some of rows first .. last - 1 see
    Count tiles(std::size_t first, std::size_t last, const Piece& piece) const {
        if (first >= seen.size()) return 0;
        const int begin = std::max(piece.begin, seen[first].begin / Bc),
                  keys = std::max(0, seen[std::min(last, seen.size()) - 1].end);
        return std::max(0, std::min(piece.end, (keys + Bc - 1) / Bc) - begin);
    }
    /// Those of them with a key that one of these rows does not see
    Count masked(std::size_t first, std::size_t last, const Piece& piece) const {
        if (first >= seen.size()) return 0;
        const int begin = std::max(piece.begin, seen[first].begin / Bc),
                  end = begin + static_cast<int>(tiles(first, last, piece));
        const int by_all = seen[std::min(last, seen.size()) - 1].begin;
        Count masked = 0;
        for (int j = begin; j < end; ++j) masked += j * Bc < by_all || (j + 1) * Bc > seen[first].end;
        return masked;
    }
};

/// All query tiles: those of the prefix, for the rows of all requests, and then those of own keys, from the
/// first that a row of the request sees.
inline std::vector<Rows> tiles_of_queries(const Counted& p) {
    const int prefix = p.features.prefix, count = p.group() * p.shape.Nq, Bc = cache_Bc(p);
    std::vector<Rows> tiles;
    const auto add = [&](const std::vector<SeenKeys>& seen, int keys) {
        const int Tc = std::max(1, (keys + Bc - 1) / Bc);
        for (int h = 0; h < p.shape.Hkv; ++h) {
            for (auto row = seen.begin(); row < seen.end();) {
                const auto end = row + std::min<std::ptrdiff_t>(cache_Br, seen.end() - row);
                tiles.push_back({{row, end}, Bc, Tc});
                row = end;
            }
        }
    };
    if (prefix > 0) add(std::vector<SeenKeys>(p.shape.B * count, {0, prefix}), prefix);
    for (const int keys : keys_of_requests(p)) {
        const int first = std::max(prefix, keys_of_row(p, keys, 0).begin);
        std::vector<SeenKeys> seen(count);
        for (int row = 0; row < count; ++row) {
            const SeenKeys own = keys_of_row(p, keys, row / p.group());
            seen[row] = {std::max(first, own.begin) - first, std::max(first, own.end) - first};
        }
        add(seen, keys - first);
    }
    return tiles;
}

/// The blocks of the first launch: as many for one query tile as for another, where nearly all SMs have one
inline int blocks_of(const Counted& p) {
    const int Bc = cache_Bc(p), left = p.features.window.left;
    const int keys = left < 0 || left > p.shape.Nk - p.shape.Nq ? p.shape.Nk : left + p.shape.Nq;
    const int tiles = p.shape.B * p.shape.Hkv * ((p.group() * p.shape.Nq + cache_Br - 1) / cache_Br);
    const int even = tiles * std::min((keys + Bc - 1) / Bc, p.sm_count / tiles);
    return p.features.prefix == 0 && 8 * even >= 7 * p.sm_count ? even : p.sm_count;
}

/// What the blocks take of them: even shares of all key tiles, and two more places for each query tile where
/// shares are long.
inline std::vector<Piece> pieces_of(const std::vector<Rows>& tiles, int grid) {
    Count total = 0;
    for (const Rows& rows : tiles) total += rows.Tc;
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

/// Everything but exponentials. Returns the merged rows, the rows that are complete at once, and the rounds
/// of merging, 16 parts at a time.
struct CacheWork {
    Count computed = 0, merged = 0, complete = 0, rounds = 0;
};

inline CacheWork claim_cache(Claims& c) {
    const Counted& p = c.p;
    const int Br = cache_Br, Bc = cache_Bc(p);
    const bool has_prefix = p.features.prefix > 0;
    std::vector<Rows> tiles = tiles_of_queries(p);
    const std::vector<Piece> pieces = pieces_of(tiles, blocks_of(p));
    for (const Piece& piece : pieces) ++tiles[piece.query_tile].parts;
    CacheWork work;
    Count &computed = work.computed, copied = 0, groups = 0, masked = 0, part_rows = 0;
    for (const Piece& piece : pieces) {
        const Rows& rows = tiles[piece.query_tile];
        copied += rows.tiles(0, Br, piece);
        for (const int first : {0, 64}) {
            computed += rows.tiles(first, first + 64, piece);
            groups += rows.tiles(first, first + 64, piece) > 0;
            masked += rows.masked(first, first + 64, piece);
        }
        if (has_prefix || rows.parts > 1) part_rows += rows.seen.size();
        if (!has_prefix && rows.parts == 1) work.complete += rows.seen.size();
    }
    // A warp merges a row, 16 of its parts at a time: its lanes weigh each of them, and what came before.
    // Parts of the prefix come first among the query tiles, in the order of the rows.
    const int count = p.group() * p.shape.Nq, all = p.shape.B * count;
    const int prefix_Tr = has_prefix ? (all + Br - 1) / Br : 0, Tr = (count + Br - 1) / Br;
    for (int h = 0; h < p.shape.Hkv; ++h) {
        for (int row = 0; row < all; ++row) {
            const int request = row / count, hidden = p.shape.Hkv * (prefix_Tr + request * Tr);
            int parts = tiles[hidden + h * Tr + row % count / Br].parts;
            if (!has_prefix && parts == 1) continue;
            if (has_prefix) parts += tiles[h * prefix_Tr + row / Br].parts;
            work.rounds += (parts + 15) / 16;
            work.merged += 1;
        }
    }
    c.is("launches", 2);
    c.is("early_launches", 1);
    c.is("blocks", blocks_of(p) + (p.rows() + 3) / 4);
    c.is("tiles", computed);
    c.is("masked_tiles", masked);
    c.is("wgmma", computed * (p.d() / 16 + Bc / 16));
    c.is("wgmma_columns", computed * (p.d() / 16 * Bc + Bc / 16 * p.d()));
    c.is("bulk_loads", 0);
    c.is("async_copies", (2 * copied * Bc + groups * 64) * p.d() / 8);
    c.is("global_store_bytes", output_bytes(p) + part_rows * (p.d() + 2) * 4);
    c.is("workspace_bytes", 2 * (p.sm_count * Br + p.rows()) * (p.d() + 2) * 4);
    return work;
}

/// Those of 37, and those of 81 and 83 up to this head dimension.
inline std::vector<Case> cache_cases(int most_d) {
    std::vector<Case> cases =
        joined(joined(cases_of({usual_shapes, draft_shapes}), paged_cases()), prefixed_cases());
    std::erase_if(cases, [&](const Case& c) { return c.shape.d > most_d; });
    return cases;
}

}  // namespace ladder::formulas
