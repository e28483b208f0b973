#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "harness/base/progress.h"
#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "harness/features/features.h"
#include "harness/ladder/library.h"
#include "harness/problem/shape.h"
#include "harness/trace/page.h"
#include "harness/trace/trace.h"
#include "harness/trace/trace_json.h"

namespace ladder {
namespace {

constexpr Shape traced_shape{.B = 1, .H = 2, .Hkv = 2, .Nq = 512, .Nk = 512, .d = 64};

struct TraceOptions {
    explicit TraceOptions(Command& app) : command(app), problem(app) {
        app.option("STAGE", stages, "One stage, or two to compare: numbers or names")
            .required()
            .expected(1, 2);
        app.option("--sms", multiprocessors,
                   "SMs of the simulated GPU; stages from 06 on split the keys accordingly")
            .within(1, most_multiprocessors)
            .show_default();
        app.option("--html", html, "Write the page to FILE [trace_STAGES.html here, unless --json is given]")
            .type_name("FILE");
    }

    Command command;
    CaseOptions problem;
    std::vector<std::string> stages;
    int multiprocessors = 4;
    std::string html;
};

// The problem that is shown. Throws BadUsage for one whose rows cannot be told by their addresses.
Case shown_case(const TraceOptions& options, const Shape& usual) {
    const Case c = options.problem.with_default(usual);
    if (!c.features.documents.empty())
        throw BadUsage("packed documents have no common grid of tiles, so none is drawn");
    if (c.features.has_cache()) throw BadUsage("requests of different lengths, or in pages, are not drawn");
    if (c.layout == Layout::far)
        throw BadUsage(
            "--layout far is for lab verify, lab run and lab count: its rows are too far apart to draw");
    return c;
}

std::vector<const Stage*> selected_stages(const TraceOptions& options) {
    std::vector<const Stage*> selected;
    for (const std::string& word : options.stages) {
        for (const Stage* stage : select_stages({word})) selected.push_back(stage);
    }
    if (selected.size() > 2) throw BadUsage("lab trace shows one stage, or two side by side");
    return selected;
}

// Where the page goes; nowhere if only the JSON is wanted.
std::string page_path(const TraceOptions& options, const std::vector<const Stage*>& stages) {
    if (!options.html.empty() || options.command.given("--json")) return options.html;
    std::string path = "trace";
    for (const Stage* stage : stages) {
        const bool is_own = stage != find_stage(stage->number);
        path += "_" + (is_own ? stage->name : fmt::format("{:02}", stage->number));
    }
    return path + ".html";
}

Table summary(const std::vector<Trace>& traces, int d) {
    Table table("traces", "Recorded, and verified",
                {{"stage", "stage"},
                 {"kernels", "kernels", Align::right},
                 {"blocks", "blocks", Align::right},
                 {"tiles", "tiles visited", Align::right},
                 {"masked_tiles", "masked", Align::right},
                 {"end", "time in the model", Align::right}});
    for (const Trace& trace : traces) {
        const double end = static_cast<double>(trace.end()) / d;
        table.add_row({trace.stage->folder(),
                       Cell::count(trace.counters.launches),
                       Cell::count(trace.counters.blocks),
                       Cell::count(trace.counters.tiles),
                       Cell::count(trace.counters.masked_tiles),
                       {end, fmt::format("{:.4g}", end)}});
    }
    return table;
}

Printout run(const TraceOptions& options) {
    const Case c = shown_case(options, traced_shape);
    const auto stages = selected_stages(options);
    for (const Stage* stage : stages) {
        require_taken(*stage, c);
        if (!stage->has_head_dim(c.shape.d)) {
            throw BadUsage(fmt::format("{} has no head dimension {}; it has {}", stage->folder(), c.shape.d,
                                       fmt::join(stage->head_dims, ", ")));
        }
    }
    require_traceable(c.shape);
    const std::string path = page_path(options, stages);
    const std::optional<OutputFile> page = path.empty() ? std::nullopt : std::optional<OutputFile>(path);
    const auto device = open_device(Backend::cpu);
    for (const Stage* stage : stages) require_memory(c.shape, *device, stage->pass);
    const ProgressLine progress;
    compile_stages(stages, device->backend(), std::cref(progress));
    std::vector<Trace> traces;
    for (const Stage* stage : stages) {
        progress("trace " + stage->folder(), static_cast<int>(traces.size()),
                 static_cast<int>(stages.size()));
        traces.push_back(record_trace(*device, *stage, c, options.multiprocessors));
    }
    const auto json = to_json(c, options.multiprocessors, traces);
    if (page) page->write(explorer_page(json));

    Printout printout;
    printout.facts = {{"case", description_of(c)},
                      {"multiprocessors", Cell::count(static_cast<std::uint64_t>(options.multiprocessors))}};
    if (page) printout.facts.emplace_back("page", path + " (open it in a browser)");
    printout.tables = {summary(traces, c.shape.d)};
    printout.notes = {
        "time is modelled by counting mma, in units of the products of 16 query rows and 64 keys; see "
        "docs/explorer.md"};
    printout.save = [json](const OutputFile& file) { file.write(json.dump() + "\n"); };
    return printout;
}

}  // namespace

void add_trace(CommandLine& lab) {
    add_command<TraceOptions>(lab, "trace",
                              "Write a page that steps through what blocks and warps do, tile by tile", run);
}

}  // namespace ladder
