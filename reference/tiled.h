/// @file
/// FlashAttention-2's forward pass, Algorithm 1, as matrices: what stages 02 to 05 compute, one tile at a
/// time.
#pragma once

#include <functional>

#include "reference/attention.h"

namespace reference {

/// The state of a query tile right after it took in key tile j (the end of the inner loop, line 10).
struct Step {
    int i;                  ///< query tile, 0 .. Tr - 1
    int j;                  ///< key tile, 0 .. Tc - 1
    const Vector& m;        ///< (Br), the running maximum; -inf for a row that saw no key yet
    const Vector& l;        ///< (Br), the running sum of exp(s - m)
    const Vector& rescale;  ///< (Br), exp(m before - m), which the old l and O were multiplied by; 0 at first
    const Matrix& O;        ///< (Br, d), unnormalized
};
using Observer = std::function<void(const Step&)>;

/// Attention by tiles of Br query rows and Bc keys; the last ones may be smaller. Q is (Nq, d), K and V
/// are (Nk, d). `observe`, if given, sees every step; in its last tile the vectors are as short as the tile.
/// Source: T. Dao, FlashAttention-2, arXiv 2307.08691, Algorithm 1. (Line 10 there has the inverse of
/// diag(rescale); that is a misprint.)
Result tiled_attention(const Matrix& Q, const Matrix& K, const Matrix& V, double scale, const Mask& mask,
                       int Br, int Bc, const Observer& observe = {});

}  // namespace reference
