/// @file
/// How long the CPU is going to compute: estimated before it begins, and shown while it does.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "harness/base/progress.h"
#include "harness/commands/arguments.h"
#include "harness/device/device.h"
#include "stages/stage.h"
#ifdef LADDER_HAS_CPU
#    include "simt/simt.h"
#endif

namespace ladder {

/// What a command is about to compute on the CPU.
class CpuTime {
  public:
    /// Runs of a stage. On a GPU they take none of it.
    void add_run(const Device& device, const Stage& stage, const Shape& shape, int runs = 1);
    /// The reference, in double precision.
    void add_reference(const Shape& shape, Pass pass);

    /// On all the cores that the CPU back-end is to use.
    double seconds() const;

  private:
    double core_seconds_ = 0;
};

/// --long
struct LongOption {
    explicit LongOption(Command& command);
    /// Throws BadUsage, saying how long it would take, if that is more than two minutes and --long was not
    /// given; says it on stderr if it was.
    void require_patience(const CpuTime& time) const;

    bool given = false;
};

/// Says of each step how many of its blocks have run: of a large problem there are many.
class BlockProgress {
  public:
    explicit BlockProgress(const ProgressLine& progress);

    void operator()(const std::string& what, int done, int total);

  private:
    using Clock = std::chrono::steady_clock;

    // Workers call it, several at a time.
    void on_block();

    const ProgressLine& progress_;
#ifdef LADDER_HAS_CPU
    const simt::KeptOptions kept_;
#endif
    std::mutex mutex_;
    std::string what_;
    int done_ = 0, total_ = 1;
    std::uint64_t blocks_ = 0;
    Clock::time_point shown_ = Clock::now();
};

}  // namespace ladder
