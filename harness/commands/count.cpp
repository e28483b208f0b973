#include <fmt/format.h>

#include "harness/base/progress.h"
#include "harness/commands/commands.h"
#include "harness/commands/cpu_time.h"
#include "harness/commands/options.h"
#include "harness/count/counting.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/problem/shape.h"

namespace ladder {
namespace {

constexpr Shape counted_shape{.B = 1, .H = 2, .Hkv = 2, .Nq = 512, .Nk = 512, .d = 64};

struct CountOptions {
    explicit CountOptions(Command& command)
        : stages(command, "all by default"), problem(command), lengthy(command) {
        add_ranks(command, ranks, "1");
    }

    StageOptions stages;
    CaseOptions problem;
    LongOption lengthy;
    int ranks = 0;
};

Printout run(const CountOptions& options) {
    Case c = options.problem.with_default(counted_shape);
    c.features.ranks = std::max(1, options.ranks);
    const auto selected = options.stages.selected();  // a wrong name is wrong on every machine
    require_ranks(selected, options.ranks);
    const auto device = open_counting_device();
    for (const Stage* stage : selected) {
        require_taken(*stage, c);
        require_memory(c.shape, *device, stage->pass);
    }
    CpuTime time;
    for (const Stage* stage : with_parents(selected)) time.add_run(*device, *stage, c.shape);
    options.lengthy.require_patience(time);
    const ProgressLine progress;
    compile_stages(with_parents(selected), device->backend(), std::cref(progress));
    BlockProgress blocks(progress);
    const auto changes = count_changes(
        *device, selected, [&](const Stage&) { return c; }, std::ref(blocks));

    Printout printout;
    printout.facts = {
        {"backend", name(device->backend())},
        {"case", changes.empty() ? description_of(c) : description_of(changes.front().problem)}};
    printout.tables = {work_table(changes), change_table(changes)};
    if (printout.tables.back().rows().empty()) printout.tables.pop_back();
    std::size_t counted = 0;
    for (const Change& change : changes) {
        const std::string& why_not = change.after.why_not;
        counted += why_not.empty();
        if (!why_not.empty()) {
            printout.notes.push_back(fmt::format("{} was not counted: {}", change.stage->folder(), why_not));
        } else if (change.parent != nullptr && change.before == change.after) {
            printout.notes.push_back(
                fmt::format("{} changes nothing on this problem; its change shows in: {}",
                            change.stage->folder(), change.stage->shows_in));
        }
    }
    if (counted == 0) throw CannotRun(printout.notes.front());
    return printout;
}

}  // namespace

void add_count(CommandLine& lab) {
    add_command<CountOptions>(lab, "count", "Count the work of stages, and compare each with its parent",
                              run);
}

}  // namespace ladder
