#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <mutex>

#include "harness/base/progress.h"
#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "harness/count/counting.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/problem/shape.h"
#ifdef LADDER_HAS_CPU
#    include "simt/simt.h"
#endif

namespace ladder {
namespace {

constexpr Shape counted_shape{.B = 1, .H = 2, .Hkv = 2, .Nq = 512, .Nk = 512, .d = 64};

struct CountOptions {
    explicit CountOptions(Command& command) : stages(command, "all by default"), problem(command) {}

    StageOptions stages;
    CaseOptions problem;
};

// Says of each stage that is counted how many of its blocks have run: of a large problem there are many.
class BlockProgress {
  public:
    explicit BlockProgress(const ProgressLine& progress) : progress_(progress) {
#ifdef LADDER_HAS_CPU
        simt::options().on_block = [this](std::uint64_t, const simt::Counters&) { on_block(); };
#endif
    }

    void operator()(const std::string& what, int done, int total) {
        const std::lock_guard lock(mutex_);
        what_ = what, done_ = done, total_ = total, blocks_ = 0;
        progress_(what_, done_, total_);
    }

  private:
    using Clock = std::chrono::steady_clock;

    // Workers call it, several at a time.
    void on_block() {
        const std::lock_guard lock(mutex_);
        blocks_ += 1;
        if (Clock::now() - shown_ < std::chrono::milliseconds(100)) return;
        shown_ = Clock::now();
        progress_(fmt::format("{}, {} blocks done", what_, with_separators(blocks_)), done_, total_);
    }

    const ProgressLine& progress_;
#ifdef LADDER_HAS_CPU
    const simt::KeptOptions kept_;
#endif
    std::mutex mutex_;
    std::string what_;
    int done_ = 0, total_ = 1;
    std::uint64_t blocks_ = 0;
    Clock::time_point shown_ = Clock::now();
};

Document run(const CountOptions& options) {
    const Case c = options.problem.with_default(counted_shape);
    const auto selected = options.stages.selected();  // a wrong name is wrong on every machine
    const auto device = open_counting_device();
    for (const Stage* stage : selected) require_memory(c.shape, *device, stage->pass);
    const ProgressLine progress;
    compile_stages(with_parents(selected), device->backend(), std::cref(progress));
    BlockProgress blocks(progress);
    const auto changes = count_changes(
        *device, selected, [&](const Stage&) { return c; }, std::ref(blocks));

    Document document;
    document.facts = {{"backend", name(device->backend())},
                      {"case", changes.empty() ? c.description() : changes.front().problem.description()}};
    document.tables = {work_table(changes), change_table(changes)};
    if (document.tables.back().rows().empty()) document.tables.pop_back();
    std::size_t counted = 0;
    for (const Change& change : changes) {
        const std::string& why_not = change.after.why_not;
        counted += why_not.empty();
        if (!why_not.empty()) {
            document.notes.push_back(fmt::format("{} was not counted: {}", change.stage->folder(), why_not));
        } else if (change.parent != nullptr && change.before == change.after) {
            document.notes.push_back(
                fmt::format("{} changes nothing on this problem; its change shows in: {}",
                            change.stage->folder(), change.stage->shows_in));
        }
    }
    if (counted == 0) throw CannotRun(document.notes.front());
    return document;
}

}  // namespace

void add_count(CommandLine& lab) {
    add_command<CountOptions>(lab, "count",
                              "The work that stages do, and what each changes against its parent", run);
}

}  // namespace ladder
