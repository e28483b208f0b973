/// @file
/// Which query tiles stand in line.
#pragma once

#include "harness/count/claims.h"

namespace ladder::formulas {

/// More query tiles than multiprocessors at d = 256, in groups and in one; and more keys than are few.
inline constexpr Shape crowded_shapes[] = {
    {2, 4, 4, 256, 320, 256}, {3, 4, 2, 300, 300, 256}, {1, 5, 1, 130, 1030, 256}};

/// Whether there are few keys, at the one head dimension where it matters.
inline bool few_keys(const Counted& p) {
    return p.d() == 256 && p.Nk() <= 1024;
}

/// Query tiles that the blocks take in line: none, or all.
inline Count tiles_in_line(const Counted& p) {
    const bool all_see = !p.causal || p.Nq() <= p.Nk();
    return few_keys(p) && all_see ? visits(p, 128, 64).size() : 0;
}

}  // namespace ladder::formulas
