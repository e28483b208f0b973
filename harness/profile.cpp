#include "harness/profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/device_problem.h"
#include "harness/json.h"

namespace ladder {
namespace fs = std::filesystem;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(KernelProfile, kernel, blocks, threads, registers, local_bytes,
                                   shared_bytes, blocks_per_sm, warps_per_sm, limited_by, metrics)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProfileRow, regime, shape, dtype, causal, stage, parent, folder,
                                   shows_here, why_not, kernels)

void to_json(nlohmann::json& json, const Profile& profile) {
    json = record_json("profile", profile);
    json["profiler"] = profile.profiler;
    json["rows"] = profile.rows;
}

void from_json(const nlohmann::json& json, Profile& profile) {
    get_record(json, profile);
    json.at("profiler").get_to(profile.profiler);
    json.at("rows").get_to(profile.rows);
}

std::string limit_of(const KernelProfile& kernel, int blocks_without_shared, const Multiprocessor& sm) {
    constexpr int granularity = 128;  // in which shared memory is given out
    const int more = kernel.blocks_per_sm + 1;
    const int shared =
        (kernel.shared_bytes + sm.reserved_shared_bytes + granularity - 1) / granularity * granularity;
    const bool by_threads = more * kernel.threads > sm.threads, by_blocks = more > sm.blocks;
    std::vector<std::string> limits;
    if (blocks_without_shared < more && !by_threads && !by_blocks) limits.emplace_back("registers");
    if (more * shared > sm.shared_bytes) limits.emplace_back("shared memory");
    if (by_threads) limits.emplace_back("threads");
    if (by_blocks) limits.emplace_back("blocks");
    return fmt::format("{}", fmt::join(limits, ", "));
}

std::string kernel_base_name(std::string demangled) {
    for (const std::string unnamed : {"(anonymous namespace)::", "<unnamed>::"}) {
        for (std::size_t at; (at = demangled.find(unnamed)) != demangled.npos;)
            demangled.erase(at, unnamed.size());
    }
    demangled.resize(std::min(demangled.find_first_of("<("), demangled.size()));
    return demangled.substr(demangled.find_last_of(" :") + 1);  // npos + 1 = 0
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
            const bool tells = std::any_of(stages.begin(), stages.end(), [&](const Stage* other) {
                return other->shows_in == timed.regime && (other == stage || other->parent == stage->number);
            });
            if (timed.regime == "train" || tells) rows.push_back(profile_row(timed, *stage));
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
        c.dtype = row.dtype;
        try {
            const DeviceInputs inputs(device, *observer, c);
            const DeviceProblem run(device, stage, c, inputs);
            row.kernels = observer->observe(stage, run.problem);
        } catch (const CannotRun& reason) {
            row.why_not = reason.what();
        }
    }
    if (std::all_of(rows.begin(), rows.end(), [](const ProfileRow& row) { return !row.why_not.empty(); }))
        throw CannotRun(rows.empty() ? "there is nothing to profile" : rows.front().why_not);
    profile.rows = std::move(rows);
    return profile;
}

void save_profile(const Profile& profile, const OutputFile& file) {
    if (!profile.profiler.empty()) refuse_foreign(profile.hardware, file);
    file.write(nlohmann::json(profile).dump(1) + "\n");
}

Profile load_profile(const fs::path& path) {
    return load_record<Profile>(path, "profile", "a profile");
}

std::optional<Profile> recorded_profile() {
    const fs::path path = results_folder() / "h200-profile.json";
    return fs::exists(path) ? std::optional(load_profile(path)) : std::nullopt;
}

}  // namespace ladder
