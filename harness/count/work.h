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
    std::size_t workspace_bytes = 0;
    std::string why_not;  ///< why it could not be counted; empty if it was

    bool operator==(const Work&) const = default;
};

}  // namespace ladder
