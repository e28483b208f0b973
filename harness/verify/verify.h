/// @file
/// One run of a stage on a device, and the verdict on what it wrote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/device/device.h"
#include "harness/problem/cases.h"
#include "harness/problem/inputs.h"
#include "stages/stage.h"

namespace ladder {

/// What a stage wrote: O as stored, in the case's layout, and L (B, H, Nq).
struct Outputs {
    std::vector<std::uint16_t> O;
    std::vector<float> L;
};

/// Runs a stage once. O and L start as NaN between canaries; throws CheckFailed if a canary was touched, an
/// element not written or a counter not left at 0, and what Device::run throws. Throws CannotRun before any
/// launch, saying how many bytes it would need, if the device has not enough memory.
Outputs run_stage(Device& device, const Stage& stage, const Case& c, const Inputs& inputs);

/// The same with inputs that are on the device already.
Outputs run_stage(Device& device, const Stage& stage, const Case& c, const Buffer& Q, const Buffer& K,
                  const Buffer& V);

/// The outcome of a comparison with the reference.
struct Verdict {
    bool passed = false;
    double max_error = 0;           ///< of O, against double precision
    double standard_max_error = 0;  ///< of standard attention in the storage precision
    double relative_l2 = 0;         ///< of O
    double max_L_error = 0;         ///< of L, relative
    std::string report;  ///< why it failed: where, the tile, expected and got, the pattern; empty if passed
};

/// Reports what is wrong whatever the reference says: values that were not written or are not finite, and
/// rows without keys that are not O = 0 and L = -inf. Empty if nothing is.
std::string report_impossible(const Case& c, const Outputs& outputs);

/// Compares with the Eigen reference by the design's pass rule. `sampled_rows` > 0 compares only that many
/// query rows per head and batch entry at most (first, last, tile edges, then seeded ones), for sizes where
/// all would take minutes; report_impossible() looks everywhere all the same.
Verdict judge(const Case& c, const Inputs& inputs, const Outputs& outputs, int sampled_rows = 0);

/// run_stage, judge, and once more run_stage for bitwise repeatability.
/// Failures of the kernel become a failed verdict; CannotRun passes through.
Verdict verify(Device& device, const Stage& stage, const Case& c);

}  // namespace ladder
