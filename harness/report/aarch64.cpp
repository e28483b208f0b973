#include "harness/report/aarch64.h"

#include <fmt/format.h>

#include <map>

#include "harness/base/table.h"
#include "harness/time/record_json.h"

namespace ladder {

std::string aarch64_block(const std::filesystem::path& record) {
    return read_record(record, "aarch64", "of the stages on aarch64", [](const auto& json) {
        const std::map<std::string, std::string> names{
            {"verify", "quick cases"},
            {"checked", "quick cases, race-checked, in all orders"},
            {"mutants", "kernels known to be wrong, rejected for their reasons"}};
        Table table("aarch64", "",
                    {{"step", "step"},
                     {"passed", "passed", Align::right},
                     {"races", "races", Align::right},
                     {"seconds", "seconds", Align::right}});
        for (const auto& row : json.at("steps")) {
            const auto number = [&](const char* key) { return row.at(key).template get<int>(); };
            const std::string step = row.at("step");
            const bool mutants = step == "mutants";
            table.add_row({names.at(step),
                           mutants ? fmt::format("{} of {}", number("rejected"), number("mutants"))
                                   : fmt::format("{} of {}", number("cases_passed"), number("cases")),
                           mutants ? Cell() : Cell(std::to_string(number("races"))),
                           std::to_string(number("seconds"))});
        }
        const auto text = [&](const char* key) { return json.at(key).template get<std::string>(); };
        return fmt::format("Recorded on {}, {}, commit {}, compiled by {}:\n\n{}", text("device"),
                           text("date").substr(0, 10), text("commit").substr(0, 7), text("compiler"),
                           to_markdown(table));
    });
}

}  // namespace ladder
