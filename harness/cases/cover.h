/// @file
/// A few rows that hold every combination of two choices.
#pragma once

#include <functional>
#include <vector>

namespace ladder {

/// For each factor the number of the level that it takes, from 0; -1 while that is open.
using Levels = std::vector<int>;

/// Rows in which each level of each factor occurs (`together` 1), or each two levels of two factors together
/// (2), where that is feasible: `cost` of the row is at most 1. `first` are begun for their own sake, and the
/// rest of them is filled in, by what costs less where either will do. `levels` says how many each factor
/// has. A row that is not feasible with level 0 for all that is open is not made. Rows of pairs then exchange
/// what was filled in, where that costs less and no pair is lost. The same arguments give the same rows.
std::vector<Levels> cover(const Levels& levels, int together, const std::vector<Levels>& first,
                          const std::function<double(const Levels&)>& cost);

}  // namespace ladder
