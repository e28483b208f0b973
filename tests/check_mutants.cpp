/// @file
/// Holds that the suite rejects mutants, and for the reason that each names:
///
///     check_mutants PATH...
///
/// A path is a stage's folder, for all of its mutants, or one mutant's file. Each is compiled for the checked
/// back-end and run on its case, on which the stage's own kernel must pass. Prints a line for each; exits
/// with 1 if one is not as it says, 2 if there is none.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "harness/base/file.h"
#include "harness/course/mutants.h"
#include "harness/device/device.h"
#include "harness/ladder/ladder.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace {

using namespace ladder;

/// Far beyond what any of their cases takes, in seconds of processors: for those that hang.
constexpr double run_limit_s = 300;

std::vector<fs::path> files_at(const fs::path& path) {
    if (fs::is_directory(path)) return mutant_files(path);
    return {path};
}

/// The verdict on a stage's own kernel, once for each case.
const Verdict& verdict_on_original(const Stage& stage, const Mutant& mutant) {
    static const auto device = open_device(Backend::checked);
    static std::map<std::string, Verdict> verdicts;
    const bool about_work = mutant.report.starts_with("counted");
    const auto [at, is_new] = verdicts.try_emplace(
        fmt::format("{} {}{}", stage.folder(), mutant.problem.description(), about_work ? ", counted" : ""));
    if (is_new) at->second = verify(*device, stage, mutant);
    return at->second;
}

/// The kernel for this head dimension and type alone, which compiles in half the time.
std::string only(int d, DType dtype, const std::string& kernel) {
    static const std::regex dims("using Dims = (HeadDims)<[^>]*>;");
    return std::regex_replace(
        kernel, dims,
        fmt::format("struct Dims : $1<{0}> {{ template <class F> static void "
                    "dispatch(const Problem&, F f) {{ f.template operator()<{1}, {0}>(); "
                    "}} }};",
                    d, name(dtype)));
}

/// Throws what is not as the mutant says.
void check(const fs::path& file) {
    const Mutant mutant = read_mutant(file);
    const fs::path stage_folder = fs::absolute(file).parent_path().parent_path();
    const Stage& stage = stage_in(stage_folder);

    const TemporaryFolder work("ladder-");
    const fs::path kernel = work.path() / "kernel.cu";
    OutputFile(kernel).write(only(mutant.problem.shape.d, mutant.problem.dtype,
                                  wrong_kernel(read_file(stage_folder / "kernel.cu"), mutant)));
    if (const Verdict& original = verdict_on_original(stage, mutant); !original.passed)
        throw CheckFailed("the stage itself fails on this case\n" + original.report);
    const Verdict verdict = CheckedKernel(kernel, work.path(), run_limit_s).verify(mutant);
    if (verdict.passed) throw CheckFailed("accepted: the suite does not notice");
    if (!says(verdict.report, mutant.report))
        throw CheckFailed(fmt::format("rejected, but not for \"{}\"\n{}", mutant.report, verdict.report));
}

/// Whether all is as the mutant says; if not, prints what is not.
bool passes(const fs::path& file) {
    const auto start = std::chrono::steady_clock::now();
    std::string failure;
    try {
        check(file);
    } catch (const std::exception& error) {
        failure = std::string(": ") + error.what();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print("{} {} ({:.1f} s){}\n", failure.empty() ? "passed" : "FAILED", file.string(), seconds.count(),
               failure);
    std::fflush(stdout);
    return failure.empty();
}

}  // namespace

int main(int argc, char** argv) {
    int all = 0, passed = 0;
    for (int i = 1; i < argc; ++i) {
        for (const fs::path& file : files_at(argv[i])) {
            all += 1;
            passed += passes(file);
        }
    }
    fmt::print("{} of {} mutants are rejected as they say\n", passed, all);
    return all == 0 ? 2 : passed == all ? 0 : 1;
}
