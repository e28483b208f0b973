#include "harness/time/profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/process.h"
#include "harness/device/device_problem.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/time/record_json.h"

namespace ladder {
namespace fs = std::filesystem;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(KernelProfile, kernel, blocks, threads, registers, local_bytes,
                                   shared_bytes, blocks_per_sm, warps_per_sm, limited_by, metrics)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProfileRow, regime, shape, dtype, causal, stage, parent, folder,
                                   shows_here, why_not, kernels)

void to_json(nlohmann::json& json, const Profile& profile) {
    json = record_json("profile", profile);
    json["profiler"] = profile.profiler;
    json["rows"] = rows_json(profile.rows);
}

void from_json(const nlohmann::json& json, Profile& profile) {
    get_record(json, profile);
    json.at("profiler").get_to(profile.profiler);
    get_rows(json.at("rows"), profile.rows);
    rename_stages(profile.rows, profile.kernels);
}

TimedCase profiled_case(DType dtype, const std::string& regime) {
    const auto cases = timing_options(dtype, regime).cases;
    return cases[regime == "decode" ? cases.size() / 2 : 0];
}

ProfileRow profile_row(const TimedCase& timed, const Stage& stage) {
    ProfileRow row;
    static_cast<ProblemLabel&>(row) = label_of(timed);
    static_cast<StageLabel&>(row) = label_of(stage, timed);
    return row;
}

std::vector<ProfileRow> telling_rows(const std::vector<const Stage*>& stages, DType dtype) {
    std::vector<ProfileRow> rows;
    for (const Regime& regime : regimes()) {
        const TimedCase timed = profiled_case(dtype, regime.name);
        for (const Stage* stage : stages) {
            if (stage->pass != regime.pass || !why_not_taken(*stage, timed.problem).empty()) continue;
            const bool tells = std::any_of(stages.begin(), stages.end(), [&](const Stage* other) {
                return other->shows_in == timed.regime &&
                       (other == stage || parent_at(*other, timed.problem.shape.d) == stage);
            });
            if (timed.regime == "train" || timed.regime == "backward" || tells)
                rows.push_back(profile_row(timed, *stage));
        }
    }
    return rows;
}

Profile observe_stages(Device& device, std::vector<ProfileRow> rows, const OnStep& on_step) {
    auto* observer = dynamic_cast<KernelObserver*>(&device);
    if (observer == nullptr) throw CannotRun(device.description() + " has no kernels to profile");
    Profile profile;
    profile.date = utc_now();
    profile.commit = current_commit();
    profile.hardware = observer->hardware();
    int done = 0;
    for (ProfileRow& row : rows) {
        if (on_step)
            on_step(fmt::format("run {}: {}", row.regime, row.folder), done++, static_cast<int>(rows.size()));
        const Stage& stage = *find_stage(row.stage);
        profile.kernels[row.folder] = kernel_fingerprint(row.folder);
        if (!stage.has_head_dim(row.shape.d)) {
            row.why_not = fmt::format("has no kernel for d = {}", row.shape.d);
            continue;
        }
        Case c;
        c.shape = row.shape;
        c.causal = row.causal;
        c.features = row.features;
        c.dtype = row.dtype;
        c.pass = row.pass;
        try {
            const DeviceInputs inputs(device, *observer, c);
            const DeviceProblem run(device, stage, c, inputs);
            row.kernels = observer->observe(stage, run.problem);
        } catch (const CannotRun& reason) {
            row.why_not = reason.what();
        }
    }
    if (std::all_of(rows.begin(), rows.end(), [](const ProfileRow& row) { return !row.why_not.empty(); }))
        throw CannotRun(rows.empty()
                            ? "there is nothing to profile"
                            : fmt::format("{} cannot run: {}", rows.front().folder, rows.front().why_not));
    profile.rows = std::move(rows);
    return profile;
}

Profile profile_with_nsight(const std::vector<std::string>& lab, unsigned limit, bool bytes) {
    const TemporaryFolder folder("lab-profile-");
    const fs::path file = folder.path() / "profile.json";
    const nlohmann::json request{{"lab", lab}, {"file", file}, {"limit", limit}, {"bytes", bytes}};
    const auto said = nlohmann::json::parse(ask_python("harness/time/nsight.py", request.dump()));
    if (!said.contains("error")) return load_profile(file);
    if (said.at("code") == 1) throw CheckFailed(said.at("error"));
    throw CannotRun(said.at("error"));
}

void save_profile(const Profile& profile, const OutputFile& file) {
    if (!profile.profiler.empty()) refuse_foreign(profile.hardware, file);
    file.write(record_text(profile));
}

Profile load_profile(const fs::path& path) {
    return load_record<Profile>(path, "profile", "a profile");
}

}  // namespace ladder
