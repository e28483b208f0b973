/// @file
/// A stage as an exercise: start from the parent's kernel and make the one change.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/count/claims.h"
#include "harness/ladder/ladder.h"
#include "stages/stage.h"

namespace ladder {

/// What is known of a stage without its kernel. In a hand-out that is all there is of it.
struct Exercise {
    int number = 0;
    std::string name;
    int parent = -1;
    std::string change, shows_in;
    int diff_budget = 80;
    Pass pass = Pass::forward;
    bool repeats_exactly = true;  ///< of the solution: then a student's kernel must too
    std::vector<int> head_dims;
    std::vector<Tiling> tilings;       ///< of the solution, as Stage has them
    std::vector<Case> problems;        ///< on which the bugs show that are known of it; the bugs stay here
    bool rounds_large_scores = false;  ///< the solution does, and so a student's kernel may
    Products products = Products::of_16_bits;
    std::string complaint;  ///< Markdown: what is wrong with the parent
    std::string task;       ///< Markdown: the change in words
    std::vector<std::string>
        hints;                 ///< Markdown: what to look at, which statement moves where, nearly the code
    bool solved_here = false;  ///< the stage's kernel and lesson are in this folder of sources

    /// "05_causal_skip"
    std::string folder() const;

    /// Its solution, as far as names and verification_cases() ask.
    Stage as_stage() const;
};

/// The exercise of a stage: a number ("5") or a name. Throws BadUsage if there is none like that.
Exercise load_exercise(const std::string& word);

/// All exercises, by number.
std::vector<Exercise> all_exercises();

/// The parent's kernel, declaring itself as the exercise's stage.
std::string starting_kernel(const Exercise& exercise);

/// The parent's stage. Throws CannotRun if it is not in this build.
const Stage& parent_of(const Exercise& exercise);

/// The text of a Markdown section, without its heading; empty if there is none.
std::string section(const std::string& markdown, const std::string& heading);

/// A claim that the parent breaks, on one problem: what the change must move.
struct MustMove {
    Case problem;
    Claim claim;
};
/// What must move, each counter once on the first problem where it must. Counts the parent.
std::vector<MustMove> what_must_move(const Exercise& exercise);

/// A student's folder: kernel.cu, TASK.md, prediction.md, and .lab, which is lab's.
struct StudentFolder {
    std::filesystem::path path;
    int stage = 0;
    int hints = 0;        ///< given so far
    bool solved = false;  ///< a check has passed, perhaps of an earlier kernel
    std::filesystem::path kernel() const { return path / "kernel.cu"; }
    std::filesystem::path products() const { return path / ".lab"; }
};

/// Makes the folder. Throws BadUsage if it exists and is not empty. Git ignores it, wherever it is.
StudentFolder start_exercise(const Exercise& exercise, const std::filesystem::path& folder);
/// Throws BadUsage if the folder was not made by start_exercise().
StudentFolder open_student_folder(const std::filesystem::path& folder);
/// Those in a folder, and the folder itself if it is one; the one last saved first.
std::vector<StudentFolder> student_folders(const std::filesystem::path& parent);
void save(const StudentFolder& folder);
/// What prediction.md says, by the counter's name in words; rows without a prediction are left out, and so
/// are the tables' heads.
std::map<std::string, std::string> predictions(const StudentFolder& folder);

}  // namespace ladder
