#include "harness/report/diff.h"

#include <fmt/format.h>

#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "harness/ladder/ladder.h"

namespace ladder {
namespace {

struct DiffOptions {
    explicit DiffOptions(Command& command) {
        command
            .option("STAGE", stages,
                    "One stage, to compare with its parent; or two, to compare the second with the first")
            .required()
            .expected(1, 2);
    }

    std::vector<std::string> stages;
};

Printout run(const DiffOptions& options) {
    const Stage& to = select_stage(options.stages.back());
    const Stage* from =
        options.stages.size() == 2 ? &select_stage(options.stages.front()) : find_stage(to.parent);
    if (from == nullptr) throw BadUsage(fmt::format("{} has no parent; name two stages", to.folder()));

    const std::string diff = diff_kernels(*from, to);
    const int lines = count_changed_lines(*from, to);
    const bool bounded = from->number == to.parent && to.diff_budget > 0;
    Printout printout;
    printout.data = {{"from", from->folder()},
                     {"to", to.folder()},
                     {"changed_lines", std::int64_t{lines}},
                     {"budget", bounded ? Value(std::int64_t{to.diff_budget}) : Value()}};
    printout.listings.push_back({"diff", diff, "diff", colour_diff});
    printout.notes.push_back(fmt::format("{} -> {}: {} added or changed, {}", from->folder(), to.folder(),
                                         counted(lines, "line"),
                                         bounded ? fmt::format("budget {}", to.diff_budget) : "no budget"));
    return printout;
}

}  // namespace

void add_diff(CommandLine& lab) {
    add_command<DiffOptions>(lab, "diff", "Show what a stage changes: diff -u of two kernels", run);
}

}  // namespace ladder
