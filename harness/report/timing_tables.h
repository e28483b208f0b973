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
/// the parent, over 00 and over each peer. The rows of the peers that were timed on it come last.
std::vector<Table> timing_tables(const Results& results);

/// The same in one table, a row for each problem and stage, with the speedup over the parent alone. The
/// problems must be of one regime.
Table regime_table(const Results& results);

/// A table for each unit of rate, a row for each stage, a column for each problem: "212 (1.52x)", which is
/// the rate and the speedup over the parent, or "WRONG". The rates of the peers that were timed come last.
/// `regime` keeps that one only, unless it is empty.
std::vector<Table> rate_tables(const Results& results, const std::string& regime = "");

/// What a newcomer sees first: rate_tables() and what they say in no cell, which is what was verified, the
/// noise, what the regimes are, and why a stage has no time or a wrong answer. At 80 columns two screens.
Printout first_printout(const Results& results);

/// Why peers were not timed, a line for each of them and each reason, with the regimes unless it is all.
std::vector<std::string> untimed_notes(const Results& results);

/// Two tables for each unit of rate. The first has a row for each problem: the rate of each stage and peer,
/// and how many times as fast as each peer each stage is; of more than three stages, only the fastest on
/// that problem. The second has the geometric mean and the minimum of these ratios, for each head dimension
/// and over all; its key ends in "_summary".
std::vector<Table> comparison_tables(const Results& results);

/// "Recorded on NVIDIA H200, 2026-11-21, commit 0123456; since then changed: 05": the stages of its rows
/// whose kernels are others now
std::string recorded_label(const Results& results);

}  // namespace ladder
