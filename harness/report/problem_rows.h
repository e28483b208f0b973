/// @file
/// Timing results by problem: what a table or a plot of them is about.
#pragma once

#include <string>
#include <vector>

#include "harness/time/results.h"

namespace ladder {

/// The rows of one problem. They belong to the results that it was made of.
struct ProblemRows {
    const Row* first;
    std::vector<const Row*> rows;
    std::vector<const PeerRow*> peers;

    /// A stage's row, or null.
    const Row* row(int stage) const;
    /// A peer's row, or null.
    const PeerRow* peer(const std::string& name) const;
    /// "train 2k", "causal 16k", "decode 64k": the regime, and what tells its problems apart.
    std::string short_name() const;
};

/// One for each problem of the results, in their order.
std::vector<ProblemRows> by_problem(const Results& results);

/// The peers that take part, each once.
std::vector<std::string> peer_names(const Results& results);

}  // namespace ladder
