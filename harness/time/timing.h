/// @file
/// The timing engine: which problems are timed, how often, and what becomes of the times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/progress.h"
#include "harness/base/statistics.h"
#include "harness/cases/regimes.h"
#include "harness/device/device.h"
#include "harness/device/stopwatch.h"
#include "harness/time/peers.h"
#include "harness/time/results.h"

namespace ladder {

/// A problem to time, and the regime that it belongs to.
struct TimedCase {
    std::string regime;
    Case problem;
};

/// What rows about it are labelled with.
ProblemLabel label_of(const TimedCase& timed);
StageLabel label_of(const Stage& stage, const TimedCase& timed);

/// What to time and for how long.
struct TimingOptions {
    std::vector<TimedCase> cases;
    /// Which stages of its pass are timed on a problem; all of them if it is empty.
    std::function<bool(const Stage&, const ProblemLabel&)> takes_part = {};
    std::vector<std::string> peers = Peers::usual();  ///< which of them, if there are any
    double target_noise = 0.005;                      ///< stop repeating once Timing::noise is this small ...
    int min_repeats = 10;                             ///< ... but not before this many repeats,
    int max_repeats = 200;                            ///< nor go on after so many
    double max_seconds = 1.0;  ///< or after this much measured time per stage and case (3 repeats at least)
    int sampled_rows = 8;      ///< query rows per head, or keys, that are compared with the reference
    /// Elements of K that are compared with the reference at most: of larger problems only some heads are.
    std::size_t max_compared = std::numeric_limits<std::size_t>::max();
    /// Gets what has been measured after each case, so that a run that is stopped leaves it.
    std::function<void(const Results&)> keep = {};

    /// Takes so much measured time per stage and case at most, and compares less with the reference: for many
    /// problems, and for the first table, which should not take long.
    void be_brief(double seconds);
};

/// The problems of one regime, or of the default run if the name is empty. A sweep is timed and verified
/// more briefly, and without the slow peer. Throws BadUsage for an unknown name.
TimingOptions timing_options(DType dtype, const std::string& regime = "");

/// Median, spread and noise of some times, in any order. Throws std::invalid_argument if there are none.
Timing summarize(std::vector<double> milliseconds);

/// Times the stages, and the peers if there are any, on each case, round-robin, so that clocks that drift do
/// so for all of them, and verifies what the stages' timed calls wrote. Who cannot run becomes a row that
/// says why. Throws CannotRun if the device is no Stopwatch, or if the peers fail or are on another device.
Results time_stages(Device& device, const std::vector<Stage>& stages, const TimingOptions& options,
                    const OnStep& on_step = {}, Peers* peers = nullptr);

}  // namespace ladder
