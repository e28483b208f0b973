/// @file
/// The stages' mutants as puzzles.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/base/progress.h"
#include "harness/course/mutants.h"
#include "stages/stage.h"

namespace ladder {

/// A mutant to be found and fixed.
struct Puzzle {
    int number = 0;  ///< from 1, in the order of the stages and then of the mutants' names
    const Stage* stage = nullptr;
    Mutant mutant;
};

/// All puzzles. Throws CannotRun if the source folder is gone, BadUsage for a file that is no mutant.
std::vector<Puzzle> zoo();

/// Throws BadUsage if there is none with this number.
Puzzle find_puzzle(int number);

/// From the stage's kernel to the wrong one, as `diff -u`. Throws CheckFailed if the bug does not fit the
/// kernel any more.
std::string bug_as_diff(const Puzzle& puzzle);

/// Writes the wrong kernel into a new folder. Throws BadUsage if the folder is there and not empty,
/// CheckFailed as above.
void start_puzzle(const Puzzle& puzzle, const std::filesystem::path& folder);

/// Builds the folder's kernel.cu and verifies it under the race checker: first on the puzzle's case, then on
/// all of the suite's, in every order of threads. Returns the first failing case with its report; empty if
/// all is well.
std::string first_failure(const Puzzle& puzzle, const std::filesystem::path& folder, const OnStep& on_step);

}  // namespace ladder
