/// @file
/// Holds that the suite rejects mutants, and for the reason that each names:
///
///     check_mutants [--seed N | --seed drawn] [--kept] PATH...
///     check_mutants --write FOLDER PATH...
///
/// A path is a stage's folder, for all of its mutants, or one mutant's file. Those of a stage are one source
/// where they can be (all_mutants.py), compiled for the checked back-end; each is run on its case, on which
/// the stage's own kernel must pass. Of an exercise's mutants a grader must not pay the results either, with
/// the seed of --seed, or of $GRADER_SEED: 1 by default, or "drawn", and printed. Prints a line for each;
/// exits with 1 if one is not as it says, 2 if there is none. With --kept, a stage whose mutants were
/// rejected before is left out if nothing has changed since that the verdict was made of.
///
/// --write compiles nothing: it writes each kernel to FOLDER/STAGE/MUTANT/kernel.cu, a class to be graded.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "course/exercise.h"
#include "course/mutants.h"
#include "course/problems.h"
#include "harness/base/file.h"
#include "harness/base/json.h"
#include "harness/base/process.h"
#include "harness/base/table.h"
#include "harness/device/device.h"
#include "harness/features/features.h"
#include "harness/ladder/declaration.h"
#include "harness/ladder/ladder.h"
#include "harness/verify/kept.h"
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
    const auto [at, is_new] = verdicts.try_emplace(fmt::format(
        "{} {}{}", stage.folder(), description_of(mutant.problem), about_work ? ", counted" : ""));
    if (is_new) at->second = verify(*device, stage, mutant);
    return at->second;
}

