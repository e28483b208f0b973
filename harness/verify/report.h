/// @file
/// What is wrong with outputs whatever is expected of them, in words. Empty if nothing is.
#pragma once

#include <string>
#include <vector>

#include "harness/problem/case.h"
#include "harness/verify/outputs.h"

namespace ladder {

/// Reports elements that were not written.
std::string report_unwritten(const Case& c, const Outputs& outputs);

/// Reports values that were not written or are not finite, and rows without keys that are not O = 0 and
/// L = -inf, or dQ = 0.
std::string report_impossible(const Case& c, const Outputs& outputs);

/// Reports where two runs on the same inputs differ, the other one being "a second run", say.
std::string report_difference(const Case& c, const Outputs& first, const Outputs& other,
                              const std::string& other_is);

/// The reports that are not empty, one below the other.
std::string joined(const std::vector<std::string>& reports);

}  // namespace ladder
