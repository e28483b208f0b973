/// @file
/// The timing engine: which problems are timed, how often, and what becomes of the times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/device.h"
#include "harness/results.h"
#include "harness/verify.h"

namespace ladder {

/// A problem to time, and the regime that it belongs to.
struct TimedCase {
    std::string regime;
    Case problem;
};

/// A family of problems in which one kind of change shows.
struct Regime {
    /// A shape and its mask.
    struct Problem {
        Shape shape;
        bool causal;
    };
    const char* name;         ///< what Stage::shows_in and `lab time --regime` call it
    const char* description;  ///< one line
    std::vector<Problem> problems;
};
const std::vector<Regime>& regimes();

/// The problems of one regime, or of all if the name is empty. Throws BadUsage for an unknown name.
std::vector<TimedCase> timed_cases(DType dtype, const std::string& regime = "");

/// What to time and for how long.
struct TimingOptions {
    std::vector<TimedCase> cases;
    double target_noise = 0.005;  ///< stop repeating once Timing::noise is this small ...
    int min_repeats = 10;         ///< ... but not before this many repeats,
    int max_repeats = 200;        ///< nor go on after so many
    double max_seconds = 1.0;  ///< or after this much measured time per stage and case (3 repeats at least)
    int sampled_rows = 8;      ///< query rows per head that are compared with the reference
};

/// Percentile of ascending values by linear interpolation, p in [0, 1].
double percentile(const std::vector<double>& sorted, double p);

/// Median, spread and noise of some times, in any order. Throws std::invalid_argument if there are none.
Timing summarize(std::vector<double> milliseconds);

/// Called before each step with one line about it, the steps done and the steps in all.
using OnStep = std::function<void(const std::string& what, int done, int total)>;

/// What a device must be able to do, beside running stages, in order to be timed. The GPU is the only one
/// that can.
class Stopwatch {
  public:
    virtual ~Stopwatch() = default;

    virtual Hardware hardware() const = 0;
    /// Measures them; takes about a second.
    virtual Ceilings ceilings() = 0;
    /// Fills device memory with `count` N(0, 1) values of the type, the same for the same seed.
    virtual void fill_normal(void* memory, std::size_t count, DType dtype, std::uint64_t seed) = 0;
    /// Milliseconds on the device of one run that starts with none of its inputs in the L2 cache.
    virtual double time(const Stage& stage, const Problem& problem) = 0;
};

/// Times the stages on each case, round-robin, so that clocks that drift do so for all of them, and verifies
/// what the timed calls wrote. A stage that cannot run becomes a row that says why. Throws CannotRun if the
/// device is no Stopwatch.
Results time_stages(Device& device, const std::vector<Stage>& stages, const TimingOptions& options,
                    const OnStep& on_step = {});

}  // namespace ladder
