/// @file
/// The problems that a stage is verified on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "harness/problem/case.h"
#include "stages/stage.h"

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
/// machines of 1, 3, 8 and 132 multiprocessors, and of more; every kind of input; positive, negative and no
/// scale; layouts; types; head dimensions; and, small in all else, sizes that indices and schedules may
/// outgrow. All of them of the stage's pass. Stages with the same tilings have their
/// cases in common, and so what is expected of them.
std::vector<Case> verification_cases(const Stage& stage, Cover how);

// What cases of either kind are made of.
constexpr int machines[] = {0, 1, 3, 132};  // 0: what the CPU back-end plays anyway, 8
constexpr std::optional<float> scales[] = {std::nullopt, -0.3f, 0.0f};

/// What levels of factors do not bring about. Each at the first head dimension that has these tiles, where it
/// is cheapest.
std::vector<Case> corner_cases(const Stage& stage, Cover how);

/// A sequence that 2, 3, 4 and 8 ranks divide: chunks of a row each; ragged ones of grouped heads under a
/// mask; of several tiles; and without a mask more keys than rows. Or a cache of as many parts: with less
/// than a key for each of 16 rows, with a tile and more, and under a mask that crosses several parts. Every
/// kind of input but the last two, and scale. And sizes that indices may outgrow.
std::vector<Case> divided_sequences(const Stage& stage, Cover how);

}  // namespace ladder
