/// @file
/// What a case's outputs should be, and the verdict on those that a stage wrote.
#pragma once

#include <string>
#include <vector>

#include "harness/problem/case.h"
#include "harness/problem/inputs.h"
#include "harness/verify/run.h"

namespace ladder {

/// What one of output_tensors() should be.
struct ExpectedTensor {
    std::vector<int> rows;       ///< the query rows, or keys, that are compared, ascending
    std::vector<double> values;  ///< (B, heads, rows, d)
    std::vector<double> size;    ///< what the error of a row is relative to, as an L2 norm: (B, heads, rows)
    double standard_error = 0;   ///< largest error of standard attention in the storage type
    /// Of O: what each element of a row may be off by, beyond the rule, if parts of the keys were merged by
    /// an L that fp32 has rounded: (B, heads, rows). Empty for gradients.
    std::vector<double> lost_in_rounding;
};

/// What the outputs of a case are compared with. Takes much longer than a comparison, on all cores, so stages
/// that have the case should share it.
struct Expected {
    /// In double precision: attention, or its gradients from the O and L of the inputs. `sampled_rows` > 0
    /// takes only that many query rows per head and batch entry at most, and of dK and dV so many keys
    /// (first, last, tile edges, then seeded ones), for sizes where all would take minutes.
    Expected(const Case& c, const Inputs& inputs, int sampled_rows = 0);

    std::vector<ExpectedTensor> tensors;  ///< in the order of output_tensors()
    std::vector<double> L;                ///< (B, H, rows) of O; empty in the backward pass
    std::vector<double> L_size;           ///< what an error of L is relative to: (B, H, rows)
    std::vector<int> peak;                ///< the key with a row's largest score, or -1: (B, H, rows)
};

/// The outcome of a comparison with what was expected. Errors are those of O, or of the one of dQ, dK and dV
/// that is nearest to its bounds.
struct Verdict {
    bool passed = false;
    double max_error = 0;           ///< against double precision
    double standard_max_error = 0;  ///< of standard attention in the storage precision
    double relative_l2 = 0;
    double max_L_error = 0;  ///< of L, relative; 0 in the backward pass
    std::string report;  ///< why it failed: where, the tile, expected and got, the pattern; empty if passed
    std::string tensor = "O";  ///< which the errors are of
};

/// Reports elements that were not written; empty if there are none.
std::string report_unwritten(const Case& c, const Outputs& outputs);

/// Reports what is wrong whatever is expected: values that were not written or are not finite, and rows
/// without keys that are not O = 0 and L = -inf, or dQ = 0. Empty if nothing is.
std::string report_impossible(const Case& c, const Outputs& outputs);

/// Compares by the design's pass rule, tensor by tensor. Elements in rows that are not compared must be
/// possible all the same. `rounds_large_scores`: as Stage has it; then only what errors of O exceed
/// ExpectedTensor::lost_in_rounding by is held to the rule.
Verdict judge(const Case& c, const Expected& expected, const Outputs& outputs,
              bool rounds_large_scores = false);

/// The same where nobody shares what is expected.
Verdict judge(const Case& c, const Inputs& inputs, const Outputs& outputs, int sampled_rows = 0);

/// Reports where two runs on the same inputs differ, the other one being "a second run", say; empty if they
/// agree bit for bit.
std::string report_difference(const Case& c, const Outputs& first, const Outputs& other,
                              const std::string& other_is);

}  // namespace ladder
