/// @file
/// What 50 to 58 count alike: two warpgroups of 64 keys, and a thread that copies query tiles for both.
#pragma once

#include <algorithm>
#include <numeric>

#include "harness/count/claims.h"

namespace ladder::formulas {

/// A block's tiles, on one problem
struct GradientTiles {
    const Counted& p;

    static constexpr Count groups = 2, threads = 128 * groups, Bc = 64 * groups;
    Count Br() const { return p.d() == 64 ? 128 : 64; }
    Count query_tiles() const { return (p.Nq() + Br() - 1) / Br(); }
    /// By query tiles: the pairs are the same.
    std::vector<Visit> by_query_tiles() const {
        return visits(p, static_cast<int>(Br()), static_cast<int>(Bc));
    }
    /// (query tile, key tile) pairs that are visited
    Count visited() const { return tiles_of(by_query_tiles()); }
    /// Blocks of the kernel that computes gradients
    Count blocks() const { return p.B() * Count(p.shape.Hkv) * ((p.Nk() + Bc - 1) / Bc); }
    /// Whether tiles divide the problem, in these stages and in 46, and nothing is masked
    bool whole() const { return !p.causal && p.Nq() % 128 == 0 && p.Nk() % 128 == 0; }
};

/// The order of key tiles in 55, in other sections and directions in 58, and into how many parts 55
/// divides their query tiles: as many as end soonest.
struct KeyTileOrder {
    Count Tc, heads, section = 1;

    KeyTileOrder(const GradientTiles& of, bool causal, bool in_turns = false)
        : Tc((of.p.Nk() + of.Bc - 1) / of.Bc), heads(of.p.B() * Count(of.p.shape.Hkv)) {
        const Count group = of.p.H() / Count(of.p.shape.Hkv), Tr = of.query_tiles();
        const Count sms = Count(of.p.sm_count), bytes = 8 * of.p.Nq() * of.p.d() * group;
        Count downward = in_turns ? 0 : heads;  // so many heads take the first key tile first
        if (in_turns) {
            const Count L2 = (sms << 20) / 3;
            const bool scattered = causal && (sms + Tc - 1) / Tc * bytes > L2;
            const Count fit = scattered ? heads : std::max<Count>(L2 / bytes, causal ? 1 : 2);
            section = std::clamp<Count>(std::min(sms / std::min<Count>(Tc, 8), fit), 1, heads);
            while (!causal && heads % section > 0) --section;
            if (causal && !scattered) {
                const Count round = std::max<Count>(1, sms / Tc);
                section = std::min(section, (heads + 1) / 2);
                if (section > round) section -= section % round;
            }
            if (causal) downward = scattered ? heads : section;
        } else if (causal) {
            section = std::clamp<Count>(std::min(sms / Tc, (sms << 19) / bytes), 1, heads);
        }
        // Query tiles before a part, of n, of a key tile, over the heads of the group. In 58 all key tiles'
        // parts begin with the same ones: upward after those that do not see the key tile.
        const auto before = [&](Count j, bool down, Count part, Count n) {
            const std::int64_t row = static_cast<std::int64_t>(j * of.Bc) + of.p.shape.Nq - of.p.shape.Nk;
            const Count first = causal && row > 0 ? Count(row) / of.Br() : 0, seen = (Tr - first) * group;
            const Count common = Tr * group * part / n, hidden = first * group;
            if (!in_turns) return seen * part / n;
            return down ? std::min(seen, common) : common - std::min(common, hidden);
        };
        // Each block to the multiprocessor that is idle first; the sections' heads take a key tile in turn
        const auto ends_of = [&](Count n) {
            std::vector<Count> ends(sms);
            for (Count done = 0, now; done < heads; done += now) {
                now = done == 0 && heads % section != 0 ? heads % section : section;
                const bool down = heads - done - now < downward;
                for (Count block = 0; block < Tc * now * n; ++block) {
                    const Count nth = block / (now * n), j = down ? nth : Tc - 1 - nth, part = block % n;
                    *std::min_element(ends.begin(), ends.end()) +=
                        before(j, down, part + 1, n) - before(j, down, part, n) + (n == 1 ? 4 : 7);
                }
            }
            return ends;
        };
        Count soonest = 0;
        for (Count n = 1; n <= std::min<Count>(16, Tr * group) && Tc * heads < 8 * sms; ++n) {
            const std::vector<Count> ends = ends_of(n);
            const Count end = *std::max_element(ends.begin(), ends.end());
            if (n == 1 || end * 100 < soonest * 99) soonest = end, parts = n;
            if (std::accumulate(ends.begin(), ends.end(), Count{0}) * 100 >= soonest * 99 * sms) break;
        }
    }

