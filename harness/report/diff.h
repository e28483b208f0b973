/// @file
/// The difference between two stages' sources: what a reader studies, and what the line budgets bound.
#pragma once

#include <string>

#include "stages/stage.h"

namespace ladder {

/// kernel_text() of its kernel.cu. Throws CannotRun if the source folder that this program was built from is
/// gone.
std::string kernel_text(const Stage& stage);

/// `diff` of two texts under these names, with these options. Throws CannotRun if it cannot be had.
std::string diff_texts(const std::string& from, const std::string& from_name, const std::string& to,
                       const std::string& to_name, const char* options = "-u");

/// The same of two kernels. Throws CannotRun if it cannot be had.
std::string diff_kernels(const Stage& from, const Stage& to);

/// Lines that a unified diff adds or changes. A changed line counts once.
int count_changed_lines(const std::string& unified_diff);
int count_changed_lines(const Stage& parent, const Stage& stage);  // that differ in more than white space

/// The diff with added, removed and position lines in colour.
std::string colour_diff(const std::string& unified_diff);

}  // namespace ladder
