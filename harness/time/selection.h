/// @file
/// Which stages `lab time` times or shows, and on which problems: those where something can be seen.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/time/fastest.h"
#include "harness/time/results.h"
#include "harness/time/timing.h"
#include "stages/stage.h"

namespace ladder {

/// Stages, the problems that matter for each, and whether to time the peers with them.
struct Selection {
    std::vector<const Stage*> stages;  ///< a parent before its stage
    std::vector<const Stage*>
        shown;                  ///< whose changes should show: `stages` without those that are only parents
    bool whole = false;         ///< in all regimes
    bool named = false;         ///< stages were named
    bool first_table = false;   ///< nothing was named: what a newcomer sees first
    bool beside_peers = false;  ///< if they are here
    /// Of each part past the algorithm its default stage, for problems whose bytes count or whose products
    /// do; empty if stages were named.
    std::map<std::pair<int, bool>, DefaultStages> parts = {};

    /// Whether the stage takes part in the problem. One that was named does, and its parent where it has the
    /// head dimension. Of others the algorithm's do, in the first table where the change of one of them or of
    /// its child should show; and of every other part the one that is the default there, if it is for such
    /// problems and multiplies in 16 bits.
    bool takes_part(const Stage& stage, const ProblemLabel& problem) const;
    /// Whether a change of the stages shown should show in the problem's regime. The first table holds the
    /// regimes of the algorithm and of gradients, and of their problems a few.
    bool matters(const ProblemLabel& problem) const;
    /// Those that take part in the problem and take it.
    std::set<const Stage*> timed_on(const TimedCase& timed) const;
    /// What to time: the problems of the regime, or if it is empty those that matter, that some stage takes.
    /// The selection must outlive it.
    TimingOptions timing(DType dtype, const std::string& regime) const;
    /// Takes the other rows away. `regime` keeps that one only, unless it is empty.
    void filter(Results& results, const std::string& regime) const;
};

/// The stages that were named, or all of them if `whole`; else those of the algorithm and of other parts. One
/// stage comes with its parent and the peers, and so, without the parents, do those that were not named; but
/// not in a sweep, which takes long. The regimes are those where their changes should show, or all if
/// `whole`; `regime` is the one that was named, "custom" for a shape, or empty. `runs` says which stages of
/// other parts run here; null for the algorithm's alone.
Selection select_timed(const std::vector<const Stage*>& named, bool whole, const std::string& regime,
                       const std::function<bool(const Stage&)>& runs);

}  // namespace ladder
