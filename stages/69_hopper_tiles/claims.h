/// @file
/// Lists of tiles on Hopper: pairs of key tiles of the union of a block's lists.
#pragma once

#include "../35_tile_scheduler/claims.h"
#include "harness/features/tiles.h"

namespace ladder::formulas {

/// The tiles of a head, by its lists or by the mask alone
inline reference::Tiles tiles_of_head(const Counted& p, int head) {
    constexpr int hidden = reference::Tiles::hidden, full = reference::Tiles::full;
    const Case problem{.shape = p.shape, .features = p.features, .seed = p.seed};
    if (!p.features.tiles.empty()) return tiles_of(problem, head / p.shape.H, head % p.shape.H);
    reference::Tiles tiles;
    for (int first = 0; first < p.shape.Nq; first += 64) {
        for (int key = 0; key < p.shape.Nk; key += 64) {
            const bool is_full = key + 64 <= seen_by(p, 1, first);
            tiles.kinds.push_back(is_full ? full : key < seen_by(p, 1, first + 63) ? 0 : hidden);
        }
    }
    return tiles;
}

/// All but exponentials, the workspace, and what depends on the order of blocks
inline void claim_tile_lists(Claims& c) {
    constexpr int hidden = reference::Tiles::hidden, full = reference::Tiles::full;
    const Counted& p = c.p;
    const bool listed = !p.features.tiles.empty();
    const int Tr = (p.shape.Nq + 63) / 64, Tc = (p.shape.Nk + 63) / 64;
    const Count Bc = hopper_Bc(p), pair = Bc / 64, groups = 2;
    Count query_tiles = 0, slots = 0, unmasked = 0, entries = 0, partial = 0, keys = 0, lists = 0;
    for (int head = 0; head < p.shape.B * p.shape.H; ++head) {
        const reference::Tiles tiles = tiles_of_head(p, head);
        for (int i = 0; i < Tr; i += 2) {
            Count united = 0, own_full = 0;
            for (int j = 0; j < Tc; ++j) {
                bool is_seen = false;
                for (int r = i; r < std::min(Tr, i + 2); ++r) {
                    const int kind = tiles.kinds[r * Tc + j];
                    is_seen = is_seen || kind != hidden;
                    own_full += kind == full;
                    entries += kind != hidden;
                    partial += kind >= 0;
                }
                united += is_seen;
                keys += is_seen ? std::min(64, p.shape.Nk - j * 64) : 0;
            }
            const Count of_tile = std::max<Count>(1, (united + pair - 1) / pair);
            query_tiles += 1;
            slots += of_tile;
            unmasked += own_full + (i + 1 == Tr ? of_tile * pair : 0);  // without rows it masks nothing
            lists += i + 1 == Tr ? 2 : 4;
        }
    }
    const Count blocks = std::min<Count>(p.sm_count, query_tiles);
    c.is("tiles", slots * pair * groups);
    c.is("masked_tiles", slots * pair * groups - unmasked);
    c.is("wgmma", slots * groups * (p.d() / 16 + Bc / 16));
    c.is("wgmma_columns", slots * groups * (p.d() / 16 * Bc + Bc / 16 * p.d()));
    c.is("votes", slots * groups * 4);
    // A box for each panel of a key tile; where a slot has a single one, its panels are one box.
    c.is("bulk_loads", query_tiles * groups + 2 * slots * (pair == 1 ? 1 : pair * (p.d() / 64)));
    c.is("bulk_bytes", (2 * query_tiles * 128 + 2 * slots * Bc) * p.d() * 2);
    c.is("mbarrier_waits", (query_tiles + blocks + 2 * slots) * (1 + 128 * groups));
    c.is("mbarrier_arrivals", query_tiles * (1 + 128 * groups) + 2 * slots * (1 + 128 * groups) + blocks);
    // What each key tile of a slot is for each warpgroup, 8 bytes, and whether the slot is the last one
    c.is("shared_exchange_bytes", (query_tiles + blocks) * 16 * (1 + 128 * groups) +
                                      slots * (groups * pair * 8 + 4 + 128 * groups * (pair * 8 + 4)));
    // Of the mask: where lists begin and end, each of their entries, and two words of each of 128 threads
    const Count of_the_mask = lists * 2 * 4 + entries * 4 + partial * 128 * 2 * 8;
    c.is("global_load_bytes", (p.rows() + 2 * keys) * p.d() * 2 + (listed ? of_the_mask : 0));
    const Count turns = p.d() <= 128 ? 128 * groups * (slots - query_tiles) : 0;
    c.is("named_waits", turns);
    c.is("named_barriers", 2 * turns + (p.d() <= 128 ? 128 * blocks : 0));
}

/// The same problems with every pattern in turn, half of them the last.
inline std::vector<Case> with_tiles(std::vector<Case> cases) {
    const auto& patterns = tile_patterns();
    for (std::size_t k = 0; k < cases.size(); ++k) {
        cases[k].causal = false;
        cases[k].features.tiles = (k % 2 == 1 ? patterns.back() : patterns[k / 2 % patterns.size()]).name;
        cases[k].seed = k + 1;
    }
    return cases;
}

}  // namespace ladder::formulas
