/// @file
/// Timing measurements as tables, whether of this run or recorded.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/results.h"
#include "harness/table.h"

namespace ladder {

/// GPU, driver, toolkit, architectures, date and commit.
std::vector<std::pair<std::string, Cell>> machine_facts(const Hardware& hardware, const std::string& date,
                                                        const std::string& commit);

/// The same and the ceilings.
std::vector<std::pair<std::string, Cell>> measurement_facts(const Results& results);

/// One table for each problem, a row for each stage: time, noise, rate, share of the ceiling, speedups.
std::vector<Table> timing_tables(const Results& results);

/// A table for each unit of rate, a row for each stage, a column for each problem: "212 (1.52x)", which is
/// the rate and the speedup over the parent. `regime` keeps that one only, unless it is empty.
std::vector<Table> rate_tables(const Results& results, const std::string& regime = "");

/// One stage against its parent, a row for each problem.
Table stage_timing_table(const Results& results, const Stage& stage);

/// "Recorded on NVIDIA H200, 2026-11-21, commit 0123456"
std::string recorded_label(const Results& results);

}  // namespace ladder
