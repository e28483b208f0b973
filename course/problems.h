/// @file
/// The problems on which an exercise's kernel is checked: what a student is told and what a grader counts
/// come from the same lists.
#pragma once

#include <cstdint>
#include <vector>

#include "course/exercise.h"
#include "harness/problem/case.h"

namespace ladder {

/// The exercise's own problems (Exercise::problems) with the numbers of this seed. A seed that a problem
/// names is part of its idea, and stays.
std::vector<Case> own_problems(const Exercise& exercise, std::uint64_t seed);

/// Problems that none can foresee, and strong ones at every seed: own_problems(); at each head dimension
/// several key tiles along which the maximum rises to the end, with and without a mask, and rows that see no
/// key; and free draws. All but the first have any of the features that the stage takes.
std::vector<Case> seeded_problems(const Exercise& exercise, std::uint64_t seed);

/// The suite's cases for the stage.
std::vector<Case> edge_problems(const Exercise& exercise, bool thorough);

/// The problems of the stage's claims, of which the work is counted, in both types and several layouts: no
/// claim is on these.
std::vector<Case> counted_problems(const Exercise& exercise);

/// A run under the race checker takes ten times as long: the suite's small cases, which hold all that decides
/// who runs when, and own_problems().
std::vector<Case> race_problems(const Exercise& exercise, std::uint64_t seed);

}  // namespace ladder
