/// @file
/// Column bounds on Hopper: the key tiles that some row of a block sees, and the intervals of rows that are
/// read.
#pragma once

#include "../65_hopper_windows/claims.h"
#include "harness/features/columns.h"

namespace ladder::formulas {

/// SeeingRows begin .. end - 1, of a key; begin = Nq and end = 0 if there are none
struct SeeingRows {
    int begin, end;
};

/// What a key tile is for the rows of a query tile
struct TileClass {
    bool visited, cut, has_gaps;
};

/// The rows that see a key, from the first to the last, and gaps in between.
inline std::array<SeeingRows, 3> rows_of(const Counted& p, const std::vector<reference::HiddenRows>& hidden,
                                         int key) {
    const int Nq = p.shape.Nq, row = key - (p.shape.Nk - Nq), right = p.causal ? 0 : p.features.window.right;
    const SeeingRows none{Nq, 0};
    if (key >= p.shape.Nk) return {none, none, none};
    SeeingRows seen{right < 0 ? 0 : std::max(0, row - right),
                    p.features.window.left < 0 ? Nq : std::min(Nq, row + p.features.window.left + 1)};
    std::array<SeeingRows, 3> rows{none, none, none};
    for (int k = 0; k < 2 && !hidden.empty(); ++k) {
        const int from = hidden[key].begin[k], to = hidden[key].end[k];
        if (from >= to) continue;
        const bool at_begin = from <= seen.begin, at_end = to >= seen.end;
        if (at_begin) seen.begin = std::max(seen.begin, to);
        if (at_end) seen.end = std::min(seen.end, from);
        if (!at_begin && !at_end) rows[1 + k] = {from, to};
    }
    if (seen.begin < seen.end) rows[0] = seen;
    return rows;
}

inline TileClass classify(const Counted& p, const std::vector<reference::HiddenRows>& hidden, int j,
                          int first, int end) {
    int least_begin[3], largest_end[3] = {}, largest_begin[3] = {}, least_end[3];
    std::fill(least_begin, least_begin + 3, p.shape.Nq), std::fill(least_end, least_end + 3, p.shape.Nq);
    const int Bc = hopper_Bc(p);
    for (int key = j * Bc; key < j * Bc + Bc; ++key) {
        const auto rows = rows_of(p, hidden, key);
        for (int k = 0; k < 3; ++k) {
            least_begin[k] = std::min(least_begin[k], rows[k].begin);
            largest_end[k] = std::max(largest_end[k], rows[k].end);
            largest_begin[k] = std::max(largest_begin[k], rows[k].begin);
            least_end[k] = std::min(least_end[k], rows[k].end);
        }
    }
    const auto some_in = [&](int k) { return least_begin[k] < end && largest_end[k] > first; };
    const auto all_in = [&](int k) { return largest_begin[k] <= first && least_end[k] >= end; };
    return {some_in(0) && !all_in(1) && !all_in(2), !all_in(0), some_in(1) || some_in(2)};
}

/// All but exponentials and what depends on the order of blocks
inline void claim_columns(Claims& c) {
    const Counted& p = c.p;
    const int Br = 128, Bc = hopper_Bc(p);
    const Case problem{.shape = p.shape, .causal = p.causal, .features = p.features, .seed = p.seed};
    Count query_tiles = 0, copied = 0, cut = 0, computed = 0, masked = 0, with_rows = 0, turns = 0;
    Count keys = 0, with_gaps = 0, rounds = 0;
    for (int head = 0; head < p.shape.B * p.shape.H; ++head) {
        const auto hidden = hidden_rows(problem, head / p.shape.H, head % p.shape.H);
        for (int first = 0; first < p.shape.Nq; first += Br) {
            const int end = std::min(first + Br, p.shape.Nq);
            const Count groups = end - first > 64 ? 2 : 1;
            Count tiles = 0;
            for (int j = 0; j * Bc < p.shape.Nk; ++j) {
                const TileClass one = classify(p, hidden, j, first, end);
                if (!one.visited) continue;
                tiles += 1;
                cut += one.cut;
                masked += one.cut || one.has_gaps ? groups : 0;
                with_gaps += one.has_gaps ? groups : 0;
                keys += std::min(Bc, p.shape.Nk - j * Bc);
            }
            const int begin = keys_of(p, first).begin / Bc;
            rounds += std::max(0, (keys_of(p, end - 1).end + Bc - 1) / Bc - begin + 31) / 32;
            query_tiles += 1;
            copied += tiles;
            computed += groups * tiles;
            with_rows += groups;
            turns += tiles == 0 || p.d() > 128 ? 0 : 2 * (tiles - 1);
        }
    }
    const Count blocks = std::min<Count>(p.sm_count, query_tiles), key_tiles = (p.Nk() + Bc - 1) / Bc;
    const Count tile_bytes = 3 * (Bc * 8 + 16);  // intervals, and what they have in common
    const std::string& pattern = p.features.columns;
    const Count heads = pattern.empty() ? 1 : column_pattern(pattern).heads(p.shape);
    const Count bounds = pattern.empty() ? 0 : column_pattern(pattern).bounds(problem);
    // Each bound, once for each of three intervals; what 32 key tiles have in common, to count them and to
    // copy them; intervals of rows of cut tiles; and of tiles with gaps both, by each of 128 threads.
    c.is("global_load_bytes", p.B() * heads * p.Nk() * bounds * 3 * 4 + (p.rows() + 2 * keys) * p.d() * 2 +
                                  rounds * 2 * 32 * 3 * 16 + cut * Bc * 8 + with_gaps * 128 * Bc * 8);
    c.is("tiles", computed);
    c.is("masked_tiles", masked);
    c.is("wgmma", computed * (p.d() + Bc) / 16);
    c.is("bulk_loads", query_tiles * 2 + copied * 2 + cut);
    c.is("bulk_bytes", (query_tiles * Br + copied * 2 * Bc + with_rows * 64) * p.d() * 2 + cut * Bc * 8);
    c.is("bulk_stores", with_rows * 4 * stores_of_warp(p));
    c.is("global_store_bytes", output_bytes(p) + p.shape.B * heads * key_tiles * tile_bytes);
    c.is("named_waits", 128 * turns);
    c.is("named_barriers", 128 * (2 * turns + (p.d() <= 128 ? blocks : 0)));
    c.is("mbarrier_waits", query_tiles + blocks + 2 * copied + 256 * (query_tiles + blocks + 2 * copied));
    c.is("launches", 2);
    c.is("atomics", query_tiles);
    c.is("workspace_bytes", p.heads() * key_tiles * tile_bytes + 4);
}

/// The same problems with every pattern in turn, half of them the last, some of them in a window, too.
inline std::vector<Case> with_columns(std::vector<Case> cases) {
    const auto& patterns = column_patterns();
    for (std::size_t k = 0; k < cases.size(); ++k) {
        const bool any = k % 2 == 1;  // bounds, of intervals without rows, too
        cases[k].features.columns = (any ? patterns.back() : patterns[k / 2 % patterns.size()]).name;
        cases[k].seed = k + 1;
        if (k % 5 == 4) cases[k].features.window = {100, 20};
    }
    return cases;
}

/// The middle one of query tiles that a gap of all keys hides: their lower one, or their upper one
inline std::vector<Case> hidden_by_gaps() {
    std::vector<Case> cases;
    for (const std::uint64_t seed : {181, 78})
        cases.push_back({.shape = {1, 1, 1, 400, 128, 64}, .features = {.columns = "random"}, .seed = seed});
    return cases;
}

}  // namespace ladder::formulas
