#include "harness/time/fastest.h"

#include <algorithm>

#include "harness/cases/regimes.h"
#include "harness/features/features.h"
#include "harness/time/record_json.h"

namespace ladder {
namespace fs = std::filesystem;

std::vector<RecordedTimes> load_fastest(const fs::path& path) {
    if (!fs::exists(path)) return {};
    return read_record(path, "fastest", "the recorded times of stages", [](const auto& json) {
        std::vector<RecordedTimes> all;
        for (const auto& problem : json.at("problems")) {
            RecordedTimes& times = all.emplace_back();
            const auto& recording = json.at("recordings").at(problem.at("recording").template get<int>());
            recording.at("file").get_to(times.file);
            recording.at("gpu").get_to(times.gpu);
            recording.at("date").get_to(times.date);
            recording.at("kernels").get_to(times.kernels);
            problem.at("shape").get_to(times.shape);
            times.pass = problem.at("pass") == name(Pass::backward) ? Pass::backward : Pass::forward;
            problem.at("dtype").get_to(times.dtype);
            problem.at("causal").get_to(times.causal);
            times.features = features_in(problem.value("features", nlohmann::json::object()));
            problem.at("median_ms").get_to(times.median_ms);
        }
        return all;
    });
}

RecordedKernels load_recorded_kernels(const fs::path& path) {
    if (!fs::exists(path)) return {};
    return read_record(path, "fastest", "the recorded times of stages", [](const auto& json) {
        RecordedKernels kernels;
        json.at("timed").get_to(kernels.timed);
        json.at("profiled").get_to(kernels.profiled);
        return kernels;
    });
}

const std::vector<RecordedTimes>& recorded_times() {
    static const std::vector<RecordedTimes> recorded = load_fastest(stages_folder() / "fastest.json");
    return recorded;
}

std::vector<Results> shown_results(const std::vector<const Stage*>& stages, const fs::path& path,
                                   const fs::path& folder) {
    if (!fs::exists(path)) return {};
    const auto shown = read_record(path, "fastest", "the recorded times of stages", [](const auto& json) {
        return json.at("shown").template get<std::map<std::string, std::string>>();
    });
    std::vector<std::string> files;
    const auto add = [&](const std::string& of) {
        const auto file = shown.find(of);
        if (file == shown.end() || std::ranges::find(files, file->second) != files.end()) return;
        if (fs::exists(folder / file->second)) files.push_back(file->second);
    };
    add("all");
    const bool has_all = !files.empty();
    for (const auto& [of, file] : shown) {
        if (regime_named(of) != nullptr) add(of);
    }
    for (const Stage* stage : stages) add(stage->folder());
    std::vector<Results> results;
    for (const std::string& file : files) results.push_back(load_results(folder / file));
    const auto is_anew = [&](const ProblemLabel& row) {
        const auto file = shown.find(row.regime);
        return file != shown.end() && std::ranges::find(files, file->second) != files.end();
    };
    if (has_all) {
        std::erase_if(results[0].rows, is_anew);
        std::erase_if(results[0].peers, is_anew);
    }
    return results;
}

}  // namespace ladder
