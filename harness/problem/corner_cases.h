/// @file
/// The cases of a stage that take sizes of their own, apart from those that verification_cases() combines.
#pragma once

#include <optional>
#include <vector>

#include "harness/problem/case.h"

namespace ladder {

// What cases of either kind are made of.
constexpr int machines[] = {0, 1, 3, 132};  // 0: what the CPU back-end plays anyway, 8
constexpr std::optional<float> scales[] = {std::nullopt, -0.3f, 0.0f};
constexpr Layout layouts_of[] = {Layout::bnhd, Layout::bhnd, Layout::mixed};

/// What levels of factors do not bring about. Each at the first head dimension that has these tiles, where it
/// is cheapest.
std::vector<Case> corner_cases(const Stage& stage, Cover how);

/// A sequence that 2, 3, 4 and 8 ranks divide: chunks of a row each; ragged ones of grouped heads under a
/// mask; of several tiles; and without a mask more keys than rows. Or a cache of as many parts: with less
/// than a key for each of 16 rows, with a tile and more, and under a mask that crosses several parts. Every
/// kind of input but the last two, and scale. And sizes that indices may outgrow.
std::vector<Case> divided_sequences(const Stage& stage, Cover how);

}  // namespace ladder
