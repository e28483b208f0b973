/// @file
/// Which cases a stage is verified on.
#pragma once

#include <vector>

#include "harness/problem/case.h"

namespace ladder {

/// The cases that `lab verify` runs by default: ragged sizes, Nq != Nk both ways, GQA, both layouts, both
/// types, every input kind, rows without keys, machines of 1, 3, 8 and 132 multiprocessors. `quick` keeps one
/// case for each of these ideas.
std::vector<Case> verification_cases(const Stage& stage, bool quick);

}  // namespace ladder
