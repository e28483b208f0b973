#include "course/zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "harness/base/file.h"
#include "harness/base/json.h"
#include "harness/base/terminal.h"
#include "harness/cases/verification_cases.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/case.h"
#include "harness/report/diff.h"
#include "simt/simt.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

constexpr double run_limit_s = 10;

fs::path state_file(const fs::path& folder) {
    return folder / ".lab" / "puzzle.json";
}

/// Throws BadUsage if there is none that can be read.
PuzzleFolder read_state(const fs::path& folder) {
    const fs::path file = state_file(folder);
    try {
        const auto json = read_json(file);
        return {folder, json.at("puzzle").get<std::string>(), json.at("hints").get<int>(),
                json.at("solved").get<bool>()};
    } catch (const nlohmann::json::exception&) {
        throw BadUsage(fmt::format("cannot read {}", file.string()));
    }
}

/// Where it stands among the puzzles: difficulty by difficulty, and at the end those that have none.
std::ptrdiff_t rank(const Puzzle& puzzle) {
    const auto& names = difficulties();
    return std::find(names.begin(), names.end(), puzzle.mutant.difficulty) - names.begin();
}

}  // namespace

std::vector<Puzzle> zoo() {
    const fs::path sources = source_folder() / "stages";
    std::vector<Puzzle> puzzles;
    for (const Stage& stage : stages()) {
        for (const fs::path& file : mutant_files(sources / stage.folder()))
            puzzles.push_back({0, stage.folder() + "/" + file.stem().string(), &stage, read_mutant(file)});
    }
    std::stable_sort(puzzles.begin(), puzzles.end(),
                     [](const Puzzle& a, const Puzzle& b) { return rank(a) < rank(b); });
    int number = 0;
    for (Puzzle& puzzle : puzzles) puzzle.number = ++number;
    return puzzles;
}

Puzzle find_puzzle(int number) {
    const std::vector<Puzzle> all = zoo();
    if (number < 1 || number > static_cast<int>(all.size()))
        throw BadUsage(fmt::format("there is no puzzle {}; there are 1 to {}", number, all.size()));
    return all[static_cast<std::size_t>(number - 1)];
}

std::string fix_as_diff(const Puzzle& puzzle) {
    const std::string right = kernel_text(*puzzle.stage);
    return diff_texts(wrong_kernel(right, puzzle.mutant), "zoo/kernel.cu", right,
                      puzzle.stage->folder() + "/kernel.cu");
}

int places_of(const Puzzle& puzzle) {
    int places = 0;
    std::istringstream lines(fix_as_diff(puzzle));
    bool header = true, was_changed = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("@@")) header = false;
        const bool changed = !header && (line.starts_with('-') || line.starts_with('+'));
        places += changed && !was_changed;
        was_changed = changed;
    }
    return places;
}

fs::path default_folder(const Puzzle& puzzle) {
    return fmt::format("zoo-{}", puzzle.number);
}

std::string zoo_command(const Puzzle& puzzle, const fs::path& folder, const std::string& option) {
    std::vector<std::string> words{"zoo", std::to_string(puzzle.number)};
    if (!option.empty()) words.push_back(option);
    if (folder != default_folder(puzzle)) words.insert(words.end(), {"--dir", folder.string()});
    return lab_command(words);
}

PuzzleFolder start_puzzle(const Puzzle& puzzle, const fs::path& path) {
    require_new_folder(
        path, fmt::format("; {} looks at it, --dir names another", zoo_command(puzzle, path, "--check")));
    const std::string kernel = wrong_kernel(kernel_text(*puzzle.stage), puzzle.mutant);
    const PuzzleFolder folder{path, puzzle.id};
    std::error_code error;
    fs::create_directories(state_file(path).parent_path(), error);
    if (error) throw BadUsage(fmt::format("cannot make {}: {}", path.string(), error.message()));
    OutputFile(folder.kernel()).write(kernel);
    save(folder);
    return folder;
}

PuzzleFolder open_puzzle_folder(const Puzzle& puzzle, const fs::path& path) {
    if (const fs::path kernel = path / "kernel.cu"; !fs::exists(kernel))
        throw BadUsage(
            fmt::format("there is no {}: {} makes it", kernel.string(), zoo_command(puzzle, path)));
    if (!fs::exists(state_file(path))) throw BadUsage(fmt::format("{} is no puzzle's folder", path.string()));
    const PuzzleFolder folder = read_state(path);
    if (folder.puzzle != puzzle.id)
        throw BadUsage(
            fmt::format("{} is the folder of another puzzle than {}", path.string(), puzzle.number));
    return folder;
}

void save(const PuzzleFolder& folder) {
    const nlohmann::ordered_json json{
        {"puzzle", folder.puzzle}, {"hints", folder.hints}, {"solved", folder.solved}};
    OutputFile(state_file(folder.path)).write(json.dump(2) + "\n");
    ignore_in_git(folder.path);
}

std::set<std::string> solved_puzzles(const fs::path& parent) {
    std::set<std::string> solved;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(parent, none)) {
        if (!fs::exists(state_file(entry.path()), none)) continue;
        if (const PuzzleFolder folder = read_state(entry.path()); folder.solved) solved.insert(folder.puzzle);
    }
    return solved;
}

std::string first_failure(const Puzzle& puzzle, const PuzzleFolder& folder, const OnStep& on_step) {
    on_step("build", 0, 1);
    const fs::path path = fs::absolute(folder.path).lexically_normal();
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
        std::vector<Case> quick_cases = verification_cases(*puzzle.stage, Cover::each);
        quick_cases.insert(quick_cases.begin(), puzzle.mutant.problem);
        const std::vector<Case> all_cases = verification_cases(*puzzle.stage, Cover::pairs);
        const int steps = static_cast<int>(4 * quick_cases.size() + all_cases.size());
        int done = 0;
        for (const auto order :
             {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled, simt::Order::delayed}) {
            simt::options().order = order;
            const bool forward = order == simt::Order::forward;
            for (const bool quick : {true, false}) {
                if (!quick && !forward) continue;
                const std::vector<Case>& cases = quick ? quick_cases : all_cases;
                for (std::size_t k = 0; k < cases.size() && failure.empty(); ++k) {
                    on_step(description_of(cases[k]), done++, steps);
                    const bool own = quick && k == 0;
                    const Verdict verdict = own ? kernel->verify(puzzle.mutant) : kernel->verify(cases[k]);
                    const std::string& report = verdict.report;
                    if (!report.empty()) failure = fmt::format("{}\n{}\n", description_of(cases[k]), report);
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
