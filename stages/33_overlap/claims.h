/// @file
/// The query tiles of blocks that have a producer and two or three warpgroups which multiply.
#pragma once

#include <algorithm>

#include "harness/count/claims.h"

namespace ladder::formulas {

/// What depends on d, and what each query tile of a head sees.
struct HopperTiles {
    Count groups, threads;         ///< warpgroups that multiply, and their threads
    bool turns;                    ///< do they take turns?
    std::vector<Count> key_tiles;  ///< of each query tile of a head: one at least

    explicit HopperTiles(const Counted& p)
        : groups(p.d() == 64 ? 3 : 2), threads(128 * groups), turns(p.d() <= 128) {
        const int Br = static_cast<int>(64 * groups), Bc = p.d() <= 128 ? 128 : 64;
        for (int first = 0; first < p.shape.Nq; first += Br) {
            const int seen = seen_by(p, 1, first + Br - 1);
            key_tiles.push_back(std::max(1, (seen + Bc - 1) / Bc));
        }
    }

    /// The sum over all query tiles of a head of f(key tiles).
    template <class F>
    Count sum(F&& f) const {
        Count total = 0;
        for (const Count Tc : key_tiles) total += f(Tc);
        return total;
    }
};

}  // namespace ladder::formulas
