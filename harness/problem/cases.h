/// @file
/// Which cases a stage is verified on.
#pragma once

#include <vector>

#include "harness/problem/case.h"

namespace ladder {

/// How much of what a problem can be meets how much else of it.
enum class Cover : std::uint8_t {
    each,   ///< each idea once, on small problems
    pairs,  ///< each two ideas together
    all     ///< the same at each head dimension
};

/// Cases in which the stage's code is at its boundaries. The ideas: query rows and keys below, at and above
/// one tile (Stage::tilings), several tiles, as many keys as wrap its ring twice and as many parts as no warp
/// merges at once, more rows than keys; with and without a mask; batches of 1 to 3; groups of 1 to 8;
/// machines of 1, 3, 8 and 132 multiprocessors; every kind of input; positive, negative and no scale;
/// layouts; types; head dimensions. All of them of the stage's pass. Stages with the same tilings have their
/// cases in common, and so what is expected of them.
std::vector<Case> verification_cases(const Stage& stage, Cover how);

}  // namespace ladder
