/// @file
/// A merge that takes 16 parts at a time, a warp for each row.
#pragma once

#include "harness/count/claims.h"

namespace ladder::formulas {

/// Each lane reads m and l of each part, and 32 lanes read its O.
inline Count load_bytes_of_merge(const Counted& p, Count rows, Count parts) {
    return rows * parts * (32 * 8 + p.d() * 4);
}

/// A lane weighs 16 parts, and what it has so far.
inline Count exponentials_of_merge(Count rows, Count parts) {
    return rows * ((parts + 15) / 16) * 32 * 17;
}

}  // namespace ladder::formulas
