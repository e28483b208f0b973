/// @file
/// The global memory that a stage needs besides its inputs and outputs.
#pragma once

#include <cstddef>

#include "harness/device/device.h"
#include "stages/stage.h"

namespace ladder {

/// A stage's Problem::workspace on a device.
class Workspace {
  public:
    /// The counters are 0, the rest is undefined. Throws CannotRun.
    Workspace(Device& device, const Stage& stage, const Shape& shape, int ranks = 1);

    /// What it takes. The shape is that of a rank's part, if there are several.
    static std::size_t bytes(const Device& device, const Stage& stage, const Shape& shape, int ranks = 1);
    /// How many of these, at the end, are counters.
    static std::size_t counter_bytes(const Device& device, const Stage& stage, const Shape& shape);

    void* data() const { return buffer_.data(); }
    /// Fills all but the counters with NaNs, so that a kernel that reads what it never wrote shows it.
    void poison();
    /// Throws CheckFailed if a run did not leave its counters at 0.
    void check_counters() const;

  private:
    void fill(std::size_t first, std::size_t end, unsigned char byte);

    Device& device_;
    Buffer buffer_;
    std::size_t counters_;  ///< where they start
};

}  // namespace ladder
