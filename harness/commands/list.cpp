#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "harness/ladder/ladder.h"

namespace ladder {
namespace {

struct ListOptions {
    explicit ListOptions(Command&) {}
};

Cell yes_or_no(bool value) {
    return {Value(value), value ? "yes" : "no"};
}

Document run(const ListOptions&) {
    Table table("stages", "",
                {{"stage", "stage"},
                 {"parent", "parent", Align::left, 3},
                 {"change", "the one change"},
                 {"shows_in", "shows in", Align::left, 4},
                 {"head_dims", "head dims", Align::left, 2},
                 {"dtypes", "types", Align::left, 1}});
    Table properties("properties", "",
                     {{"stage", "stage"},
                      {"pass", "computes"},
                      {"compute_capability", "needs compute capability"},
                      {"ablation", "takes a change away"},
                      {"last_of_part", "last of its part"}});
    std::map<std::string, std::vector<std::string>> bound;  // numbers, by the one compute capability
    std::vector<std::string> of_gradients;
    for (const Stage& stage : stages()) {
        const Stage* parent = find_stage(stage.parent);
        table.add_row({Cell(stage.folder(), Tone::strong),
                       parent ? Cell(parent->folder()) : Cell(Value(), "-"), stage.change, stage.shows_in,
                       fmt::format("{}", fmt::join(stage.head_dims, ", ")), "fp16, bf16"});
        const bool anywhere = stage.compute_capability == 0;
        const std::string needed = anywhere ? "" : dotted(stage.compute_capability);
        if (!anywhere) bound[needed].push_back(fmt::format("{:02}", stage.number));
        if (stage.pass == Pass::backward) of_gradients.push_back(fmt::format("{:02}", stage.number));
        properties.add_row({stage.folder(), name(stage.pass), anywhere ? Cell() : Cell(needed),
                            yes_or_no(is_ablation(stage.number)), yes_or_no(is_last_of_part(stage))});
    }
    Document document;
    document.tables = {table};
    document.data_tables = {properties};
    if (!of_gradients.empty()) {
        document.notes.push_back(fmt::format("What computes dQ, dK and dV, the backward pass: {}.",
                                             fmt::join(of_gradients, ", ")));
    }
    for (const auto& [capability, numbers] : bound) {
        document.notes.push_back(fmt::format("On a GPU of compute capability {} only, or on the CPU: {}.",
                                             capability, fmt::join(numbers, ", ")));
    }
    return document;
}

}  // namespace

void add_list(CommandLine& lab) {
    add_command<ListOptions>(lab, "list", "The stages: name, parent, the one change, needs", run);
}

}  // namespace ladder
