/// @file
/// What a case's outputs should be, and the verdict on those that a stage wrote.
#pragma once

#include <string>
#include <vector>

#include "harness/problem/case.h"
#include "harness/problem/inputs.h"
#include "harness/verify/run.h"

namespace ladder {

/// What the outputs of a case are compared with. Takes much longer than a comparison, on all cores, so stages
/// that have the case should share it.
struct Expected {
    /// Attention in double precision. `sampled_rows` > 0 takes only that many query rows per head and batch
    /// entry at most (first, last, tile edges, then seeded ones), for sizes where all would take minutes.
    Expected(const Case& c, const Inputs& inputs, int sampled_rows = 0);

    std::vector<int> rows;       ///< the query rows that are compared, ascending
    std::vector<double> O;       ///< (B, H, rows, d)
    std::vector<double> L;       ///< (B, H, rows)
    std::vector<double> L_size;  ///< what an error of L is relative to: (B, H, rows)
    double standard_error = 0;   ///< largest error of O in standard attention in the storage type
};

/// The outcome of a comparison with what was expected.
struct Verdict {
    bool passed = false;
    double max_error = 0;           ///< of O, against double precision
    double standard_max_error = 0;  ///< of standard attention in the storage precision
    double relative_l2 = 0;         ///< of O
    double max_L_error = 0;         ///< of L, relative
    std::string report;  ///< why it failed: where, the tile, expected and got, the pattern; empty if passed
};

/// Reports elements that were not written; empty if there are none.
std::string report_unwritten(const Case& c, const Outputs& outputs);

/// Reports what is wrong whatever is expected: values that were not written or are not finite, and rows
/// without keys that are not O = 0 and L = -inf. Empty if nothing is.
std::string report_impossible(const Case& c, const Outputs& outputs);

/// Compares by the design's pass rule. Elements in rows that are not compared must be possible all the same.
Verdict judge(const Case& c, const Expected& expected, const Outputs& outputs);

/// The same where nobody shares what is expected.
Verdict judge(const Case& c, const Inputs& inputs, const Outputs& outputs, int sampled_rows = 0);

/// Reports where two runs on the same inputs differ, the other one being "a second run", say; empty if they
/// agree bit for bit.
std::string report_difference(const Case& c, const Outputs& first, const Outputs& other,
                              const std::string& other_is);

}  // namespace ladder
