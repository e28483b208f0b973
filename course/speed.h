/// @file
/// A student's kernel on the GPU, if there is one: timed with its parent and the ladder's solution.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "course/exercise.h"
#include "harness/base/progress.h"
#include "harness/time/results.h"

namespace ladder {

/// What came of it.
struct Speed {
    std::optional<Results> results;  ///< of the parent, of the solution where it is here, and of "yours"
    std::string why_not;             ///< why there are none, in one line

    /// Whether the kernel gave wrong results on the GPU.
    bool wrong() const;
    /// How many times the parent's speed: the geometric mean over the problems. Empty unless both are right
    /// on all of them.
    std::optional<double> over_parent() const;
};

/// Compiles the kernel with nvcc in `products` (a folder) and has `lab time` time it in a process of its own,
/// on the problems of exercise.shows_in. Whatever keeps it from being timed, in the machine or in the kernel,
/// is in why_not. An `untrusted` kernel is screened and sandboxed, as CheckOptions has it.
Speed time_student(const Exercise& exercise, const std::filesystem::path& kernel,
                   const std::filesystem::path& products, bool untrusted, const OnStep& on_step);

}  // namespace ladder
