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

/// A stage as it declares itself, and what its exercise adds. Its kernel is not asked: in a hand-out the
/// declaration is all there is of it, but for functions.
struct Exercise : Stage {
    std::vector<Case> problems;  ///< on which the bugs show that are known of it; the bugs stay here
    std::string complaint;       ///< Markdown: what is wrong with the parent
    std::string task;            ///< Markdown: the change in words
    std::vector<std::string>
        hints;                 ///< Markdown: what to look at, which statement moves where, nearly the code
    bool solved_here = false;  ///< the stage's kernel and lesson are in this folder of sources
};

/// The exercise of a stage: a number ("5") or a name. Throws BadUsage if there is none like that.
Exercise load_exercise(const std::string& word);

/// What a hand-out knows of an exercise in place of the stage's kernel and mutants, and what that says: its
/// declaration and problems.
std::string stage_json(const Exercise& exercise);
Exercise exercise_in(const std::string& stage_json);

/// The stage of an exercise; of one whose kernel is not here, as in a hand-out, the number alone.
Stage stage_of(const Exercise& exercise);

/// All exercises, in the order in which their stages are read.
std::vector<Exercise> all_exercises();

/// Where the kernel that it starts from is: start.cu in the stage's folder, where a kernel is complete but
/// for some types; or the parent's.
std::filesystem::path start_of(const Exercise& exercise);

/// The text of it, declaring itself as the exercise's stage.
std::string starting_kernel(const Exercise& exercise);

/// The parent's stage. Throws CannotRun if it is not in this build.
const Stage& parent_of(const Exercise& exercise);

/// The text of a Markdown section, without its heading; empty if there is none.
std::string section(const std::string& markdown, const std::string& heading);

/// A claim that the parent breaks, on one problem: what the change must move.
struct MustMove {
    Case problem;
    Claim claim;
    bool parent_refuses = false;  ///< takes no such problem
};
/// What must move, each counter once on the first problem where it must, or else the first that the parent
/// refuses. Counts the parent.
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