/// What kernels are compiled for: the head dimensions and types of these mutants' cases alone, which takes a
/// part of the time that all take.
std::string only_for(const std::vector<Mutant>& mutants, const std::string& kernel) {
    static const std::regex dims("using Dims = (HeadDims<[^>]*>);");
    std::set<std::string> calls;
    for (const Mutant& mutant : mutants) {
        const int d = mutant.problem.shape.d;
        const std::string type = name(mutant.problem.dtype);
        calls.insert(fmt::format(
            "if (p.d == {0} && p.dtype == DType::{1}) f.template operator()<{1}, {0}>(); ", d, type));
    }
    return std::regex_replace(
        kernel, dims,
        fmt::format("struct Dims : $1 {{ template <class F> static void dispatch(const Problem& p, "
                    "F f) {{ {}}} }};",
                    fmt::join(calls, "")));
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
               return !move.parent_refuses &&
                      says(report, "counted ... " + in_words(move.claim.counter) + ", not ");
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

/// Throws what is not as the mutant says of this kernel, which has it.
void check(CheckedKernel& wrong, const Stage& stage, const Mutant& mutant, std::uint64_t seed) {
    if (const Verdict& original = verdict_on_original(stage, mutant); !original.passed)
        throw CheckFailed("the stage itself fails on this case\n" + original.report);
    const Verdict verdict = wrong.verify(mutant);
    if (verdict.passed) throw CheckFailed("accepted: the suite does not notice");
    if (!says(verdict.report, mutant.report))
        throw CheckFailed(fmt::format("rejected, but not for \"{}\"\n{}", mutant.report, verdict.report));
    if (!fs::exists(source_folder() / "stages" / stage.folder() / "exercise.md")) return;
    if (!a_grader_sees(wrong, mutant, load_exercise(stage.folder()), seed))
        throw CheckFailed(fmt::format("a grader pays its results with --seed {}", seed));
}

/// Mutants of one stage, and the sources that have them.
class StageMutants {
  public:
    StageMutants(const Stage& stage, std::vector<Mutant> mutants)
        : stage_(stage),
          mutants_(std::move(mutants)),
          kernel_(only_for(mutants_, kernel_text(fs::path(stage.source)))) {
        if (mutants_.size() < 2) return;
        nlohmann::json request{
            {"kernel", kernel_}, {"chosen", folder("all") / "chosen"}, {"errors", nlohmann::json::array()}};
        for (Mutant one : mutants_) {
            nlohmann::json& wrong = request["mutants"].emplace_back();
            for (const Replacement& replacement : std::exchange(one.replacements, {})) {
                one.replacements = {replacement};
                wrong.push_back(wrong_kernel(kernel_, one));
            }
        }
        for (bool compiles = false; !compiles;) {
            const auto all = nlohmann::json::parse(ask_python("tests/all_mutants.py", request.dump()));
            if (all.is_null()) break;
            OutputFile(folder("all") / "kernel.cu").write(all.at("source").get<std::string>());
            choose("-1");
            try {
                CheckedKernel(folder("all") / "kernel.cu", folder("all"), run_limit_s);
                all.at("mutants").get_to(shared_);
                compiles = true;
            } catch (const CheckFailed& error) {
                request["errors"].push_back(error.what());
            }
        }
    }

    /// Throws what is not as the mutant says.
    void check(std::size_t number, std::uint64_t seed) {
        const Mutant& mutant = mutants_[number];
        const bool shares = shared_.contains(number);
        const fs::path own = folder(shares ? "all" : fmt::format("{}", number));
        if (shares)
            choose(fmt::format("{}", number));
        else
            OutputFile(own / "kernel.cu").write(wrong_kernel(kernel_, mutant));
        alone_ += !shares;
        CheckedKernel wrong(own / "kernel.cu", own, run_limit_s);
        ::check(wrong, stage_, mutant, seed);
    }

    /// How many of those that were checked have a source of their own.
    int alone() const { return alone_; }

  private:
    fs::path folder(const std::string& name) const {
        fs::create_directories(work_.path() / name);
        return work_.path() / name;
    }

    /// From now on programs that load the kernel of all have this mutant.
    void choose(const std::string& mutant) const { OutputFile(folder("all") / "chosen").write(mutant); }

    const Stage& stage_;
    std::vector<Mutant> mutants_;
    std::string kernel_;
    std::set<std::size_t> shared_;  ///< those that are in one source
    TemporaryFolder work_{"ladder-"};
    int alone_ = 0;
};

void write(const fs::path& file, const fs::path& folder) {
    const fs::path stage_folder = stage_folder_of(file),
                   place = folder / stage_folder.filename() / file.stem();
    fs::create_directories(place);
    OutputFile(place / "kernel.cu")
        .write(wrong_kernel(kernel_text(stage_folder / "kernel.cu"), read_mutant(file)));
}

/// Does it; returns whether nothing was thrown, and prints a line.
bool passes(const fs::path& file, const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    std::string failure;
    try {
        work();
    } catch (const std::exception& error) {
        failure = std::string(": ") + error.what();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print("{} {} ({:.1f} s){}\n", failure.empty() ? "passed" : "FAILED", file.string(), seconds.count(),
               failure);
    std::fflush(stdout);
    return failure.empty();
}

/// How many are as they say, of these files of one stage.
int check_all(const fs::path& stage_folder, const std::vector<fs::path>& files, std::uint64_t seed) {
    const Stage& stage = stage_in(stage_folder);
    const std::string kernel = kernel_text(fs::path(stage.source));
    std::map<fs::path, std::size_t> numbers;  // of those that fit the kernel
    std::map<fs::path, std::string> errors;   // of the others
    std::vector<Mutant> mutants;
    for (const fs::path& file : files) {
        try {
            const Mutant mutant = read_mutant(file);
            wrong_kernel(kernel, mutant);
            numbers[file] = mutants.size();
            mutants.push_back(mutant);
        } catch (const std::exception& error) {
            errors[file] = error.what();
        }
    }
    StageMutants of_stage(stage, mutants);
    int passed = 0;
    for (const fs::path& file : files) {
        passed += passes(file, [&] {
            if (errors.contains(file)) throw CheckFailed(errors.at(file));
            of_stage.check(numbers.at(file), seed);
        });
    }
    fmt::print("{}: {} in one source, {} in sources of their own\n", stage.folder(),
               static_cast<int>(mutants.size()) - of_stage.alone(), of_stage.alone());
    return passed;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    const char* set = std::getenv("GRADER_SEED");
    std::string seed_word = set == nullptr ? "1" : set, write_to;
    bool kept = false;
    while (!words.empty() && words[0].starts_with("--")) {
        const std::string option = words[0];
        kept = kept || option == "--kept";
        if (option != "--kept" && (words.size() < 2 || (option != "--seed" && option != "--write"))) {
            fmt::print(stderr, "check_mutants: there is no {}\n", option);
            return 2;
        }
        if (option == "--seed") seed_word = words[1];
        if (option == "--write") write_to = words[1];
        words.erase(words.begin(), words.begin() + (option == "--kept" ? 1 : 2));
    }
    const std::uint64_t seed = seed_word == "drawn" ? std::random_device()() : std::stoull(seed_word);
    std::map<fs::path, std::vector<fs::path>> files;  // by the stage's folder
    int all = 0, passed = 0;
    for (const std::string& path : words) {
        for (const fs::path& file : files_at(path)) {
            all += 1;
            if (write_to.empty())
                files[stage_folder_of(file)].push_back(file);
            else
                write(file, write_to);
        }
    }
    if (!write_to.empty()) {
        fmt::print("{} kernels are in {}\n", all, write_to);
        return all == 0 ? 2 : 0;
    }
    fmt::print("graded with --seed {}\n", seed);
    for (const auto& [folder, of_stage] : files) {
        std::string what = fmt::format("mutants, graded with seed {}:", seed);
        for (const fs::path& file : of_stage) what += " " + file.stem().string();
        const KeptVerdict verdict(
            stage_in(folder), what,
            {"course", "tests/check_mutants.cpp", "tests/all_mutants.py", "tests/kernel_text.py"});
        if (kept && verdict.holds()) {
            fmt::print("{}: rejected before, and nothing has changed since\n", folder.filename().string());
            passed += static_cast<int>(of_stage.size());
            continue;
        }
        const int rejected = check_all(folder, of_stage, seed);
        passed += rejected;
        if (kept && rejected == static_cast<int>(of_stage.size())) verdict.keep();
    }
    fmt::print("{} of {} mutants are rejected as they say\n", passed, all);
    return all == 0 ? 2 : passed == all ? 0 : 1;
}
