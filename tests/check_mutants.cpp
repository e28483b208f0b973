/// @file
/// Holds that the suite rejects mutants, and for the reason that each names:
///
///     check_mutants [--seed N] PATH...
///     check_mutants --write FOLDER PATH...
///
/// A path is a stage's folder, for all of its mutants, or one mutant's file. Each is compiled for the checked
/// back-end and run on its case, on which the stage's own kernel must pass. Of an exercise's mutants a grader
/// must not pay the results either, with a seed that is drawn, printed, and taken again with --seed. Prints a
/// line for each; exits with 1 if one is not as it says, 2 if there is none.
///
/// --write compiles nothing: it writes each kernel to FOLDER/STAGE/MUTANT/kernel.cu, a class to be graded.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "course/exercise.h"
#include "course/mutants.h"
#include "course/problems.h"
#include "harness/base/file.h"
#include "harness/base/table.h"
#include "harness/device/device.h"
#include "harness/ladder/declaration.h"
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
    static const std::regex dims("using Dims = (HeadDims<[^>]*>);");
    return std::regex_replace(
        kernel, dims,
        fmt::format("struct Dims : $1 {{ template <class F> static void "
                    "dispatch(const Problem&, F f) {{ f.template operator()<{1}, {0}>(); "
                    "}} }};",
                    d, name(dtype)));
}

fs::path stage_folder_of(const fs::path& mutant_file) {
    return fs::absolute(mutant_file).parent_path().parent_path();
}

/// Whether a report is of work, and of a counter that the exercise's change must move: of each, where the
/// parent has not the head dimension or takes no such problem. Or of the order of the blocks, where the
/// change is one.
bool moved_too_little(const std::string& report, const Exercise& e, const Case& c) {
    const Stage& parent = parent_of(e);
    if (!parent.has_head_dim(c.shape.d) || !why_not_taken(parent, c).empty()) return says(report, "counted ");
    const std::vector<MustMove> moves = what_must_move(e);
    return says(report, "counted the copies") ||
           std::any_of(moves.begin(), moves.end(), [&](const MustMove& move) {
               return says(report, "counted ... " + in_words(move.claim.counter) + ", not ");
           });
}

/// Whether a grader sees what is wrong on the problems that it draws with this seed, those aside that need
/// more of the kernel than is compiled here: in the results, or in what must move.
bool a_grader_sees(CheckedKernel& kernel, const Mutant& mutant, const Exercise& e, std::uint64_t seed) {
    const bool about_work = mutant.report.starts_with("counted");
    std::vector<Case> cases = about_work ? claim_cases(e.folder()) : own_problems(e, seed);
    // One is enough: first where it is sure to differ, then where that takes least.
    const auto scores = [&](const Case& c) {
        const bool elsewhere = c.shape != mutant.problem.shape || c.causal != mutant.problem.causal;
        return std::pair(elsewhere, double(c.shape.B) * c.shape.H * c.shape.Nq * c.shape.Nk);
    };
    std::ranges::stable_sort(cases, {}, scores);
    for (const Case& c : cases) {
        if (c.shape.d != mutant.problem.shape.d || c.dtype != mutant.problem.dtype) continue;
        Mutant elsewhere = mutant;
        elsewhere.problem = c;
        const Verdict verdict = kernel.verify(elsewhere);
        if (!verdict.passed && (!about_work || moved_too_little(verdict.report, e, c))) return true;
    }
    return false;
}

/// Throws what is not as the mutant says.
void check(const fs::path& file, std::uint64_t seed) {
    const Mutant mutant = read_mutant(file);
    const fs::path stage_folder = stage_folder_of(file);
    const Stage& stage = stage_in(stage_folder);

    const TemporaryFolder work("ladder-");
    const fs::path kernel = work.path() / "kernel.cu";
    OutputFile(kernel).write(only(mutant.problem.shape.d, mutant.problem.dtype,
                                  wrong_kernel(kernel_text(stage_folder / "kernel.cu"), mutant)));
    if (const Verdict& original = verdict_on_original(stage, mutant); !original.passed)
        throw CheckFailed("the stage itself fails on this case\n" + original.report);
    CheckedKernel wrong(kernel, work.path(), run_limit_s);
    const Verdict verdict = wrong.verify(mutant);
    if (verdict.passed) throw CheckFailed("accepted: the suite does not notice");
    if (!says(verdict.report, mutant.report))
        throw CheckFailed(fmt::format("rejected, but not for \"{}\"\n{}", mutant.report, verdict.report));
    if (!fs::exists(stage_folder / "exercise.md")) return;
    if (!a_grader_sees(wrong, mutant, load_exercise(stage.folder()), seed))
        throw CheckFailed(fmt::format("a grader pays its results with --seed {}", seed));
}

void write(const fs::path& file, const fs::path& folder) {
    const fs::path stage_folder = stage_folder_of(file),
                   place = folder / stage_folder.filename() / file.stem();
    fs::create_directories(place);
    OutputFile(place / "kernel.cu")
        .write(wrong_kernel(kernel_text(stage_folder / "kernel.cu"), read_mutant(file)));
}

/// Whether all is as the mutant says; if not, prints what is not.
bool passes(const fs::path& file, std::uint64_t seed) {
    const auto start = std::chrono::steady_clock::now();
    std::string failure;
    try {
        check(file, seed);
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
    std::vector<std::string> words(argv + 1, argv + argc);
    const std::string option = words.size() > 2 && words[0].starts_with("--") ? words[0] : "";
    const std::string value = option.empty() ? "" : words[1];
    if (!option.empty()) words.erase(words.begin(), words.begin() + 2);
    const bool writes = option == "--write";
    if (!option.empty() && !writes && option != "--seed") {
        fmt::print(stderr, "check_mutants: there is no {}\n", option);
        return 2;
    }
    const std::uint64_t seed = option == "--seed" ? std::stoull(value) : std::random_device()();
    if (!writes) fmt::print("graded with --seed {}\n", seed);
    int all = 0, passed = 0;
    for (const std::string& path : words) {
        for (const fs::path& file : files_at(path)) {
            all += 1;
            if (writes)
                write(file, value);
            else
                passed += passes(file, seed);
        }
    }
    if (writes) {
        fmt::print("{} kernels are in {}\n", all, value);
        return all == 0 ? 2 : 0;
    }
    fmt::print("{} of {} mutants are rejected as they say\n", passed, all);
    return all == 0 ? 2 : passed == all ? 0 : 1;
}
