/// @file
/// Problems that no author thought of.
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "harness/problem/case.h"

namespace ladder {

/// The next problem, out of all that a problem can be, but for its size: a fraction of a second on a CPU. `k`
/// goes through the head dimensions and both types. The same generator gives the same problems everywhere.
Case random_case(std::mt19937_64& random, const std::vector<int>& head_dims, int k);

/// A window for it: one side or both, of any width up to all its keys.
Window random_window(std::mt19937_64& random, const Case& c);

/// Documents for it, or none, which one sequence has: its batch entries become rows and keys of this one.
void pack_at_random(std::mt19937_64& random, Case& c);

/// Column bounds for it, or none.
std::string random_columns(std::mt19937_64& random);

/// Tile lists for it, instead of a causal mask, or none.
void draw_tiles(std::mt19937_64& random, Case& c);

/// Any dropout, or none.
Dropout random_dropout(std::mt19937_64& random);

/// The smallest case like this one that still fails: nothing of it can be made smaller, plainer or less any
/// more. `fails` is asked once for each try.
Case shrink(Case c, const std::function<bool(const Case&)>& fails);

}  // namespace ladder
