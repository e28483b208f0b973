#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "harness/base/terminal.h"
#include "harness/cases/regimes.h"
#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "harness/count/counting.h"
#include "harness/device/device_problem.h"
#include "harness/features/features.h"
#include "harness/features/work.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/case.h"
#include "harness/problem/features.h"
#include "harness/problem/shape.h"
#include "harness/time/fastest.h"

namespace ladder {
namespace {

struct ListOptions {
    explicit ListOptions(Command& command) {
        command
            .option("--for", problem,
                    "The stages that recordings show fastest, and the default stage: for a regime (train), "
                    "or for "
                    "a shape B,H,Hkv,Nq,Nk,D: batch, query heads, key/value heads, query rows, keys, head "
                    "dimension")
            .type_name("PROBLEM");
        command.flag("--causal", causal, "With --for and a shape: causal mask, aligned bottom-right");
        command.flag("--backward", backward, "With --for and a shape: stages of the backward pass");
        command.option("--like", like, "With --for: estimates for another GPU, such as 4090")
            .type_name("GPU");
    }

    std::string problem, like;
    bool causal = false, backward = false;
};

Cell yes_or_no(bool value) {
    return {Value(value), value ? "yes" : "no"};
}

Cell number(double value, const char* format) {
    return {Value(value), fmt::format(fmt::runtime(format), value)};
}

// The kernel of a stage as recordings have it: "as it is", "changed since" or "never". Empty without
// recordings.
std::string recorded_as(const std::map<std::string, std::set<std::string>>& recorded, const Stage& stage) {
    if (recorded.empty()) return "";
    const auto found = recorded.find(stage.folder());
    if (found == recorded.end()) return "never";
    return found->second.contains(kernel_fingerprint(stage.folder())) ? "as it is" : "changed since";
}

// The stages that were timed on a recorded problem, the fastest first; those with a star were changed since.
Table recorded_table(const RecordedTimes& times, const std::string& key) {
    Table table(key,
                fmt::format("{}{}{}, {}: {}, {}", to_string(times.shape), times.causal ? " causal" : "",
                            times.pass == Pass::backward ? " backward" : "", name(times.dtype), times.gpu,
                            times.date),
                {{"stage", "stage"},
                 {"us", "us", Align::right},
                 {"tflops", "TFLOP/s", Align::right},
                 {"gbs", "GB/s", Align::right},
                 {"speed", "of the fastest", Align::right}});
    std::vector<std::pair<double, std::string>> by_time;
    for (const auto& [folder, ms] : times.median_ms) by_time.emplace_back(ms, folder);
    std::sort(by_time.begin(), by_time.end());
    std::set<std::string> changed;
    for (const Stage* stage : changed_since(times.kernels)) changed.insert(stage->folder());
    for (const auto& [ms, folder] : by_time) {
        table.add_row({Cell(Value(folder), folder + (changed.contains(folder) ? "*" : "")),
                       number(ms * 1e3, "{:.1f}"),
                       number(flops(times.shape, times.causal, times.pass) / ms * 1e-9, "{:.1f}"),
                       number(unavoidable_bytes(times.shape, times.pass) / ms * 1e-6, "{:.0f}"),
                       number(by_time.front().first / ms, "{:.2f}")});
    }
    return table;
}

// The default stage for a problem on Hopper, or on any other GPU.
Cell default_of(const ProblemLabel& problem, bool on_hopper) {
    const auto runs = [&](const Stage& stage) { return on_hopper || stage.compute_capability == 0; };
    const Stage* stage = DefaultStages(recorded_times(), runs).find(problem);
    return stage != nullptr ? Cell(stage->folder(), Tone::strong) : Cell(Value(), "none");
}

Printout fastest_for(const ProblemLabel& problem) {
    constexpr std::size_t shown = 2;
    Printout printout;
    printout.facts = {
        {"problem", fmt::format("{}{}{}", to_string(problem.shape), problem.causal ? " causal" : "",
                                problem.pass == Pass::backward ? " backward" : "")},
        {"default on Hopper", default_of(problem, true)},
        {"default elsewhere", default_of(problem, false)}};
    printout.data = {
        {"flops", flops(problem.shape, problem.causal, problem.pass)},
        {"bytes",
         counts_bytes(problem.shape) ? Value(unavoidable_bytes(problem.shape, problem.pass)) : Value()}};
    const auto near = nearest_to(problem, recorded_times(), shown);
    bool changed = false;
    for (std::size_t i = 0; i < near.size(); ++i) {
        printout.tables.push_back(recorded_table(*near[i], fmt::format("nearest_{}", i + 1)));
        changed = changed || !changed_since(near[i]->kernels).empty();
    }
    if (changed) printout.notes.push_back("* The kernel was changed since then.");
    if (near.empty()) {
        printout.notes.push_back("No recording covers such problems: the default is the last rung.");
    } else if (position_of(*near.front()) != position_of(problem)) {
        printout.notes.push_back("No recording covers this problem. These are the nearest ones.");
    }
    printout.notes.push_back(
        fmt::format("The default is the last rung that reaches {:.0f}% of the fastest one's speed on the "
                    "nearest recorded "
                    "problem.",
                    DefaultStages::equally_fast * 100));
    return printout;
}

// A row for each problem of a regime: the default stages, and the fastest that a recording of it has.
Printout fastest_in(const Regime& regime) {
    Table table("fastest", regime.description,
                {{"problem", "problem"},
                 {"default_on_hopper", "default on Hopper"},
                 {"default_elsewhere", "default elsewhere"},
                 {"fastest", "fastest recorded"},
                 {"us", "us", Align::right},
                 {"gpu", "on", Align::left, true}});
    for (const Regime::Problem& p : regime.problems) {
        ProblemLabel problem;
        problem.shape = p.shape;
        problem.causal = p.causal;
        problem.features = p.features;
        problem.pass = regime.pass;
        std::vector<Cell> row{to_string(p.shape) + (p.causal ? " causal" : ""), default_of(problem, true),
                              default_of(problem, false)};
        const auto near = nearest_to(problem, recorded_times(), 1);
        if (!near.empty() && position_of(*near.front()) == position_of(problem)) {
            const auto& times = near.front()->median_ms;
            const auto fastest = std::min_element(
                times.begin(), times.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
            row.insert(row.end(),
                       {fastest->first, number(fastest->second * 1e3, "{:.1f}"), near.front()->gpu});
        }
        table.add_row(row);
    }
    Printout printout;
    printout.facts = {{"regime", regime.name}};
    printout.tables = {table};
    printout.notes = {fmt::format("All stages that were timed on one of them: {} with its shape.",
                                  lab_command({"list", "--for"}))};
    return printout;
}

Printout run(const ListOptions& options) {
    const bool is_shape = options.problem.find(',') != std::string::npos;
    if ((options.causal || options.backward) && !is_shape)
        throw BadUsage(
            "--causal and --backward go with --for and a shape; the regimes say which of theirs are");
    if (!options.like.empty()) {
        if (options.problem.empty()) throw BadUsage("--like goes with --for");
        throw BadUsage("run it as " +
                       lab_command({"list", "--for", options.problem, "--like", options.like}) +
                       " in the folder of the sources");
    }
    if (is_shape) {
        ProblemLabel problem;
        problem.shape = parse_shape(options.problem);
        problem.causal = options.causal;
        problem.pass = options.backward ? Pass::backward : Pass::forward;
        return fastest_for(problem);
    }
    if (!options.problem.empty()) {
        if (const Regime* regime = regime_named(options.problem); regime != nullptr)
            return fastest_in(*regime);
        std::vector<std::string> names;
        for (const Regime& regime : regimes()) names.emplace_back(regime.name);
        throw BadUsage(
            fmt::format("--for '{}' is neither a regime{} nor a shape B,H,Hkv,Nq,Nk,D; the regimes are {}",
                        options.problem, did_you_mean(options.problem, names), fmt::join(names, ", ")));
    }
    Table table("stages", "",
                {{"stage", "stage"},
                 {"parent", "parent"},
                 {"change", "the one change"},
                 {"shows_in", "shows in", Align::left, true},
                 {"head_dims", "head dims", Align::left, true},
                 {"dtypes", "types", Align::left, true}});
    Table properties("properties", "",
                     {{"stage", "stage"},
                      {"part", "first number of its part"},
                      {"place", "where it is read there"},
                      {"formerly", "what older recordings call it"},
                      {"fingerprint", "of its kernel's code"},
                      {"pass", "computes"},
                      {"compute_capability", "needs compute capability"},
                      {"experiment", "tries something out and is no rung"},
                      {"for_order", "exists for the order of its sums"},
                      {"last_of_part", "last of its part"},
                      {"eight_bits", "multiplies in 8 bits"},
                      {"in_e4m3", "takes in e4m3, with scales"},
                      {"takes", "takes besides a causal mask"},
                      {"at_once", "as many of these as go with each other"},
                      {"counted_on", "where its change shows in counted work"},
                      {"counted_parent", "what it is compared with in counted work"},
                      {"parent_counted_on", "and that where"},
                      {"timed", "timed"},
                      {"profiled", "profiled"}});
    const auto [timed, profiled] = load_recorded_kernels(stages_folder() / "fastest.json");
    std::map<std::string, std::vector<std::string>> bound;  // numbers, by the one compute capability
    std::map<std::string, std::vector<std::string>> by_time, by_profile;  // and by recorded_as()
    std::vector<std::string> of_gradients;
    int part_before = -1;
    for (const Stage& stage : stages()) {
        const Stage* parent = find_stage(stage.parent);
        const Part part = part_of(stage);
        if (part.first != part_before) table.add_heading(part.title);
        part_before = part.first;
        table.add_row(
            {Cell(stage.folder(), Tone::strong),
             parent ? Cell(parent->folder(), fmt::format("{:02}", parent->number)) : Cell(Value(), "-"),
             stage.change, stage.shows_in, fmt::format("{}", fmt::join(stage.head_dims, ", ")),
             "fp16, bf16"});
        const bool anywhere = stage.compute_capability == 0;
        const std::string needed = anywhere ? "" : dotted(stage.compute_capability);
        if (!anywhere) bound[needed].push_back(fmt::format("{:02}", stage.number));
        if (stage.pass == Pass::backward) of_gradients.push_back(fmt::format("{:02}", stage.number));
        const Case counted = telling_case(stage);
        const auto [compared, problem] = counted_parent(stage, counted);
        std::vector<std::string> taken, at_once;
        for (const FeatureInfo& info : all_features())
            if (takes(stage, info.feature)) taken.emplace_back(info.word());
        for (const auto& choice : feature_choices(stage)) {
            std::vector<std::string> words;
            for (const FeatureInfo* info : choice) words.emplace_back(info->word());
            at_once.push_back(fmt::format("{}", fmt::join(words, " ")));
        }
        std::string in_e4m3;
        for (const Tensor tensor : tensors_in_e4m3(stage)) in_e4m3 += "QKV"[static_cast<int>(tensor)];
        const std::string time_is = recorded_as(timed, stage), profile_is = recorded_as(profiled, stage);
        by_time[time_is].push_back(fmt::format("{:02}", stage.number));
        by_profile[profile_is].push_back(fmt::format("{:02}", stage.number));
        properties.add_row(
            {stage.folder(), Cell(Value(std::int64_t{part.first}), ""),
             Cell(Value(std::int64_t{reading_order(stage)[1]}), ""),
             stage.formerly.empty() ? Cell() : Cell(stage.formerly), kernel_fingerprint(stage.folder()),
             name(stage.pass), anywhere ? Cell() : Cell(needed), yes_or_no(is_experiment(stage)),
             yes_or_no(is_for_order(stage)), yes_or_no(is_last_of_part(stage)),
             yes_or_no(stage.products != Products::of_16_bits), in_e4m3,
             fmt::format("{}", fmt::join(taken, " ")), fmt::format("{}", fmt::join(at_once, "; ")),
             options_of(counted), compared != nullptr ? Cell(compared->folder()) : Cell(),
             compared != nullptr ? Cell(options_of(problem)) : Cell(), time_is, profile_is});
    }
    Table families("regimes", "",
                   {{"regime", "regime"},
                    {"pass", "computes"},
                    {"sweep", "only by name"},
                    {"decoding", "one query row"},
                    {"features", "and takes"}});
    for (const Regime& regime : regimes()) {
        families.add_row({regime.name, name(regime.pass), yes_or_no(regime.sweep),
                          yes_or_no(is_decoding(regime.name)),
                          fmt::format("{}", fmt::join(options_of(regime.problems[0].features), " "))});
    }
    Table features("features", "",
                   {{"feature", "feature"}, {"option", "option"}, {"arguments", "of a call in Python"}});
    for (const FeatureInfo& info : all_features()) {
        std::vector<std::string> arguments;
        for (const CallArgument& argument : info.arguments)
            if (!argument.is_part) arguments.emplace_back(argument.name);
        features.add_row({info.word(), info.option, fmt::format("{}", fmt::join(arguments, " "))});
    }
    Printout printout;
    printout.tables = {table};
    printout.data_tables = {properties, families, features};
    if (!of_gradients.empty()) {
        printout.notes.push_back(fmt::format("These compute the backward pass, dQ, dK and dV: {}.",
                                             fmt::join(of_gradients, ", ")));
    }
    for (const auto& [capability, numbers] : bound) {
        printout.notes.push_back(fmt::format("These need a GPU of compute capability {}, or the CPU: {}.",
                                             capability, fmt::join(numbers, ", ")));
    }
    const auto note = [&](const char* format, const std::vector<std::string>& numbers) {
        if (!numbers.empty())
            printout.notes.push_back(fmt::format(fmt::runtime(format), fmt::join(numbers, ", ")));
    };
    note("Changed since they were timed, so that recorded times are marked: {}.", by_time["changed since"]);
    note("Changed since they were profiled: {}.", by_profile["changed since"]);
    note("Never timed: {}.", by_time["never"]);
    return printout;
}

}  // namespace

void add_list(CommandLine& lab) {
    add_command<ListOptions>(
        lab, "list", "List the stages: name, parent, change, needs; or the fastest for a problem", run);
}

}  // namespace ladder
