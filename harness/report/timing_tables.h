/// @file
/// Timing measurements as tables, whether of this run or recorded.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/base/table.h"
#include "harness/time/results.h"

namespace ladder {

/// GPU, driver, toolkit, architectures, date and commit.
std::vector<std::pair<std::string, Cell>> machine_facts(const Record& record);

/// The same, the ceilings, and the libraries of the peers if there are any.
std::vector<std::pair<std::string, Cell>> measurement_facts(const Results& results);

/// One table for each problem, a row for each stage: time, noise, rate, share of the ceiling, speedups over
/// the parent, over 00 and over each peer. The peers' rows come last.
std::vector<Table> timing_tables(const Results& results);

/// The same in one table, a row for each problem and stage, with the speedup over the parent alone. The
/// problems must be of one regime.
Table regime_table(const Results& results);

/// A table for each unit of rate, a row for each stage, a column for each problem: "212 (1.52x)", which is
/// the rate and the speedup over the parent. The peers' rates come last. `regime` keeps that one only, unless
/// it is empty.
std::vector<Table> rate_tables(const Results& results, const std::string& regime = "");

/// Two tables for each unit of rate. The first has a row for each problem: the rate of each stage and peer,
/// and how many times as fast as each peer each stage is; of more than `few` stages, only the fastest on
/// that problem. The second has the geometric mean and the minimum of these ratios, for each head dimension
/// and over all; its key ends in "_summary". `only` keeps one stage, unless it is null.
std::vector<Table> comparison_tables(const Results& results, const Stage* only = nullptr,
                                     std::size_t few = 3);

/// The rates alone, a row for each problem, a column for each stage and peer.
Table rates_by_problem(const Results& results);

/// Why peers could not be timed on some problems of it, each reason once, in one line; empty if all were.
std::string peer_reasons(const Results& results);

/// One stage against its parent, a row for each problem.
Table stage_timing_table(const Results& results, const Stage& stage);

/// "1.05x to 1.17x (causal)", or one number where the regime has one problem: a stage over its parent where
/// its change should show. Empty if it was not timed there.
std::string speedups_where_it_shows(const Results& results, const Stage& stage);

/// How many times as fast as stage `from` the stages `to` are, and the last of them as the peers: a row for
/// each problem whose rate counts operations.
Table speedup_table(const Results& results, int from, const std::vector<int>& to);

/// A change, by the stage that made it first, and the stage that has all changes but this one.
struct LeftOut {
    int change = 0;
    int without = 0;
};

/// Whether gains add or multiply: what each of these changes gained over the parent of the stage that made
/// it, and what the stage `all`, which has them all, gains over the one without it; as a ratio and in
/// milliseconds. For each problem whose rate counts operations, and that all of these stages got right: a row
/// for each change, and one for all. That has what was gained from the parent of the first change to `all`,
/// and beside it the product of the ratios and the sum of the milliseconds of the rows above.
Table leave_one_out_table(const Results& results, int all, const std::vector<LeftOut>& changes);

/// What the peers are made of: "PyTorch 2.11.0, cuDNN 9.10.2".
std::string libraries(const Results& results);

/// "NVIDIA H200, 2026-11-21, commit 0123456"
std::string machine_label(const Record& record);

/// "Recorded on NVIDIA H200, 2026-11-21, commit 0123456"
std::string recorded_label(const Results& results);

}  // namespace ladder
