#include "harness/commands/counting.h"

#include <fmt/format.h>

#include <set>

#include "harness/commands/options.h"

namespace ladder {
namespace {

// The counters of the back-end and the workspace, as one list.
template <class F>
void for_each_counter(F&& f) {
    for (const auto& field : simt::counter_fields) {
        f(field.name, [&field](const Work& w) { return w.counters.*field.value; });
    }
    f("workspace_bytes", [](const Work& w) { return static_cast<std::uint64_t>(w.workspace_bytes); });
}

Work work_of(Device& device, const Stage& stage, const Case& c, const Inputs& inputs) {
    Work work;
    try {
        if (!stage.has_head_dim(c.shape.d))
            throw CannotRun(fmt::format("it has no head dimension {}", c.shape.d));
        run_stage(device, stage, c, inputs);
        work.counters = device.counters();
        if (stage.workspace_bytes) work.workspace_bytes = stage.workspace_bytes(c.shape, device.sm_count());
    } catch (const CannotRun& error) {
        work.why_not = error.what();
    }
    return work;
}

// "barriers" for a counter called "barriers", "global load bytes" for "global_load_bytes"
std::string words(std::string name) {
    for (char& c : name) c = c == '_' ? ' ' : c;
    return name;
}

}  // namespace

WorkByStage count_work(Device& device, const std::vector<const Stage*>& stages, const Case& c,
                       const Progress& progress) {
    std::set<int> numbers;
    for (const Stage* stage : stages) {
        numbers.insert(stage->number);
        if (find_stage(stage->parent) != nullptr) numbers.insert(stage->parent);
    }
    const Inputs inputs = make_inputs(c);
    WorkByStage work;
    for (const int number : numbers) {
        const Stage& stage = *find_stage(number);
        progress("count " + stage.folder(), static_cast<int>(work.size()), static_cast<int>(numbers.size()));
        work[number] = work_of(device, stage, c, inputs);
    }
    return work;
}

Table work_table(const std::vector<const Stage*>& stages, const WorkByStage& work) {
    std::vector<Column> columns{{"counter", ""}};
    for (const Stage* stage : stages) columns.push_back({stage->folder(), stage->folder(), Align::right});
    Table table("work", "Work counted", columns);
    for_each_counter([&](const char* counter, const auto& of) {
        std::vector<Cell> row{{Value(std::string(counter)), words(counter)}};
        for (const Stage* stage : stages) {
            const Work& w = work.at(stage->number);
            row.push_back(w.why_not.empty() ? Cell::count(of(w)) : Cell(Value(), "-", Tone::faint));
        }
        table.add_row(std::move(row));
    });
    return table;
}

Table change_table(const std::vector<const Stage*>& stages, const WorkByStage& work) {
    Table table("changes", "What each stage changes against its parent",
                {{"stage", "stage"},
                 {"parent", "parent"},
                 {"counter", "counter"},
                 {"before", "parent's", Align::right},
                 {"after", "its own", Align::right},
                 {"factor", "factor", Align::right}});
    for (const Stage* stage : stages) {
        const auto parent = work.find(stage->parent);
        const Work& here = work.at(stage->number);
        if (parent == work.end() || !parent->second.why_not.empty() || !here.why_not.empty()) continue;
        bool first = true;
        for_each_counter([&](const char* counter, const auto& of) {
            const std::uint64_t before = of(parent->second), after = of(here);
            if (before == after) return;
            const double factor = static_cast<double>(after) / static_cast<double>(before);
            const auto shown = [&](const Stage& s) {
                return Cell(Value(s.folder()), first ? s.folder() : "");
            };
            table.add_row(
                {shown(*stage),
                 shown(*find_stage(stage->parent)),
                 {Value(std::string(counter)), words(counter)},
                 Cell::count(before),
                 Cell::count(after),
                 before == 0 ? Cell(Value(), "new") : Cell(Value(factor), fmt::format("x{:.3g}", factor))});
            first = false;
        });
    }
    return table;
}

std::unique_ptr<Device> open_counting_device() {
    return open_first({Backend::checked, Backend::cpu});
}

}  // namespace ladder
