#include <fmt/format.h>

#include "harness/commands/commands.h"
#include "harness/commands/counting.h"
#include "harness/commands/options.h"
#include "harness/progress.h"
#include "harness/shape.h"

namespace ladder {
namespace {

constexpr Shape default_shape{.B = 1, .H = 2, .Hkv = 2, .Nq = 512, .Nk = 512, .d = 64};

struct Options {
    explicit Options(CLI::App& command) : stages(command), problem(command) {}

    StageOptions stages;
    CaseOptions problem;
};

Document run(const Options& options) {
    const auto stages = options.stages.selected();
    const Case c = options.problem.with_default(default_shape);
    const ProgressLine progress;
    const auto device = open_counting_device();
    require_memory(c.shape, *device);
    const WorkByStage work = count_work(*device, stages, c, std::cref(progress));

    Document document;
    document.facts = {{"backend", name(device->backend())}, {"case", c.description()}};
    document.tables.push_back(work_table(stages, work));
    if (const Table changes = change_table(stages, work); !changes.rows().empty())
        document.tables.push_back(changes);
    std::size_t counted = 0;
    for (const Stage* stage : stages) {
        const std::string& why_not = work.at(stage->number).why_not;
        counted += why_not.empty();
        if (!why_not.empty())
            document.notes.push_back(fmt::format("{} was not counted: {}", stage->folder(), why_not));
    }
    if (counted == 0) throw CannotRun(document.notes.front());
    return document;
}

}  // namespace

void add_count(CLI::App& lab) {
    add_command(lab, "count", "The work that stages do, and what each changes against its parent", run);
}

}  // namespace ladder
