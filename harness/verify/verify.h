/// @file
/// One stage verified on one case.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "harness/problem/cases.h"
#include "harness/verify/judge.h"
#include "harness/verify/run.h"

namespace ladder {

/// Runs a stage once on inputs of the host. Throws as run_guarded() does, CheckFailed also if an element was
/// not written, and CannotRun before any launch if the device has not enough memory.
Outputs run_stage(Device& device, const Stage& stage, const Case& c, const Inputs& inputs);

/// A case with its inputs and what is expected of them, each made when first asked for: for all the stages
/// that are verified on it.
class Reference {
  public:
    explicit Reference(Case c) : problem(std::move(c)) {}

    const Inputs& inputs();
    const Expected& expected();
    /// How long making them took.
    double seconds() const { return seconds_; }

    const Case problem;

  private:
    std::optional<Inputs> inputs_;
    std::optional<Expected> expected_;
    double seconds_ = 0;
};

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
