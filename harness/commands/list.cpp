#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "harness/ladder/ladder.h"

namespace ladder {
namespace {

struct ListOptions {
    explicit ListOptions(Command&) {}
};

Document run(const ListOptions&) {
    Table table("stages", "",
                {{"stage", "stage"},
                 {"parent", "parent", Align::left, 3},
                 {"change", "the one change"},
                 {"shows_in", "shows in", Align::left, 4},
                 {"head_dims", "head dims", Align::left, 2},
                 {"dtypes", "types", Align::left, 1}});
    for (const Stage& stage : stages()) {
        const Stage* parent = find_stage(stage.parent);
        table.add_row({Cell(stage.folder(), Tone::strong),
                       parent ? Cell(parent->folder()) : Cell(Value(), "-"), stage.change, stage.shows_in,
                       fmt::format("{}", fmt::join(stage.head_dims, ", ")), "fp16, bf16"});
    }
    Document document;
    document.tables = {table};
    return document;
}

}  // namespace

void add_list(CommandLine& lab) {
    add_command<ListOptions>(lab, "list", "The stages: name, parent, the one change, needs", run);
}

}  // namespace ladder
