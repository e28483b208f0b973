#include "harness/report/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "harness/base/table.h"
#include "harness/time/record_json.h"

namespace ladder {
namespace {

/// A row of error_table(); null is a NaN, which is above all bounds and so never in a record of stages that
/// passed.
struct RecordedError {
    std::string stage, dtype, input;
    double max_error = 0, standard_max_error = 0, relative_l2 = 0;
};

Table recorded_errors(const std::vector<RecordedError>& errors, const char* title,
                      const std::function<bool(const RecordedError&)>& is_in) {
    const std::vector<std::string> types{"fp16", "bf16"};
    std::vector<Column> columns{{"stage", "stage"}};
    for (const std::string& type : types) {
        for (const char* what : {"largest error", "standard attention's", "relative L2"})
            columns.push_back({type + what, fmt::format("{}: {}", type, what), Align::right});
    }
    Table table("errors", title, columns);
    std::vector<std::string> stages;
    for (const RecordedError& error : errors) {
        if (std::find(stages.begin(), stages.end(), error.stage) == stages.end())
            stages.push_back(error.stage);
    }
    for (const std::string& stage : stages) {
        std::vector<Cell> cells{stage};
        for (const std::string& type : types) {
            std::optional<RecordedError> worst;
            double relative_l2 = 0;
            for (const RecordedError& error : errors) {
                if (error.stage != stage || error.dtype != type || !is_in(error)) continue;
                if (!worst || error.max_error > worst->max_error) worst = error;
                relative_l2 = std::max(relative_l2, error.relative_l2);
            }
            for (const double value :
                 {worst ? worst->max_error : 0, worst ? worst->standard_max_error : 0, relative_l2})
                cells.push_back(worst ? Cell(Value(value), fmt::format("{:.1e}", value)) : Cell());
        }
        table.add_row(std::move(cells));
    }
    return table;
}

}  // namespace

std::string errors_block(const std::filesystem::path& record) {
    return read_record(record, "verification", "a verification", [](const auto& json) {
        std::vector<RecordedError> errors;
        for (const auto& row : json.at("errors")) {
            errors.push_back({row.at("stage"), row.at("dtype"), row.at("input"), row.at("max_error"),
                              row.at("standard_max_error"), row.at("relative_l2")});
        }
        const auto text = [&](const char* key) { return json.at(key).template get<std::string>(); };
        std::string block = fmt::format("Recorded on {}, {}, commit {}:\n", text("device"),
                                        text("date").substr(0, 10), text("commit").substr(0, 7));
        const Table tables[]{
            recorded_errors(errors, "Inputs from N(0, 1)", [](const auto& e) { return e.input == "normal"; }),
            recorded_errors(errors, "All inputs, those made to be difficult included",
                            [](const auto&) { return true; })};
        for (const Table& table : tables)
            block += fmt::format("\n{}:\n\n{}", table.title(), to_markdown(table));
        return block;
    });
}

}  // namespace ladder