    Count parts = 1;
};

/// All but how dQ goes to the sums, and who waits for whom there.
inline void claim_gradient_tiles(Claims& c) {
    const Counted& p = c.p;
    const GradientTiles of{p};
    const Count d = p.d(), Br = of.Br(), Bc = of.Bc, blocks = of.blocks(), padded = of.query_tiles() * Br;
    const auto by_query_tiles = of.by_query_tiles();
    const Count visited = tiles_of(by_query_tiles);
    const Count prepare_blocks = p.heads() * ((padded * d / 8 + 255) / 256);
    // dQ, L and D in fp32, for whole tiles
    c.is("workspace_bytes", p.heads() * padded * (d + 2) * 4);
    c.is("launches", 3);
    c.is("blocks", prepare_blocks + blocks + p.heads() * ((padded * d / 16 + 255) / 256));
    c.is("tiles", visited * of.groups);  // each warpgroup's 64 keys
    c.is("masked_tiles", masked_of(by_query_tiles) * of.groups);
    c.is("exponentials", visited * Br * Bc);
    // K and V of both warpgroups once, and Q, dO, L and D of each tile; dK and dV of both; dQ's sums.
    const Count keys = 2 * Bc * d * 2, queries = 2 * Br * d * 2 + 2 * Br * 4, sums = Br * d * 4;
    const Count bulk_bytes = blocks * 2 * keys + visited * (queries + sums);
    c.is("bulk_loads", blocks * 2 * of.groups + visited * 4);
    c.is("bulk_stores", blocks * 2 * of.groups);
    c.is("bulk_bytes", bulk_bytes);
    // dQ = 0, L and D; what is added to dQ; and then what every stage writes
    c.is("global_store_bytes", p.heads() * padded * (d + 2) * 4 + visited * sums + output_bytes(p));
    // dO, O and L once; K and V once per block; Q, dO, L and D per tile, the last two with the rows past
    // the last query; and the sums, by 16 rows.
    const Count rows_visited = sum(by_query_tiles, [](auto& v) { return v.tiles * v.queries; });
    c.is("global_load_bytes", p.rows() * (2 * d * 2 + 4) + 2 * p.B() * Count(p.shape.Hkv) * p.Nk() * d * 2 +
                                  rows_visited * 2 * d * 2 + visited * Br * 2 * 4 +
                                  p.heads() * ((p.Nq() + 15) / 16) * 16 * d * 4);
    // Five products, of 2048 multiply-adds for each 2 columns
    c.is("wgmma_columns", visited * 5 * Br * Bc * d / 1024);
    c.is("mma", 0);
    c.is("ldmatrix", 0);
    c.is("async_copies", 0);
    c.is("atomics", 0);
    // A warp's dS, and at the end its dK and dV
    const Count in_block = of.threads / 32, stmatrix = in_block * (visited * Br / 16 + blocks * 2 * d / 16);
    c.is("stmatrix", stmatrix);
    c.is("shared_tile_bytes", bulk_bytes + stmatrix * 32 * 16);
    // Each lane reads L and D of two columns in eight; dQ on its way out
    c.is("shared_exchange_bytes", visited * (of.threads * 2 * Br + sums));
    c.is("barriers", blocks);  // once the mbarriers are set up
    // The producer expects K and V, and each tile; all threads that multiply say that they have read it.
    c.is("mbarrier_arrivals", blocks + visited * (1 + of.threads));
    // They wait for K and V, and each tile; the producer for a free slot.
    c.is("mbarrier_waits", blocks * of.threads + visited * (of.threads + 1));
    // From 168 registers to 24 of a warpgroup, and to 240 of two
    c.is("registers_moved", blocks * 128 * (168 - 24 + 2 * (240 - 168)));
    // D of a row, by d / 8 lanes; uniform(), of each warp and of each tile
    c.is("shuffles", prepare_blocks * 8 * (d == 64 ? 3 : 4) + blocks * (in_block + 4) + visited * in_block);
}

}  // namespace ladder::formulas
