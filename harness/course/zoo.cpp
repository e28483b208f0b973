#include "harness/course/zoo.h"

#include <fmt/format.h>

#include <optional>

#include "harness/base/file.h"
#include "harness/course/exercise.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/cases.h"
#include "harness/report/diff.h"
#include "simt/simt.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

constexpr double run_limit_s = 10;

}  // namespace

std::vector<Puzzle> zoo() {
    const fs::path sources = source_folder() / "stages";
    std::vector<Puzzle> puzzles;
    for (const Stage& stage : stages()) {
        for (const fs::path& file : mutant_files(sources / stage.folder()))
            puzzles.push_back({static_cast<int>(puzzles.size()) + 1, &stage, read_mutant(file)});
    }
    return puzzles;
}

Puzzle find_puzzle(int number) {
    const std::vector<Puzzle> all = zoo();
    if (number < 1 || number > static_cast<int>(all.size()))
        throw BadUsage(fmt::format("there is no puzzle {}; there are 1 to {}", number, all.size()));
    return all[static_cast<std::size_t>(number - 1)];
}

std::string bug_as_diff(const Puzzle& puzzle) {
    const TemporaryFolder folder("ladder-");
    const fs::path right = kernel_path(*puzzle.stage), wrong = folder.path() / "kernel.cu";
    OutputFile(wrong).write(wrong_kernel(read_file(right), puzzle.mutant));
    return diff_files(right, puzzle.stage->folder() + "/kernel.cu", wrong, "zoo/kernel.cu");
}

void start_puzzle(const Puzzle& puzzle, const fs::path& folder) {
    require_new_folder(folder, "; name another folder with --dir");
    const std::string kernel = wrong_kernel(read_file(kernel_path(*puzzle.stage)), puzzle.mutant);
    std::error_code error;
    fs::create_directories(folder / ".lab", error);
    if (error) throw BadUsage(fmt::format("cannot make {}: {}", folder.string(), error.message()));
    OutputFile(folder / "kernel.cu").write(kernel);
}

std::string first_failure(const Puzzle& puzzle, const fs::path& folder, const OnStep& on_step) {
    on_step("build", 0, 1);
    const fs::path path = fs::absolute(folder).lexically_normal();
    fs::create_directories(path / ".lab");
    std::optional<CheckedKernel> kernel;
    try {
        kernel.emplace(path / "kernel.cu", path / ".lab", run_limit_s);
    } catch (const CheckFailed& error) {
        return error.what();
    }
    const simt::KeptOptions kept;
    std::string failure;
    try {
        if (kernel->stage().number != puzzle.stage->number)
            return "it is another stage now: see LADDER_STAGE at the end";
        // The case on which the bug is known to show, then the suite's own; the thorough ones only where the
        // quick do not tell.
        for (const auto order : {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled}) {
            simt::options().order = order;
            const bool forward = order == simt::Order::forward;
            for (const bool quick : {true, false}) {
                if (!quick && !forward) continue;
                std::vector<Case> cases = verification_cases(*puzzle.stage, quick ? Cover::each : Cover::all);
                if (quick) cases.insert(cases.begin(), puzzle.mutant.problem);
                for (std::size_t k = 0; k < cases.size() && failure.empty(); ++k) {
                    on_step(cases[k].description(), static_cast<int>(k), static_cast<int>(cases.size()));
                    const bool own = quick && k == 0;
                    const Verdict verdict = own ? kernel->verify(puzzle.mutant) : kernel->verify(cases[k]);
                    const std::string& report = verdict.report;
                    if (!report.empty()) failure = fmt::format("{}\n{}\n", cases[k].description(), report);
                }
            }
        }
    } catch (const CheckFailed& error) {
        failure = fmt::format("{}\n", error.what());
    } catch (const CannotRun& error) {
        failure = fmt::format("{}\n", error.what());
    }
    return failure;
}

}  // namespace ladder
