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
Table occupancy_table(const Profile& profile);

}  // namespace ladder
