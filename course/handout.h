/// @file
/// What an instructor gives to students.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "course/exercise.h"

namespace ladder {

/// What a hand-out holds.
struct Handout {
    std::vector<std::string> exercises;  ///< folders of the stages to solve
    std::vector<std::string> hidden;     ///< of these and of all that were made from them
    std::vector<std::string> kept;       ///< of the stages that stay with kernel and lesson
    int files = 0;
};

/// Writes into `folder` all that students need to build, to solve these stages and to check them: the
/// ladder's sources without these stages' kernels and lessons, and without every stage that was made from one
/// of them, whose kernel holds the solution as well. Throws BadUsage if the folder is not empty, or if a
/// stage starts from one that would be hidden.
Handout write_handout(const std::vector<Exercise>& exercises, const std::filesystem::path& folder);

}  // namespace ladder
