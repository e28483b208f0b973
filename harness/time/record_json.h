/// @file
/// The JSON form that recorded measurements share. Needs all of nlohmann-json, so only their .cpp include it.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <filesystem>

#include "harness/problem/json.h"
#include "harness/time/results.h"
#include "stages/errors.h"

namespace ladder {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Hardware, gpu, sm_count, device_arch, binary_arch, ptx_arch, driver,
                                   toolkit)

/// The fields of Record, and the kind of record that they are of: "timing", "profile".
nlohmann::json record_json(const char* kind, const Record& record);
void get_record(const nlohmann::json& json, Record& record);

/// Rows that have a ProblemLabel, each with its pass if that is not the forward one, and its Features.
template <class Row>
nlohmann::json rows_json(const std::vector<Row>& rows) {
    auto list = nlohmann::json::array();
    for (const Row& row : rows) {
        list.push_back(row);
        if (row.pass == Pass::backward) list.back()["pass"] = name(row.pass);
        add_json(list.back(), row.features);
    }
    return list;
}
template <class Row>
void get_rows(const nlohmann::json& json, std::vector<Row>& rows) {
    json.get_to(rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].pass = json[i].value("pass", "") == name(Pass::backward) ? Pass::backward : Pass::forward;
        rows[i].features = features_in(json[i]);
    }
}

/// Whether it is a record of that kind.
bool is_record(const nlohmann::json& json, const char* kind);

/// Reads one file, and returns what `make` makes of its JSON. Throws BadUsage naming the file if it cannot be
/// read or is no record of that kind, which `what` calls by its name ("a profile").
template <class Make>
auto read_record(const std::filesystem::path& path, const char* kind, const char* what, Make make) {
    const auto json = read_json(path);
    if (!is_record(json, kind)) throw BadUsage(fmt::format("cannot read {}: not {}", path.string(), what));
    try {
        return make(json);
    } catch (const std::exception& error) {
        throw BadUsage(fmt::format("cannot read {}: {}", path.string(), error.what()));
    }
}
template <class T>
T load_record(const std::filesystem::path& path, const char* kind, const char* what) {
    return read_record(path, kind, what, [](const auto& json) { return json.template get<T>(); });
}

}  // namespace ladder
