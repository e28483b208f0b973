/// @file
/// What a stage did on one problem, in numbers.
#pragma once

#include <cstddef>
#include <string>

#include "simt/counters.h"

namespace ladder {

/// What a stage did on one problem.
struct Work {
    simt::Counters counters;
    std::size_t workspace_bytes = 0;  ///< of a rank, the most
    // Of several ranks, by Traffic:
    std::uint64_t messages = 0;       ///< of a rank, the most
    std::uint64_t sent_bytes = 0;     ///< of a rank, the most
    std::uint64_t exposed_bytes = 0;  ///< of a rank, the most
    /// wgmma_columns of the rank that has the most of them in a step, over all steps: what all ranks take
    /// that wait for each other
    std::uint64_t busiest_products = 0;
    std::string why_not;  ///< why it could not be counted; empty if it was

    bool operator==(const Work&) const = default;
};

}  // namespace ladder
