/// @file
/// The known-wrong kernels that the suite must reject (tests/mutants), as puzzles.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/base/progress.h"
#include "stages/stage.h"

namespace ladder {

/// One bug in one stage's kernel.
struct Puzzle {
    int number = 0;  ///< from 1, in the order of the patches' names, which is that of the stages
    const Stage* stage = nullptr;
    std::string symptom, bug;  ///< one line each
    std::string patch;         ///< unified diff from the stage's kernel to the wrong one
};

/// All puzzles whose stage is here. Throws CannotRun if the folder of patches is gone.
std::vector<Puzzle> zoo();

/// Throws BadUsage if there is none with this number.
Puzzle find_puzzle(int number);

/// Writes the wrong kernel into a new folder. Throws BadUsage if the folder is there and not empty.
void start_puzzle(const Puzzle& puzzle, const std::filesystem::path& folder);

/// Builds the folder's kernel.cu and verifies it under the race checker, case by case, in every order of
/// threads. Returns the first failing case with its report; empty if all is well.
std::string first_failure(const Puzzle& puzzle, const std::filesystem::path& folder, const OnStep& on_step);

}  // namespace ladder
