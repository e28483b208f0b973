/// @file
/// lab zoo: known-wrong kernels as puzzles. The symptom first; find the bug in the kernel.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "course/commands/commands.h"
#include "course/zoo.h"
#include "harness/base/progress.h"
#include "harness/base/terminal.h"
#include "harness/report/diff.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

struct ZooOptions {
    explicit ZooOptions(Command& command) {
        command.option("PUZZLE", puzzle, "The puzzle's number; without one, the list of puzzles")
            .type_name("");
        command.option("--dir", folder, "The folder of the puzzle (default: zoo-PUZZLE)").type_name("DIR");
        command.flag("--all", all, "List all puzzles, not only those to start with");
        const Argument checks = command.flag("--check", check, "Check the fix");
        command.flag("--hint", hint, "Print the next hint").excludes(checks);
        command.flag("--give-up", give_up, "Say what the bug is, and show the fix").excludes(checks);
    }
    std::optional<int> puzzle;
    std::string folder;
    bool all = false, check = false, hint = false, give_up = false;
};

/// One with hints, of the first part's stages
bool is_to_start_with(const Puzzle& puzzle) {
    return !puzzle.mutant.hints.empty() && puzzle.stage->number < 10;
}

Printout list(bool all) {
    const std::vector<Puzzle> puzzles = zoo();
    const std::set<std::string> solved = solved_puzzles(".");
    Printout printout;
    const auto add_table = [&](const std::string& difficulty, const std::string& title) {
        Table table(title, title,
                    {{"puzzle", "puzzle", Align::right},
                     {"solved", "solved"},
                     {"stage", "stage", Align::right},
                     {"symptom", "symptom"}});
        for (const Puzzle& puzzle : puzzles) {
            if (puzzle.mutant.difficulty != difficulty || (!all && !is_to_start_with(puzzle))) continue;
            const bool is_solved = solved.contains(puzzle.id);
            table.add_row({Cell::count(static_cast<std::uint64_t>(puzzle.number)),
                           {Value(is_solved), is_solved ? "yes" : "", Tone::good},
                           {Value(puzzle.stage->folder()), fmt::format("{:02}", puzzle.stage->number)},
                           puzzle.mutant.symptom});
        }
        if (!table.rows().empty()) printout.tables.push_back(table);
    };
    for (const std::string& difficulty : difficulties()) add_table(difficulty, difficulty);
    if (all) add_table("", "others");
    const auto others = std::count_if(puzzles.begin(), puzzles.end(), std::not_fn(is_to_start_with));
    printout.notes = {lab_command({"zoo", "3"}) + " makes the folder zoo-3 with the kernel of puzzle 3"};
    if (!all)
        printout.notes.push_back(
            fmt::format("{} lists {} more, of all stages", lab_command({"zoo", "--all"}), others));
    return printout;
}

std::string give_up_command(const Puzzle& puzzle) {
    return lab_command({"zoo", std::to_string(puzzle.number), "--give-up"});
}

Printout give_hint(const Puzzle& puzzle, PuzzleFolder folder) {
    const std::vector<std::string>& hints = puzzle.mutant.hints;
    const int count = static_cast<int>(hints.size());
    if (count == 0) throw CannotRun(fmt::format("there are no hints for puzzle {}", puzzle.number));
    const bool all_given = folder.hints >= count;
    folder.hints = std::min(folder.hints + 1, count);
    save(folder);
    Printout printout;
    printout.facts = {{"hint", fmt::format("{} of {} for puzzle {}", folder.hints, count, puzzle.number)}};
    printout.listings.push_back(
        {"hint", hints[static_cast<std::size_t>(folder.hints - 1)] + "\n", "", nullptr, Lines::prose});
    if (all_given)
        printout.notes.push_back(
            fmt::format("that was the last hint; {} shows the fix", give_up_command(puzzle)));
    return printout;
}

Printout check(const Puzzle& puzzle, PuzzleFolder folder, Printout printout) {
    const ProgressLine progress;
    const std::string failure = first_failure(puzzle, folder, std::cref(progress));
    if (failure.empty()) {
        folder.solved = true;
        save(folder);
        printout.facts.emplace_back("bug", puzzle.mutant.bug);
        const std::vector<Puzzle> puzzles = zoo();
        const auto next = std::find_if(puzzles.begin(), puzzles.end(), [&](const Puzzle& p) {
            return p.number > puzzle.number && is_to_start_with(p);
        });
        printout.notes.emplace_back(
            next == puzzles.end() ? "fixed"
                                  : "fixed; next: " + lab_command({"zoo", std::to_string(next->number)}));
    } else {
        printout.listings.push_back({"report", failure, "", nullptr, Lines::wrapped});
        printout.failure = "still wrong";
    }
    return printout;
}

Printout run(const ZooOptions& options) {
    if (!options.puzzle) {
        if (options.check || options.hint || options.give_up || !options.folder.empty())
            throw BadUsage("name the puzzle: " + lab_command({"zoo", "PUZZLE"}));
        return list(options.all);
    }
    const Puzzle puzzle = find_puzzle(*options.puzzle);
    const fs::path path = options.folder.empty() ? default_folder(puzzle) : fs::path(options.folder);
    if (options.hint) return give_hint(puzzle, open_puzzle_folder(puzzle, path));
    Printout printout;
    printout.facts = {{"puzzle", fmt::format("{} of {}", puzzle.number, zoo().size())},
                      {"stage", puzzle.stage->folder()},
                      {"symptom", puzzle.mutant.symptom},
                      {"to fix", counted(places_of(puzzle), "place") + " in the kernel"}};
    if (options.give_up) {
        printout.facts.emplace_back("bug", puzzle.mutant.bug);
        printout.listings.push_back({"fix", fix_as_diff(puzzle), "diff", colour_diff});
        printout.notes.emplace_back("the lines with - are the bug, those with + are right");
        return printout;
    }
    if (options.check) return check(puzzle, open_puzzle_folder(puzzle, path), printout);
    const ProgressLine progress;
    const PuzzleFolder folder = start_puzzle(puzzle, path);
    printout.listings.push_back(
        {"report", first_failure(puzzle, folder, std::cref(progress)), "", nullptr, Lines::wrapped});
    printout.notes.push_back(fmt::format("find the bug in {}, fix it, then: {}", folder.kernel().string(),
                                         zoo_command(puzzle, path, "--check")));
    printout.notes.push_back(puzzle.mutant.hints.empty()
                                 ? fmt::format("to see the fix: {}", give_up_command(puzzle))
                                 : fmt::format("stuck: {}", zoo_command(puzzle, path, "--hint")));
    return printout;
}

}  // namespace

void add_zoo(CommandLine& lab) {
    add_course_command<ZooOptions>(lab, "zoo", run);
}

}  // namespace ladder
