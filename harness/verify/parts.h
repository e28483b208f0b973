/// @file
/// A case that several ranks divide: what each of them holds, and how their outputs make the whole.
#pragma once

#include <list>
#include <vector>

#include "harness/cases/inputs.h"
#include "harness/device/device_problem.h"
#include "harness/verify/outputs.h"

namespace ladder {

/// The part of a rank as a case of its own. A causal mask is on the case as a whole.
Case part_case(const Stage& stage, const Case& c, int rank);

/// What the ranks hold of the inputs, each on its device; all of them for one rank.
std::list<DeviceInputs> inputs_of_ranks(Device& device, const Stage& stage, const Case& c,
                                        const Inputs& inputs);

/// Runs the problem of each rank.
void run_parts(Device& device, const Stage& stage, const std::vector<Problem>& problems, const Shape& whole);

/// Puts what a rank wrote to where it belongs. Of ranks that each write all, those of rank 0 count.
void add_part(const Stage& stage, const Case& c, int rank, Outputs part, Outputs& all);

}  // namespace ladder
