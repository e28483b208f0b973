/// @file
/// The parts of the ladder: what each teaches, what it reaches, and its share of a recording.
#pragma once

#include <string>

#include "harness/base/table.h"
#include "harness/time/results.h"
#include "stages/stage.h"

namespace ladder {

/// A row for each part with a page: a link to it from a page in `folder` (relative to the root), the stage
/// that it starts from, what it teaches (the first sentence of its page), and how many times as fast its last
/// stage is as the one that it starts from, and as the peer FlashAttention-2.
Table parts_table(const Results& results, const std::string& folder);

/// What the heading of its lesson calls a stage: "04 split-Q"; its folder in words if it has no lesson.
std::string title_of(const Stage& stage);

/// The recording without what is not of this part: its stages and the one that it starts from stay, on the
/// problems whose rate has a unit in which some stage of the part should show.
Results of_part(const Results& results, int part);

}  // namespace ladder
