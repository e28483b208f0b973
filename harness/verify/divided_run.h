/// @file
/// One case divided over ranks: each holds its chunks of the sequence, and their outputs are put together.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/device/ranks.h"
#include "harness/problem/inputs.h"
#include "harness/verify/outputs.h"

namespace ladder {

/// What a stage wrote on all ranks together, and what each sent.
struct DividedRun {
    Outputs outputs;
    std::vector<Traffic> traffic;
};

/// Runs a stage that is for several GPUs on the case. Each rank has its part in (B, heads, N, d), whatever
/// the layout of the case; `seed` draws the ranks' turns. Throws BadUsage for a stage or a case that cannot
/// be divided so, and as run_ranks().
DividedRun run_divided(Device& device, const Stage& stage, const Case& c, const Inputs& inputs, int ranks,
                       std::uint64_t seed = 0);

}  // namespace ladder
