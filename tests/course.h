/// @file
/// What the tests of course/ have in common.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "course/exercise.h"
#include "course/grade.h"
#include "harness/base/file.h"
#include "harness/ladder/ladder.h"
#include "harness/report/diff.h"
#include "tests/catch.h"
#include "tests/cli.h"
#include "tests/folder.h"

namespace ladder::test {

inline const OnStep quietly = [](const std::string&, int, int) {};

inline std::string kernel_of(int stage) {
    return kernel_text(*find_stage(stage));
}

/// The text with one part replaced, which must be there.
inline std::string with(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    REQUIRE(at != text.npos);
    return text.replace(at, from.size(), to);
}

/// "kernel.cu:12", the line of a text in which `part` begins; with another form, as nvcc has it.
inline std::string place_of(const std::string& text, const std::string& part,
                            const char* form = "kernel.cu:{}") {
    const auto begin = text.begin();
    return fmt::format(fmt::runtime(form), 1 + std::count(begin, begin + text.find(part), '\n'));
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
}

/// `lab` in a folder, as a user who names none for the results.
inline ProcessResult lab_in(const std::string& folder, const std::string& arguments) {
    return run_process({"sh", "-c", "cd '" + folder + "' && '" LADDER_LAB "' " + arguments});
}

/// Grades a kernel, for stage 05 if no other is named.
inline Grade graded(const std::string& kernel, int stage = 5) {
    const Folder folder;
    folder.write("kernel.cu", kernel);
    Rubric rubric;
    rubric.run_limit_s = 2;  // those that hang are some
    return grade_submission(load_exercise(std::to_string(stage)), folder / "", rubric, quietly);
}

inline double score(const Grade& grade, const std::string& key) {
    for (const Score& s : grade.scores) {
        if (s.key == key) return s.score / s.most;
    }
    return -1;
}

inline std::string output(const Grade& grade, const std::string& key) {
    for (const Score& s : grade.scores) {
        if (s.key == key) return s.output;
    }
    return "";
}

}  // namespace ladder::test
