/// @file
/// What 45 and 46 count of a ring of query tiles.
#pragma once

#include <algorithm>

#include "../44_one_gradient/claims.h"

namespace ladder::formulas {

/// Query tiles that all blocks visit, and those with another one after them
struct RingTiles {
    Count all = 0, with_next = 0, between = 0;  ///< the last: with another one before them as well

    explicit RingTiles(const Counted& p) {
        const int Bc = static_cast<int>(pairs_of_warps(p).Bc());
        for (int first_key = 0; first_key < p.shape.Nk; first_key += Bc) {
            const int first_row = p.causal ? std::max(0, first_key - (p.shape.Nk - p.shape.Nq)) : 0;
            const Count n = p.group() * (p.Tr() - first_row / tile), blocks = p.B() * p.shape.Hkv;
            all += blocks * n;
            with_next += blocks * (n - 1);
            between += blocks * (n > 1 ? n - 2 : 0);
        }
    }
};

/// mma of S^T of a whole tile, or of any other of the five products
inline Count mma_of_product(const Counted& p) {
    return tile * pairs_of_warps(p).Bc() * p.d() / (16 * 8 * 16);
}

}  // namespace ladder::formulas
