#include "harness/count/counting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "harness/device/workspace.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/verify/guarded_run.h"
#include "harness/verify/parts.h"
#ifdef LADDER_HAS_CPU
#    include "simt/simt.h"
#endif

namespace ladder {
namespace {

// The counters of the back-end and the workspace, as one list.
template <class F>
void for_each_counter(F&& f) {
    for (const auto& field : simt::counter_fields) {
        f(field.name, [&field](const Work& w) { return w.counters.*field.value; });
    }
    f("workspace_bytes", [](const Work& w) { return static_cast<std::uint64_t>(w.workspace_bytes); });
    f("messages", [](const Work& w) { return w.messages; });
    f("sent_bytes", [](const Work& w) { return w.sent_bytes; });
    f("exposed_bytes", [](const Work& w) { return w.exposed_bytes; });
    f("busiest_products", [](const Work& w) { return w.busiest_products; });
}

void add_traffic(Work& work, const std::vector<Traffic>& ranks) {
    std::vector<std::uint64_t> busiest;
    for (const Traffic& rank : ranks) {
        work.messages = std::max(work.messages, rank.messages);
        work.sent_bytes = std::max(work.sent_bytes, rank.bytes);
        work.exposed_bytes = std::max(work.exposed_bytes, rank.exposed_bytes);
        busiest.resize(std::max(busiest.size(), rank.products.size()));
        for (std::size_t t = 0; t < rank.products.size(); ++t)
            busiest[t] = std::max(busiest[t], rank.products[t]);
    }
    work.busiest_products = std::accumulate(busiest.begin(), busiest.end(), std::uint64_t{0});
}

bool counted(const Change& change) {
    return change.before.why_not.empty() && change.after.why_not.empty();
}

}  // namespace

void take_turns([[maybe_unused]] Device& device, [[maybe_unused]] const Stage& stage,
                [[maybe_unused]] const Case& c) {
#ifdef LADDER_HAS_CPU
    const int multiprocessors = c.multiprocessors > 0 ? c.multiprocessors : device.sm_count();
    simt::options().blocks_in_turns = device.ready(stage).counter_bytes ? std::min(multiprocessors, 32) : 0;
#endif
}

void note_work(Work& work, Device& device, const Stage& stage, const Case& c) {
    work.counters = device.counters();
    work.workspace_bytes =
        Workspace::bytes(device, stage, part_case(stage, c, 0).shape, c.features.ranks);  // the largest part
    if (c.features.ranks > 1) add_traffic(work, device.traffic());
}

Work count_work(Device& device, const Stage& stage, const Case& c, const Inputs& inputs) {
    Work work;
#ifdef LADDER_HAS_CPU
    const simt::KeptOptions kept;
#endif
    try {
        if (!stage.has_head_dim(c.shape.d))
            throw CannotRun(fmt::format("it has no head dimension {}", c.shape.d));
        if (stage.pass != c.pass)
            throw CannotRun(stage.pass == Pass::forward ? "it computes attention, not its gradients"
                                                        : "it computes gradients, not attention");
        if (const std::string why_not = why_not_taken(stage, c); !why_not.empty()) throw CannotRun(why_not);
        take_turns(device, stage, c);
        run_stage(device, stage, c, inputs);
        note_work(work, device, stage, c);
    } catch (const CannotRun& error) {
        work.why_not = error.what();
    }
    return work;
}

CountedParent counted_parent(const Stage& stage, const Case& c) {
    const Stage* parent = parent_at(stage, c.shape.d);
    if (parent == nullptr || parent->pass != stage.pass) return {};
    Case without_pages = c;
    without_pages.features.page_size = 0;
    for (const Case& problem : {c, without_pages})
        if (why_not_taken(*parent, problem).empty()) return {parent, problem};
    return {};
}

std::vector<Change> count_changes(Device& device, const std::vector<const Stage*>& stages,
                                  const std::function<Case(const Stage&)>& problem_of,
                                  const OnStep& on_step) {
    // Stages share problems and parents, so each is made and run once.
    std::map<std::string, Inputs> inputs;
    std::map<std::pair<std::string, std::string>, Work> counted_before;
    const auto work_of = [&](const Stage& stage, const Case& c) -> const Work& {
        const std::string key = description_of(c);
        const auto known = counted_before.find({stage.folder(), key});
        if (known != counted_before.end()) return known->second;
        if (!inputs.contains(key)) inputs.emplace(key, make_inputs(c));
        return counted_before[{stage.folder(), key}] = count_work(device, stage, c, inputs.at(key));
    };
    std::vector<Change> changes;
    for (const Stage* stage : stages) {
        on_step("count " + stage->folder(), static_cast<int>(changes.size()),
                static_cast<int>(stages.size()));
        Change change{stage, nullptr, problem_of(*stage), {}, {}};
        change.problem.pass = stage->pass;
        const auto [parent, problem] = counted_parent(*stage, change.problem);
        change.parent = parent;
        if (parent != nullptr) change.before = work_of(*parent, problem);
        change.after = work_of(*stage, change.problem);
        changes.push_back(std::move(change));
    }
    return changes;
}

Case telling_case(const Stage& stage) {
    const std::string regime = stage.shows_in;
    Case c;
    c.shape = Shape{.B = 1, .H = 2, .Hkv = 2, .Nq = 512, .Nk = 512, .d = 64};
    if (regime == "decode") c.shape = Shape{.B = 1, .H = 8, .Hkv = 2, .Nq = 1, .Nk = 2048, .d = 64};
    if (regime == "draft") c.shape = Shape{.B = 1, .H = 8, .Hkv = 2, .Nq = 4, .Nk = 2048, .d = 64};
    if (regime == "batch") c.shape = Shape{.B = 15, .H = 8, .Hkv = 2, .Nq = 1, .Nk = 512, .d = 64};
    if (regime.ends_with("wide")) c.shape.d = 256;
    if (!stage.has_head_dim(c.shape.d)) c.shape.d = stage.head_dims.front();
    c.pass = stage.pass;
    if (const Regime* family = regime_named(regime)) {
        for (const FeatureInfo* info : in_use_of(family->problems.front().features))
            if (info->put_small != nullptr) info->put_small(c);
    }
    if (takes(stage, Feature::ranks)) {
        c.features.ranks = 4;
        if (stage.divides_rows) c.shape.Nq = c.shape.Nk = 1024;
    }
    c.causal = regime == "causal" || regime.ends_with("wide") || c.features.ranks > 1;
    return c;
}

Table work_table(const std::vector<Change>& changes) {
    std::vector<Column> columns{{"counter", ""}};
    for (const Change& change : changes) {
        columns.push_back({change.stage->folder(), change.stage->folder(), Align::right});
    }
    Table table("work", "Work counted", columns);
    for_each_counter([&](const char* counter, const auto& of) {
        const auto is_0 = [&](const Change& change) { return of(change.after) == 0; };
        if (std::all_of(changes.begin(), changes.end(), is_0)) return;
        std::vector<Cell> row{{Value(std::string(counter)), in_words(counter)}};
        for (const Change& change : changes) {
            row.push_back(change.after.why_not.empty() ? Cell::count(of(change.after))
                                                       : Cell(Value(), "-", Tone::faint));
        }
        table.add_row(std::move(row));
    });
    return table;
}

Table change_table(const std::vector<Change>& changes) {
    Table table("changes", "What each stage changes against its parent",
                {{"stage", "stage"},
                 {"parent", "parent", Align::left, true},
                 {"counter", "counter"},
                 {"before", "parent's", Align::right},
                 {"after", "its own", Align::right},
                 {"factor", "factor", Align::right}});
    for (const Change& change : changes) {
        if (change.parent == nullptr || !counted(change)) continue;
        bool first = true;
        const Table own = change_table(change);
        for (const auto& row : own.rows()) {
            const auto shown = [&](const Stage& s) {
                return Cell(Value(s.folder()), first ? s.folder() : "");
            };
            table.add_row({shown(*change.stage), shown(*change.parent), row[0], row[1], row[2], row[3]});
            first = false;
        }
    }
    return table;
}

Table change_table(const Change& change) {
    Table table("changes", "",
                {{"counter", "counter"},
                 {"before", change.parent->folder(), Align::right},
                 {"after", change.stage->folder(), Align::right},
                 {"factor", "factor", Align::right}});
    for_each_counter([&](const char* counter, const auto& of) {
        const std::uint64_t before = of(change.before), after = of(change.after);
        if (before == after) return;
        const double factor = static_cast<double>(after) / static_cast<double>(before);
        table.add_row(
            {{Value(std::string(counter)), in_words(counter)},
             Cell::count(before),
             Cell::count(after),
             before == 0 ? Cell(Value(), "new") : Cell(Value(factor), fmt::format("x{:.4g}", factor))});
    });
    return table;
}

std::string unchanged_counters(const Change& change) {
    std::vector<std::string> unchanged;
    for_each_counter([&](const char* counter, const auto& of) {
        if (of(change.before) == of(change.after) && of(change.after) != 0)
            unchanged.push_back(in_words(counter));
    });
    return fmt::format("{}", fmt::join(unchanged, ", "));
}

}  // namespace ladder
