#include "harness/course/zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "harness/base/file.h"
#include "harness/base/process.h"
#include "harness/course/build.h"
#include "harness/course/exercise.h"
#include "harness/course/remote_device.h"
#include "harness/report/diff.h"
#include "harness/verify/verify.h"
#include "simt/simt.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

/// The rest of the line that starts with these words.
std::string field(const std::string& text, const std::string& start) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(start)) return line.substr(start.size());
    }
    return "";
}

constexpr double run_limit_s = 10;

}  // namespace

std::vector<Puzzle> zoo() {
    const fs::path folder = source_folder() / "tests" / "mutants";
    std::vector<fs::path> patches;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        if (entry.path().extension() == ".patch") patches.push_back(entry.path());
    }
    if (error) throw CannotRun(fmt::format("there is no {}", folder.string()));
    std::sort(patches.begin(), patches.end());
    std::vector<Puzzle> puzzles;
    for (const fs::path& path : patches) {
        const std::string text = read_file(path);
        const Stage* stage = find_stage(std::stoi(path.filename().string()));
        if (stage == nullptr) continue;
        puzzles.push_back({static_cast<int>(puzzles.size()) + 1, stage, field(text, "Symptom: "),
                           field(text, "Bug: "), text.substr(std::min(text.find("--- a/"), text.size()))});
    }
    return puzzles;
}

Puzzle find_puzzle(int number) {
    const std::vector<Puzzle> all = zoo();
    if (number < 1 || number > static_cast<int>(all.size()))
        throw BadUsage(fmt::format("there is no puzzle {}; there are 1 to {}", number, all.size()));
    return all[static_cast<std::size_t>(number - 1)];
}

void start_puzzle(const Puzzle& puzzle, const fs::path& folder) {
    require_new_folder(folder, "; name another folder with --dir");
    const TemporaryFolder temporary("ladder-");
    const fs::path patch = temporary.path() / "bug.patch", kernel = temporary.path() / "kernel.cu";
    OutputFile(patch).write(puzzle.patch);
    const auto patched = run_process({"patch", "--quiet", "--output=" + kernel.string(),
                                      kernel_path(*puzzle.stage).string(), patch.string()});
    if (patched.status == 127) throw CannotRun("there is no patch command: install patch");
    if (patched.status != 0) throw CannotRun(fmt::format("the bug does not fit its kernel: {}", patched.out));
    std::error_code error;
    fs::create_directories(folder / ".lab", error);
    if (error) throw BadUsage(fmt::format("cannot make {}: {}", folder.string(), error.message()));
    OutputFile(folder / "kernel.cu").write(read_file(kernel));
}

std::string first_failure(const Puzzle& puzzle, const fs::path& folder, const OnStep& on_step) {
    on_step("build", 0, 1);
    const fs::path kernel = fs::absolute(folder / "kernel.cu").lexically_normal();
    fs::create_directories(folder / ".lab");
    const StudentBuild built =
        build_student(kernel, fs::absolute(folder / ".lab").lexically_normal(), compiler_limits());
    if (built.product.empty()) return built.errors;
    RemoteDevice device(built.product, Backend::checked, {}, run_limit_s);
    const simt::KeptOptions kept;
    std::string failure;
    try {
        const Stage stage = device.stage();
        if (stage.number != puzzle.stage->number)
            return "it is another stage now: see LADDER_STAGE at the end";
        // The suite's own cases, as the test of the mutants has them; the thorough ones only where the quick
        // do not tell. And the work, since a fix must not cost any.
        for (const auto order : {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled}) {
            simt::options().order = order;
            const bool forward = order == simt::Order::forward;
            for (const bool quick : {true, false}) {
                if (!quick && !forward) continue;
                const std::vector<Case> cases = verification_cases(*puzzle.stage, quick);
                for (std::size_t k = 0; k < cases.size() && failure.empty(); ++k) {
                    on_step(cases[k].description(), static_cast<int>(k), static_cast<int>(cases.size()));
                    const std::string report = verify(device, stage, cases[k]).report;
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
