/// @file
/// Ranks without a GPU for each: threads of this process, whose messages are copies in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/device/device.h"
#include "stages/ring.h"

namespace ladder {

/// What a rank sent.
struct Traffic {
    int messages = 0;               ///< of K and V together
    std::size_t bytes = 0;          ///< sent
    std::size_t exposed_bytes = 0;  ///< of these, in messages during which the rank ran no kernel

    bool operator==(const Traffic&) const = default;
};

/// Runs the stage on all ranks of a ring, of which problem r is rank r's part, and waits for them. `whole`
/// has the Nq and Nk of all. Only one rank runs at a time, and `seed` draws which, whenever one waits. A
/// message lands as late as it may: when it is waited for, and what is received is NaN until then.
/// If a rank fails, or ends while another waits for its message, all end. Throws as Device::run(), naming the
/// rank.
std::vector<Traffic> run_ranks(Device& device, const Stage& stage, const std::vector<Problem>& problems,
                               const Shape& whole, std::uint64_t seed = 0);

}  // namespace ladder
