/// @file
/// Even shares of the work of all requests, each of which has its own number of keys.
#pragma once

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "../06_flash_decoding/claims.h"
#include "../11_keys_per_warp/claims.h"
#include "harness/features/cache.h"

namespace ladder::formulas {

/// What a stage does beyond this for a share of a query tile, key tiles begin .. end - 1 of a request.
struct ShareExtras {
    Count load_bytes = 0, shuffles = 0;
};

using Counters = std::map<std::string_view, Count>;

/// The blocks of the grid, so many for each multiprocessor at most, for tiles of Bc keys. `no_more`: than
/// shorten the longest part of a query tile.
inline int grid_of(const Counted& p, int Bc, int per_sm = 1, bool no_more = false) {
    const int places = per_sm * p.sm_count, most = (p.shape.Nk + Bc - 1) / Bc;
    const int query_tiles = p.shape.B * p.shape.Hkv * ((p.group() * p.shape.Nq + 15) / 16);
    const int parts = std::min(most, std::max(1, places / query_tiles)), longest = (most + parts - 1) / parts;
    const int even = std::min(places, query_tiles * (no_more ? (most + longest - 1) / longest : parts));
    const int long_share = 8 * even < 7 * places ? 16 : 256;
    return query_tiles * most >= long_share * places ? places : even;
}

/// The keys of each request.
inline std::vector<int> keys_of_requests(const Counted& p) {
    std::vector<int> keys(p.B());
    for (int b = 0; b < p.shape.B; ++b) keys[b] = length_of({.shape = p.shape, .features = p.features}, b);
    return keys;
}

/// How a launch differs from that of stage 80.
struct LineForm {
    int parts_at_a_time = 0;  ///< a merge takes so many; a lane reads m and l of one and tells the others
    bool divides = false;     ///< finds the request of a place by a division, if all have as many keys
};

/// The work of one launch, whose blocks take even shares of the query tiles of requests with so many keys
/// each: of a place for each key tile and, in long shares, two for beginning with a query tile. `goes_on`:
/// each row of a query tile begins with a key before the first of these. Query tiles have Br rows: 16, which
/// the warps share, or 64, of which each has its own.
template <class F>
Counters work_of_line(const Counted& p, const std::vector<int>& keys, int grid, int Bc, F&& extras_of,
                      bool goes_on = false, int Br = 16, const LineForm& form = {}) {
    const int group = p.group(), Hkv = p.shape.Hkv, B = p.shape.B;
    const int Tr = (group * p.shape.Nq + Br - 1) / Br;
    const bool share = Br == 16;
    const Count sharing = share ? warps : 1;
    std::vector<Counted> requests(B, p);
    std::vector<int> Tc(B);
    Count total = 0;
    for (int b = 0; b < B; ++b) {
        requests[b].shape.Nk = keys[b];
        Tc[b] = std::max(1, (keys[b] + Bc - 1) / Bc);
        total += Count(Hkv * Tr * Tc[b]);
    }
    const Count blocks = std::min<Count>(grid, total);
    const int start = total < 16 * blocks ? 0 : 2;
    total += Count(start * Hkv * Tr * B);

    // A look at the first n requests: a lane for each, 32 at a time, whose prefix sum takes five shuffles.
    // One more tells all lanes the sum of all, or of those before the request that is found.
    const bool has_lengths = !p.features.lengths.empty();
    Count load_bytes = 0, shuffles = 0;
    const auto look = [&](int n) {
        if (form.divides && !has_lengths) return;
        shuffles += warps * 6 * Count((n + 31) / 32);
        if (has_lengths) load_bytes += warps * 4 * Count(std::min(B, (n + 31) / 32 * 32));
    };
    for (int block = 0; block < grid; ++block) look(B);  // the last one, that finds nothing left

    std::vector<Visit> pieces, undivided;
    Count rows_of_parts = 0, atomics = 0, KV_bytes = 0;
    Count merge_bytes = 0, merge_exponentials = 0, merge_divides = 0;
    Count t = 0, block = 0;  // of the line; begin(block) <= t
    for (int b = 0; b < B; ++b) {
        const Counted& own = requests[b];
        for (int r = 0; r < Hkv * Tr; ++r) {
            const int first_row = r % Tr * Br, seen = (seen_by(own, group, first_row + Br - 1) + Bc - 1) / Bc;
            Count parts = 0;
            for (int place = 0; place < start + Tc[b];) {
                while (total * (block + 1) / blocks <= t) ++block;
                const int left = static_cast<int>(total * (block + 1) / blocks - t);  // of the share
                const int begin = std::max(0, place - start), end = std::min(Tc[b], place + left - start);
                look(B);
                look(b + 1);
                if (has_lengths) load_bytes += 128 * 4;  // each thread reads the length of the request
                t += Count(end + start - place);
                place = end + start;
                if (end <= begin) continue;  // the share ends before a key tile
                Visit piece =
                    visit(own, Br, Bc, group, first_row, begin, std::max(begin, std::min(end, seen)), true);
                const ShareExtras extras = extras_of(own, piece, begin);
                load_bytes += extras.load_bytes;
                shuffles += extras.shuffles;
                KV_bytes += KV_bytes_of({piece}, own);
                if (goes_on && begin == 0) {  // with one warp, whose lanes each read O, m and l
                    load_bytes += piece.queries * (p.d() + 2 * in_a_quad) * 4;
                    piece.padded += piece.queries - piece.rows;
                    piece.rows = piece.queries;
                }
                pieces.push_back(piece);
                if (end - begin == Tc[b]) {
                    undivided.push_back(piece);
                } else {
                    parts += 1;
                    rows_of_parts += piece.queries;
                }
            }
            if (parts == 0) continue;
            const Visit whole = visit(own, Br, Bc, group, first_row, 0, Tc[b], true);
            atomics += parts;
            if (const Count most = form.parts_at_a_time; most > 0) {
                const Count rounds = (parts + most - 1) / most;
                merge_bytes += whole.queries * parts * (8 + p.d() * 4);
                merge_exponentials += whole.queries * rounds * 32 * 2;
                shuffles += whole.queries * (rounds * (5 + most) + 5);
            } else {
                merge_bytes += load_bytes_of_merge(p, whole.queries, parts);
                merge_exponentials += exponentials_of_merge(whole.queries, parts);
            }
            merge_divides += (goes_on ? whole.queries : whole.rows) * 32;
        }
    }

    const Count tiles = tiles_of(pieces);
    const Count queries = sum(pieces, [](auto& v) { return v.tiles > 0 ? v.queries : 0; });
    return {
        {"blocks", grid},
        {"tiles", tiles},
        {"masked_tiles", masked_of(pieces)},
        {"mma", tiles * p.d() * Bc / 64 * Br / 16},
        {"barriers", 2 * tiles + (share ? 3 : 1) * pieces.size() + 2 * atomics},
        {"atomics", atomics},
        {"fences", 2 * atomics},
        {"shared_exchange_bytes", (share ? exchanged_by_warps(pieces, p) : 0) + atomics * (1 + warps * 32)},
        {"shuffles", tiles * warps * 2 * 4 + shuffles},
        {"exponentials", tiles * Br * (Bc + in_a_quad * sharing) + merge_exponentials +
                             (share ? exponentials_of_merged_warps(pieces) : 0)},
        {"divides", divides_of_warps(undivided) / warps * sharing + merge_divides},
        {"evict_first_bytes", KV_bytes},
        {"global_load_bytes", KV_bytes + queries * p.d() * 2 + merge_bytes + load_bytes},
        {"global_store_bytes", output_bytes(p) + rows_of_parts * (p.d() + 2) * 4}};
}

/// The workspace of its parts, which have room for so many rows, and counters.
inline Count line_bytes(const Counted& p, int grid, int rows = 16) {
    const Count query_tiles = p.B() * p.shape.Hkv * ((p.group() * p.Nq() + 15) / 16);
    return 2 * Count(grid) * rows * (p.d() + 2) * 4 + query_tiles * 4;
}

/// Claims of a stage with one such launch.
template <class F>
void claim_line(Claims& c, int grid, int Bc, F&& extras_of) {
    for (const auto& [counter, count] : work_of_line(c.p, keys_of_requests(c.p), grid, Bc, extras_of))
        c.is(counter, count);
    c.is("workspace_bytes", line_bytes(c.p, grid));
}

/// Requests of lengths at and next to those of tiles, without keys, and more of them than a warp has lanes.
inline std::vector<Case> cases_with_lengths() {
    const struct {
        Shape shape;
        const char* lengths;
    } problems[] = {{{8, 8, 2, 1, 1024, 64}, "1000,0,128,129,1,127,300,1024"},
                    {{3, 4, 4, 1, 700, 128}, "700,1,350"},
                    {{2, 6, 2, 9, 500, 128}, "500,5"},
                    {{2, 4, 1, 1, 640, 256}, "0,640"},
                    {{70, 2, 1, 1, 200, 64}, "200,0,130,3,64"},
                    {{3, 2, 2, 1, 400, 64}, "0,0,0"},
                    {{15, 2, 2, 1, 2048, 64}, "2048,0,700,1,129"}};  // long shares
    std::vector<Case> cases;
    for (const bool causal : {false, true}) {
        for (const auto& [shape, lengths] : problems)
            cases.push_back({.shape = shape, .causal = causal, .features = {.lengths = lengths}});
    }
    return cases;
}

}  // namespace ladder::formulas
