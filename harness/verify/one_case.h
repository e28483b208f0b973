/// @file
/// One stage verified on one case.
#pragma once

#include <cstdint>

#include "harness/device/device.h"
#include "harness/verify/verdict.h"

namespace ladder {

/// How often a stage runs on a case. All of its runs must agree bit for bit; those of a stage that says that
/// they do not are judged one by one, and on a GPU there are ten of them.
enum class Runs : std::uint8_t {
    /// Twice on a GPU. Once on a CPU, where a second run takes the very same turns.
    usual,
    /// Once with the threads of a block forward, once reversed, twice shuffled, once with some
    /// delayed. For the CPU back-ends.
    in_all_orders
};

/// Runs a stage on the case, judges its outputs, and compares those of its other runs with the first, or
/// judges them, too: then the verdict has the errors of the worst. Failures of the kernel become a failed
/// verdict; CannotRun passes through.
Verdict verify(Device& device, const Stage& stage, Reference& reference, Runs runs = Runs::usual);
/// The same of the stage's pass, for one stage alone.
Verdict verify(Device& device, const Stage& stage, const Case& c);

}  // namespace ladder
