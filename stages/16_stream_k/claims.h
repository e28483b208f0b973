/// @file
/// Even shares of the key tiles, of any size, for any number of blocks.
#pragma once

#include <algorithm>

#include "../06_flash_decoding/claims.h"
#include "../11_keys_per_warp/claims.h"

namespace ladder::formulas {

/// What blocks take, each a share of one query tile, and the exponentials of the merges of their parts.
struct Taken {
    std::vector<Visit> pieces;
    Count merge_exponentials = 0;
};

/// Claims of a stage whose blocks, as many as there are places at most, take even shares of tiles of Bc keys;
/// but for those of its softmax.
inline Taken claim_taken(Claims& c, int Bc, int places) {
    const Counted& p = c.p;
    const int group = p.group(), Tc = (p.shape.Nk + Bc - 1) / Bc;
    const int Tr = (group * p.shape.Nq + 15) / 16, query_tiles = static_cast<int>(p.heads()) / group * Tr;
    const int even = query_tiles > places ? places : query_tiles * std::min(Tc, places / query_tiles);
    const int long_share = 8 * even < 7 * places ? 16 : 256;
    const int blocks = query_tiles * Tc >= long_share * places ? places : even;
    const int left_over = query_tiles % blocks, rest = left_over * Tc < blocks ? 0 : left_over;

    std::vector<Visit> pieces, undivided;
    std::vector<Count> parts(rest);
    Count rows_of_parts = 0;
    const auto take = [&](int r, int begin, int end) {
        const int first_row = r % Tr * 16;
        const int seen = (seen_by(p, group, first_row + 15) + Bc - 1) / Bc;
        pieces.push_back(
            visit(p, 16, Bc, group, first_row, begin, std::max(begin, std::min(end, seen)), true));
        if (end - begin == Tc) return undivided.push_back(pieces.back());
        parts[r] += 1;
        rows_of_parts += pieces.back().queries;
    };
    for (int block = 0; block < blocks; ++block) {
        for (int t = rest * Tc * block / blocks; t < rest * Tc * (block + 1) / blocks;) {
            const int end = std::min(t / Tc * Tc + Tc, rest * Tc * (block + 1) / blocks);
            take(t / Tc, t % Tc, t % Tc + end - t);
            t = end;
        }
    }
    for (int r = rest; r < query_tiles; ++r) take(r, 0, Tc);
    Count atomics = 0, load_bytes = 0, exponentials = 0, divides = 0;  // of the merges of parts
    for (int r = 0; r < rest; ++r) {
        if (parts[r] == 0) continue;  // a block has it as a whole
        const Visit whole = visit(p, 16, Bc, group, r % Tr * 16, 0, Tc, true);
        atomics += parts[r];
        load_bytes += load_bytes_of_merge(p, whole.queries, parts[r]);
        exponentials += exponentials_of_merge(whole.queries, parts[r]);
        divides += whole.rows * 32;
    }

    const Count tiles = tiles_of(pieces);
    c.is("blocks", blocks);
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(pieces));
    c.is("mma", tiles * p.d() * Bc / 64);
    // Two for each key tile, two while the warps merge, one before Q and the ring are written anew, two to
    // count
    c.is("barriers", 2 * tiles + 3 * pieces.size() + 2 * atomics);
    c.is("atomics", atomics);
    c.is("fences", 2 * atomics);
    c.is("workspace_bytes", rest == 0 ? 0 : 2 * blocks * 16 * (p.d() + 2) * 4 + rest * 4);
    c.is("shared_exchange_bytes", exchanged_by_warps(pieces, p) + atomics * (1 + warps * 32));
    c.is("divides", divides + divides_of_warps(undivided));
    // Q is read for a share with a visible key, and for no other.
    const Count queries = sum(pieces, [](auto& v) { return v.tiles > 0 ? v.queries : 0; });
    c.is("global_load_bytes", KV_bytes_of(pieces, p) + queries * p.d() * 2 + load_bytes);
    c.is("global_store_bytes", output_bytes(p) + rows_of_parts * (p.d() + 2) * 4);
    return {pieces, exponentials};
}

/// The same of one that finds the maximum and the sum of each row in each key tile.
inline void claim_shares(Claims& c, int Bc, int places) {
    const auto [pieces, merge_exponentials] = claim_taken(c, Bc, places);
    c.is("shuffles", tiles_of(pieces) * warps * 2 * 4);
    c.is("exponentials", exponentials_of_warps(pieces, Bc) + merge_exponentials);
}

}  // namespace ladder::formulas
