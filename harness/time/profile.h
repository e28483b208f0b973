/// @file
/// A profile as data: which kernels a stage launches, what they take of a multiprocessor, and what Nsight
/// Compute counted in them. How it is made without Nsight Compute, and how it is kept in docs/results/.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/base/progress.h"
#include "harness/time/results.h"
#include "harness/time/timing.h"

namespace ladder {

/// One stage on one problem. Either it has kernels, or `why_not` says what kept it from running.
struct ProfileRow : ProblemLabel, StageLabel {
    std::string why_not;                 ///< in one line; empty if it ran
    std::vector<KernelProfile> kernels;  ///< in the order of their launches
};

/// One run of `lab profile` on a GPU.
struct Profile : Record {
    std::string profiler;          ///< "Nsight Compute 2025.3.1"; empty for a profile without metrics
    std::vector<ProfileRow> rows;  ///< problem by problem, stages in order
};

/// The problem of a regime that profiles take: the one on which its lesson is told.
TimedCase profiled_case(DType dtype, const std::string& regime);

/// A row to be filled.
ProfileRow profile_row(const TimedCase& timed, const Stage& stage);

/// The rows that tell each stage's lesson: all stages in `train`, or `backward`, and each with its parent in
/// the regime where its change shows.
std::vector<ProfileRow> telling_rows(const std::vector<const Stage*>& stages, DType dtype);

/// Runs each row's stage once, on N(0, 1) inputs, and fills in its kernels, without metrics. Throws CannotRun
/// if the device is no KernelObserver or no stage can run.
Profile observe_stages(Device& device, std::vector<ProfileRow> rows, const OnStep& on_step = {});

/// Runs the command of a `lab` under Nsight Compute (nsight.py) for `limit` seconds at most; `--occupancy
/// --json FILE`, which makes it write its profile without metrics, is added. Returns that profile with
/// metrics. With `bytes` these are time and HBM traffic alone. Throws CannotRun if ncu cannot measure here or
/// takes too long, CheckFailed if what it ran failed or its output makes no sense.
Profile profile_with_nsight(const std::vector<std::string>& lab, unsigned limit, bool bytes = false);

void to_json(nlohmann::json& json, const Profile& profile);
/// Throws nlohmann::json::exception on a missing or mistyped field.
void from_json(const nlohmann::json& json, Profile& profile);

/// Writes the profile. Throws CannotRun if it has metrics and foreign_architecture() objects, BadUsage if it
/// cannot be written.
void save_profile(const Profile& profile, const OutputFile& file);

/// Reads one file. Throws BadUsage naming the file if it cannot be read or is no profile.
Profile load_profile(const std::filesystem::path& path);

}  // namespace ladder
