/// @file
/// The verdict on the outputs that a stage wrote.
#pragma once

#include <string>

#include "harness/cases/inputs.h"
#include "harness/problem/case.h"
#include "harness/verify/expected.h"
#include "harness/verify/outputs.h"

namespace ladder {

/// The outcome of a comparison with what was expected. Errors are those of O, or of the one of dQ, dK and dV
/// that is nearest to its bounds.
struct Verdict {
    bool passed = false;
    double max_error = 0;           ///< against double precision
    double standard_max_error = 0;  ///< of standard attention in the storage precision
    double relative_l2 = 0;
    double max_L_error = 0;  ///< of L, relative; 0 in the backward pass
    std::string report;  ///< why it failed: where, the tile, expected and got, the pattern; empty if passed
    std::string tensor = "O";   ///< which the errors are of
    double unquantized_l2 = 0;  ///< with inputs in 8 bits: relative L2 against attention of 16-bit inputs
};

/// Compares by the design's pass rule, tensor by tensor. Elements in rows that are not compared must be
/// possible all the same. `rounds_large_scores`: as Stage has it; then only what errors of O exceed
/// ExpectedTensor::lost_in_rounding by is held to the rule.
Verdict judge(const Case& c, const Expected& expected, const Outputs& outputs,
              bool rounds_large_scores = false);

/// The same of a stage as it declares itself, where what is expected is not shared.
Verdict judge(const Stage& stage, const Case& c, const Inputs& inputs, const Outputs& outputs);

/// The same of a function that is no stage.
Verdict judge(const Case& c, const Inputs& inputs, const Outputs& outputs, int sampled_rows = 0);

}  // namespace ladder
