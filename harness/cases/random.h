/// @file
/// Problems that no author thought of.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "harness/problem/case.h"

namespace ladder {

/// The next problem, out of all that a problem can be, but for its size: a fraction of a second on a CPU. `k`
/// goes through the head dimensions and both types. The same generator gives the same problems everywhere.
Case random_case(std::mt19937_64& random, const std::vector<int>& head_dims, int k);

/// Draws for it a value, or none, of each feature that the stage takes. Stages that take a feature draw the
/// same of it from the same seed, so that they have cases in common.
void draw_features(std::uint64_t seed, const Stage& stage, Case& c);

/// The smallest case like this one that still fails: nothing of it can be made smaller, plainer or less any
/// more. `fails` is asked once for each try.
Case shrink(Case c, const std::function<bool(const Case&)>& fails);

}  // namespace ladder
