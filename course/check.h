/// @file
/// Says whether a kernel is the exercise's solution: what a student is told, and what a grader counts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "course/exercise.h"
#include "harness/base/progress.h"

namespace ladder {

/// One thing that a kernel must do.
struct Criterion {
    std::string key;    ///< "builds", "correct", "edges", "races", "moved", "unmoved"
    std::string title;  ///< for people
    int passed = 0, total = 0;
    std::vector<std::string> reports;  ///< of what failed: where, and what was expected
    std::string why_not;               ///< why it was not looked at; empty if it was
    bool needed = true;                ///< false: there may be nothing to count

    bool all() const { return why_not.empty() && (total > 0 || !needed) && passed == total; }
};

/// How to check.
struct CheckOptions {
    std::uint64_t seed = 1;   ///< of the problems of "correct", and of some of "races"
    bool untrusted = false;   ///< the kernel is another person's: screened before it is built, and sandboxed
    bool thorough = false;    ///< more edge cases
    double run_limit_s = 10;  ///< of processors, of one run; one that takes longer ends its criterion
    double limit_s = 600;     ///< of processors, of all; what is then not done counts as failed
    /// Counters, in words, that were predicted: reports tell no value that another one must become. All are
    /// told if it is not set.
    std::optional<std::set<std::string>> predicted = {};
};

/// A counter that the change moves, on the first problem where it does, or else the first that the parent
/// refuses.
struct MovedCounter {
    std::string counter, problem;
    std::optional<std::uint64_t> of_parent;  ///< nothing where it refuses the problem
    std::uint64_t expected = 0;
    std::optional<std::uint64_t> counted;  ///< nothing where the kernel fails
};

/// What was found.
struct CheckResult {
    std::vector<Criterion> criteria;  ///< always all of them, in this order
    std::vector<MovedCounter> moved;
    std::vector<std::string> notes;  ///< what is no failure here
    /// Each counter that the change moves is as claimed on every problem, also where it must stay.
    bool exact = false;

    bool passed() const;
    /// All of correct, edges and races.
    bool right() const;
    const Criterion& operator[](const std::string& key) const;
};

/// Builds the kernel in `products` (a folder) and checks it. Throws CannotRun where that is not possible
/// here. The same kernel, exercise and seed give the same result.
CheckResult check_kernel(const Exercise& exercise, const std::filesystem::path& kernel,
                         const std::filesystem::path& products, const CheckOptions& options,
                         const OnStep& on_step);

}  // namespace ladder
