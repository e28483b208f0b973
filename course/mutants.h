/// @file
/// Mutants: variants of a stage's kernel with one bug each, which the suite must reject and the zoo shows as
/// puzzles. Each is a text in its stage's folder, stages/NN_name/mutants/WHAT.txt:
///
///     Bug: nothing waits for the asynchronous copies
///     Symptom: right in most runs on a GPU, wrong under load
///     Difficulty: medium
///     Hint: copy_async returns before anything has arrived.
///     Case: --shape 1,1,1,1,1,64
///     Report: asynchronous copy ... no wait
///
///     -        copy_wait();
///
/// The case, in the words of `lab verify`, is one on which the kernel passes and the mutant does not, and the
/// report must then hold the parts between " ... ", in this order; " | " stands between what it may say instead
/// where the order of blocks decides. A mutant that is right and does too much has a report that begins with
/// "counted": its work on the case is then held to what the stage claims of its own. A difficulty (easy, medium
/// or hard) makes it one of the puzzles that the zoo shows first. Hints, one a line, are optional too; each says
/// more than the one before.
///
/// Below the head come replacements, each after an empty line: lines that go (-), lines that come (+), and
/// around them, where those that go look like others, some that stay (a space). What goes and stays must be
/// in kernel.cu exactly once, as whole lines. How they are indented and broken does not matter there.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "course/fence/remote_device.h"
#include "harness/problem/case.h"
#include "harness/verify/one_case.h"

namespace ladder {

/// Lines of a kernel, and what a mutant has in their place. Each line ends with '\n'.
struct Replacement {
    std::string from, to;
};

/// One bug in one stage's kernel.
struct Mutant {
    std::string bug, symptom;  ///< one line each
    Case problem;              ///< on which it shows
    std::string report;        ///< what the verdict on that case says of it, in parts
    std::string difficulty;    ///< of difficulties(); empty if the zoo does not show it first
    std::vector<std::string> hints;
    std::vector<Replacement> replacements;
};

/// What a mutant's difficulty can be, in order.
const std::vector<std::string>& difficulties();

/// The files with the mutants of the stage in this folder, by name; none if it has none.
std::vector<std::filesystem::path> mutant_files(const std::filesystem::path& stage_folder);

/// Throws BadUsage, with the file's name, if it is not of the form above.
Mutant read_mutant(const std::filesystem::path& file);

/// The kernel with the bug. Throws CheckFailed if lines to replace are not in it exactly once: which, and how
/// often they are.
std::string wrong_kernel(const std::string& kernel, const Mutant& mutant);

/// Whether a report says what a mutant's does: every part, in order, of one of its alternatives.
bool says(const std::string& report, const std::string& expected);

/// Verifies a kernel on a mutant's case, and if that is about work and the results are right, counts. `stage`
/// is the kernel as it declares itself.
Verdict verify(Device& device, const Stage& stage, const Mutant& mutant);

/// Whether blocks that must visit more key tiles copy more, and those that must visit as many as much. A
/// kernel's notes could say anything; the sum of the copies is a claim of its own.
bool are_in_order(const std::vector<std::uint64_t>& tiles, const std::vector<std::uint64_t>& copies);

/// A kernel that may crash or hang, on the race-checked CPU back-end in a process of its own.
class CheckedKernel {
  public:
    /// Compiles it in `folder`, which must exist; what was built there from the same source is kept.
    /// `run_limit_s`: seconds that one run may take. Throws CheckFailed with what the compiler says.
    CheckedKernel(const std::filesystem::path& kernel, const std::filesystem::path& folder,
                  double run_limit_s);

    /// As the kernel declares itself.
    const Stage& stage() const { return stage_; }

    Verdict verify(const Case& c) { return ladder::verify(device_, stage_, c); }
    /// Where blocks have an order that is claimed, it is a part of the counted work.
    Verdict verify(const Mutant& mutant);

  private:
    RemoteDevice device_;
    Stage stage_;
};

}  // namespace ladder
