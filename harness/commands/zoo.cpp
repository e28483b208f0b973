/// @file
/// lab zoo: known-wrong kernels as puzzles. The symptom first; find the bug in the kernel.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "stages/errors.h"

#ifdef LADDER_HAS_CPU
#    include "harness/base/progress.h"
#    include "harness/course/check.h"
#    include "harness/course/zoo.h"
#endif

namespace fs = std::filesystem;

namespace ladder {
namespace {

struct ZooOptions {
    explicit ZooOptions(Command& command) {
        command.option("PUZZLE", puzzle, "The puzzle's number; without one, the list of puzzles")
            .type_name("");
        command.option("--dir", folder, "The folder of the puzzle (default: zoo-PUZZLE)").type_name("DIR");
        command.flag("--check", check, "Check the fix");
        command.flag("--give-up", give_up, "Say what the bug is, and show the fix");
    }
    std::optional<int> puzzle;
    std::string folder;
    bool check = false, give_up = false;
};

#ifdef LADDER_HAS_CPU

Document list() {
    Document document;
    Table table("puzzles", "",
                {{"puzzle", "puzzle", Align::right}, {"stage", "stage"}, {"symptom", "symptom"}});
    for (const Puzzle& puzzle : zoo())
        table.add_row({Cell::count(static_cast<std::uint64_t>(puzzle.number)), puzzle.stage->folder(),
                       puzzle.mutant.symptom});
    document.tables = {table};
    document.notes = {"lab zoo 3 makes the folder zoo-3 with the kernel of puzzle 3"};
    return document;
}

Document run(const ZooOptions& options) {
    if (!options.puzzle) {
        if (options.check || options.give_up || !options.folder.empty())
            throw BadUsage("name the puzzle: lab zoo PUZZLE");
        return list();
    }
    const Puzzle puzzle = find_puzzle(*options.puzzle);
    const fs::path folder = options.folder.empty() ? fmt::format("zoo-{}", puzzle.number) : options.folder;
    Document document;
    document.facts = {{"puzzle", fmt::format("{} of {}", puzzle.number, zoo().size())},
                      {"stage", puzzle.stage->folder()},
                      {"symptom", puzzle.mutant.symptom}};
    if (options.give_up) {
        document.facts.emplace_back("bug", puzzle.mutant.bug);
        document.listings.push_back({"bug", bug_as_diff(puzzle), "diff", nullptr});
        document.notes.emplace_back("the lines with - are right, those with + are the bug");
        return document;
    }
    if (!options.check) {
        const ProgressLine progress;
        start_puzzle(puzzle, folder);
        document.listings.push_back(
            {"report", first_failure(puzzle, folder, std::cref(progress)), "", nullptr});
        document.notes.push_back(fmt::format("find the bug in {}, fix it, then: lab zoo {} --check{}",
                                             (folder / "kernel.cu").string(), puzzle.number,
                                             options.folder.empty() ? "" : " --dir " + options.folder));
        return document;
    }
    if (!fs::exists(folder / "kernel.cu"))
        throw BadUsage(fmt::format("there is no {}: lab zoo {} makes it", (folder / "kernel.cu").string(),
                                   puzzle.number));
    const ProgressLine progress;
    const std::string failure = first_failure(puzzle, folder, std::cref(progress));
    if (failure.empty()) {
        document.facts.emplace_back("bug", puzzle.mutant.bug);
        document.notes.emplace_back("fixed");
    } else {
        document.listings.push_back({"report", failure, "", nullptr});
        document.failure = "still wrong";
    }
    return document;
}

#else

Document run(const ZooOptions&) {
    throw CannotRun("the zoo needs the race-checked CPU back-end, which this build does not have");
}

#endif

}  // namespace

void add_zoo(CommandLine& lab) {
    add_command<ZooOptions>(
        lab, "zoo", "Bugs as puzzles: see the symptom, find the bug in the kernel, check the fix", run);
}

}  // namespace ladder
