/// @file
/// What 41 and its children count alike: the kernel that goes by rows.
#pragma once

#include "harness/count/claims.h"

namespace ladder::formulas {

inline Count up_to(Count n, Count of) {
    return (n + of - 1) / of;
}

/// Rows of the query tiles of all heads, the last ones whole
inline Count padded_rows(const Counted& p, Count Br) {
    return p.heads() * up_to(p.Nq(), Br) * Br;
}

/// Blocks of the kernel that computes D: 256 threads, d / 8 of them for each row
inline Count prepare_blocks(const Counted& p, Count Br) {
    return p.heads() * up_to(up_to(p.Nq(), Br) * Br * p.d() / 8, 256);
}

/// D is summed up by d / 8 lanes: a shuffle for each of their halvings, by eight warps of a block.
inline Count prepare_shuffles(const Counted& p, Count Br) {
    Count steps = 0;
    while ((8 << steps) < p.shape.d) ++steps;
    return prepare_blocks(p, Br) * 8 * steps;
}

}  // namespace ladder::formulas
