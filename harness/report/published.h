/// @file
/// What papers and articles report of attention kernels, beside what was recorded here.
#pragma once

#include <vector>

#include "harness/base/table.h"
#include "harness/time/profile.h"
#include "harness/time/results.h"

namespace ladder {

/// The recordings that published numbers are compared with.
struct Recordings {
    const Results& all;        ///< every stage and peer in every regime
    const Results& prefill;    ///< the sweep over long queries, with peers
    const Results& few_heads;  ///< 04 and 05 under a mask, few heads of 64
    const Profile& profile;
};

/// A row for each published number: where it stands, the same quantity here, and whether that is the same
/// (within a tenth), less or more. Throws CannotRun, naming the row, if a recording does not have what it
/// needs.
Table published_table(const Recordings& recordings);

/// What HBM and L2 moved for these stages in `train`, a row for each kernel of each.
Table moved_table(const Profile& profile, const std::vector<int>& stages);

}  // namespace ladder
