#include "harness/report/peer_tests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "harness/base/table.h"
#include "harness/time/record_json.h"

namespace ladder {
namespace {

std::string sentence(const std::filesystem::path& record) {
    return read_record(record, "peer-tests", "of another project's tests", [](const auto& json) {
        const auto text = [&](const char* key) { return json.at(key).template get<std::string>(); };
        const auto count = [](const auto& number) {
            return with_separators(number.template get<std::uint64_t>());
        };
        std::vector<std::pair<std::uint64_t, std::string>> reasons;
        for (const auto& [why, number] : json.at("left_out").items()) reasons.emplace_back(number, why);
        std::sort(reasons.rbegin(), reasons.rend());
        std::vector<std::string> left_out;
        for (const auto& [number, why] : reasons)
            left_out.push_back(fmt::format("{} {}", with_separators(number), why));
        const auto run =
            json.at("passed").template get<std::uint64_t>() + json.at("failed").template get<std::uint64_t>();
        return fmt::format(
            "The {} project's own tests (at {}) pass with the default stages, {} of {}, on {} ({}, commit "
            "{}, "
            "PyTorch {}; `tests/peer_tests.sh CHECKOUT`). Of its {} tests, those of what no stage takes are "
            "left "
            "out: {}.\n",
            text("project"), text("project_commit").substr(0, 7), count(json.at("passed")),
            with_separators(run), text("gpu"), text("date").substr(0, 10), text("commit").substr(0, 7),
            text("torch"), count(json.at("collected")), fmt::join(left_out, ", "));
    });
}

}  // namespace

std::string peer_tests_block(const std::filesystem::path& folder) {
    std::set<std::filesystem::path> records;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().filename().string().ends_with("-peer-tests.json")) records.insert(entry.path());
    }
    std::string text;
    for (const auto& record : records) text += sentence(record);
    return text;
}

}  // namespace ladder
