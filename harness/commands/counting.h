/// @file
/// Stages counted on the CPU, and the tables of their work.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/device.h"
#include "harness/progress.h"
#include "harness/table.h"
#include "harness/verify.h"

namespace ladder {

/// What a stage did on one problem.
struct Work {
    simt::Counters counters;
    std::size_t workspace_bytes = 0;
    std::string why_not;  ///< why it could not be counted; empty if it was
};

/// By stage number.
using WorkByStage = std::map<int, Work>;

/// Runs the stages and their parents once each.
WorkByStage count_work(Device& device, const std::vector<const Stage*>& stages, const Case& c,
                       const Progress& progress);

/// Counters down, stages across.
Table work_table(const std::vector<const Stage*>& stages, const WorkByStage& work);

/// One row for each counter that a stage moves against its parent.
Table change_table(const std::vector<const Stage*>& stages, const WorkByStage& work);

/// The GPU-less machine's count: the checked CPU, else the plain one, which counts the same. Throws
/// CannotRun.
std::unique_ptr<Device> open_counting_device();

}  // namespace ladder
