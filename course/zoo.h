/// @file
/// The stages' mutants as puzzles.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "course/mutants.h"
#include "harness/base/progress.h"
#include "stages/stage.h"

namespace ladder {

/// A mutant to be found and fixed.
struct Puzzle {
    int number = 0;  ///< from 1
    std::string id;  ///< "04_split_q/missing_wait": its file, whatever its number
    const Stage* stage = nullptr;
    Mutant mutant;
};

/// All puzzles: those with a difficulty, the easy ones first, then the rest; among them in the order of the
/// stages and of the mutants' names. Throws CannotRun if the source folder is gone, BadUsage for a file that
/// is no mutant.
std::vector<Puzzle> zoo();

/// Throws BadUsage if there is none with this number.
Puzzle find_puzzle(int number);

/// From the wrong kernel to the stage's, as `diff -u`. Throws CheckFailed if the bug does not fit the kernel
/// any more.
std::string fix_as_diff(const Puzzle& puzzle);
/// How many runs of neighbouring lines the fix changes: one bug may need several.
int places_of(const Puzzle& puzzle);

/// The folder in which a puzzle is solved: kernel.cu, and .lab, which is lab's.
struct PuzzleFolder {
    std::filesystem::path path;
    std::string puzzle;   ///< Puzzle::id
    int hints = 0;        ///< given so far
    bool solved = false;  ///< a fix has passed
    std::filesystem::path kernel() const { return path / "kernel.cu"; }
};

/// The folder in the current one that a puzzle takes if none is named: "zoo-3".
std::filesystem::path default_folder(const Puzzle& puzzle);

/// The command for a puzzle in its folder, as it can be typed: "./lab zoo 3 --check --dir 'my zoo'".
std::string zoo_command(const Puzzle& puzzle, const std::filesystem::path& folder,
                        const std::string& option = "");

/// Makes the folder, with the wrong kernel. Throws BadUsage if it exists and is not empty, CheckFailed as
/// above.
PuzzleFolder start_puzzle(const Puzzle& puzzle, const std::filesystem::path& folder);

/// Throws BadUsage if the folder was not made by start_puzzle() for this puzzle.
PuzzleFolder open_puzzle_folder(const Puzzle& puzzle, const std::filesystem::path& folder);

void save(const PuzzleFolder& folder);

/// The ids of the puzzles that were solved in the folders right below this one.
std::set<std::string> solved_puzzles(const std::filesystem::path& parent);

/// Builds the folder's kernel.cu and verifies it under the race checker: first on the puzzle's case, then on
/// all of the suite's, in every order of threads. Returns the first failing case with its report; empty if
/// all is well.
std::string first_failure(const Puzzle& puzzle, const PuzzleFolder& folder, const OnStep& on_step);

}  // namespace ladder
