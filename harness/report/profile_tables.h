/// @file
/// Profiles as tables, whether of this run or recorded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/base/table.h"
#include "harness/time/profile.h"

namespace ladder {

/// The sum of a metric over a row's kernels; empty if it was not measured in each.
std::optional<double> total(const ProfileRow& row, const std::string& key);

/// One table for each problem, a row for each kernel: what Nsight Compute complains of.
std::vector<Table> profile_tables(const Profile& profile);

/// A row for each problem and stage: what all its kernels together moved to and from HBM.
Table bytes_table(const Profile& profile);

/// A row for each kernel of each stage: what it takes of a multiprocessor, and what keeps more blocks away.
/// With `all`, a stage of this build that is not in the profile has a row that says so.
Table occupancy_table(const Profile& profile, bool all = false);

/// What a lesson says of one stage, as Markdown: its kernels beside its parent's, metrics down, in the regime
/// where its change shows.
std::string profile_block(const std::optional<Profile>& recorded, const Stage& stage);

/// The same of occupancy, with all stages of this build.
std::string occupancy_block(const std::optional<Profile>& recorded);

}  // namespace ladder
