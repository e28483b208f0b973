/// @file
/// The JSON form that recorded measurements share. Needs all of nlohmann-json, so only their .cpp include it.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/json.h"
#include "harness/time/results.h"
#include "stages/errors.h"

namespace ladder {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Hardware, gpu, sm_count, device_arch, binary_arch, ptx_arch, driver,
                                   toolkit)

/// Of the form of all records: docs/publish/records.py reads the same one, and no other.
constexpr int record_version = 2;

/// The fields of Record, and the kind of record that they are of: "timing", "profile".
nlohmann::json record_json(const char* kind, const Record& record);
/// Throws BadUsage if it has an older form.
void get_record(const nlohmann::json& json, Record& record);

/// A line for each row, so that a diff of two recordings can be read. Numbers that are not whole have eight
/// digits, which are those of the floats that CUDA gives times in.
std::string record_text(nlohmann::json record);

/// Fields that a row has only if they say something.
inline const nlohmann::json usual_fields{{"causal", false},   {"max_error", nullptr}, {"shows_here", false},
                                         {"timing", nullptr}, {"verified", false},    {"why_not", ""}};

/// Rows that have a ProblemLabel, each with its pass if that is not the forward one and its Features if it
/// has any, and without its usual_fields.
template <class Row>
nlohmann::json rows_json(const std::vector<Row>& rows) {
    auto list = nlohmann::json::array();
    for (const Row& row : rows) {
        nlohmann::json& written = list.emplace_back(row);
        for (const auto& [field, usual] : usual_fields.items()) {
            if (written.value(field, usual) == usual) written.erase(field);
        }
        if (row.pass == Pass::backward) written["pass"] = name(row.pass);
        if (row.features != Features()) add_json(written["features"], row.features);
    }
    return list;
}
template <class Row>
void get_rows(const nlohmann::json& json, std::vector<Row>& rows) {
    for (nlohmann::json written : json) {
        written.insert(usual_fields.begin(), usual_fields.end());
        Row& row = rows.emplace_back(written.get<Row>());
        row.pass = written.value("pass", "") == name(Pass::backward) ? Pass::backward : Pass::forward;
        row.features = features_in(written.value("features", nlohmann::json::object()));
    }
}

/// Makes rows of those of today's stages: a stage that had another name by then has its own, and rows of a
/// stage that is no more are left out. A row whose parent is none of today's gets the one of its stage. Rows
/// of what a recording knows no kernel of, as a student's stage, stay as they are.
template <class Row>
void rename_stages(std::vector<Row>& rows, std::map<std::string, std::string>& kernels) {
    std::map<std::string, const Stage*> today;
    for (const auto& [folder, fingerprint] : kernels) today[folder] = stage_called(folder);
    std::map<int, const Stage*> by_number;
    for (const Row& row : rows)
        if (today.contains(row.folder)) by_number[row.stage] = today[row.folder];
    std::erase_if(rows,
                  [&](const Row& row) { return today.contains(row.folder) && today[row.folder] == nullptr; });
    for (Row& row : rows) {
        if (!today.contains(row.folder)) continue;
        const Stage &stage = *today[row.folder], *parent = by_number[row.parent];
        if (parent == nullptr) parent = parent_at(stage, row.shape.d);
        row.shows_here = row.regime == stage.shows_in;
        row.stage = stage.number;
        row.folder = stage.folder();
        row.parent = parent != nullptr ? parent->number : -1;
    }
    std::map<std::string, std::string> renamed;
    for (const auto& [folder, stage] : today)
        if (stage != nullptr) renamed[stage->folder()] = kernels[folder];
    kernels = std::move(renamed);
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
