/// @file
/// Grades submissions: kernels that are not trusted.
///
/// Threat model. A submission is C++ that is compiled and run. Its source and what the compiler made of it
/// are screened (screen.h), so that it can name nothing but the CUDA layer. It is compiled and run in
/// processes of their own, with limits and a sandbox (sandbox.h), that know no answers: inputs are made, and
/// outputs are judged, in this process. So it cannot reach the expected outputs, the results file, the
/// network or other submissions, and nothing that it prints or exits with counts. course/README.md says what
/// each wall stops and what it does not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "course/check.h"

namespace ladder {

/// What a criterion is worth.
struct Rubric {
    std::optional<int> stage;  ///< where the rubric is for one
    std::uint64_t seed = 1;    ///< of shapes and numbers
    std::map<std::string, double> points{{"builds", 5}, {"correct", 20}, {"edges", 15},
                                         {"races", 15}, {"moved", 35},   {"unmoved", 10}};
    // Seconds of processors, against those that are slow on purpose:
    double run_limit_s = 10;  ///< for one run of the kernel
    double limit_s = 300;     ///< for all checks of one submission
};

/// Reads a rubric. Throws BadUsage naming what is wrong with it.
Rubric load_rubric(const std::filesystem::path& path);

/// One criterion's score.
struct Score {
    std::string key, title;
    double score = 0, most = 0;
    std::string output;  ///< for the student
};

/// What a check is worth. A kernel whose results are not right has the points of "builds" alone. Of a right
/// one "moved" counts in parts, and the rest once CheckResult::exact; until then all together are at most a
/// fifth of the rubric's points.
std::vector<Score> scores(const CheckResult& result, const Rubric& rubric);

/// One submission's grade.
struct Grade {
    std::vector<Score> scores;
    std::string fingerprint;  ///< of what decides it: kernel, exercise, rubric
    /// For the leaderboard, and no part of the score: how many times the parent's speed.
    std::optional<double> over_parent;
    std::string why_not_timed;  ///< where it was to be, in one line
    double total() const;
    double most() const;
};

/// Grades the kernel.cu of a folder. Never throws for what the submission is or does; throws CannotRun if
/// this machine cannot grade. Deterministic, but for what `leaderboard` adds: a kernel with all points for
/// correct, edges and races is timed (time_student()).
Grade grade_submission(const Exercise& exercise, const std::filesystem::path& folder, const Rubric& rubric,
                       const OnStep& on_step, bool leaderboard = false);

/// The submission's kernel, or in `why_not` why there is none. No link is followed, which could name any file
/// of the grader's.
std::string kernel_of(const std::filesystem::path& folder, std::string& why_not);

/// The fingerprint of a submission's grade, without grading it.
std::string fingerprint(const Exercise& exercise, const std::filesystem::path& folder, const Rubric& rubric);

/// In Gradescope's results format
/// (https://gradescope-autograders.readthedocs.io/en/latest/specs/#output-format).
std::string gradescope_json(const Grade& grade);

/// When the submission's kernel was last written, as its folder says: "2026-11-28T23:30:42Z"; empty if there
/// is none.
std::string time_of_kernel(const std::filesystem::path& folder);

/// The grade in such a file, if it is one; nothing otherwise.
std::optional<Grade> read_gradescope(const std::filesystem::path& path);

}  // namespace ladder
