/// @file
/// Which stages `lab time` times or shows, and in which regimes: those where something can be seen.
#pragma once

#include <string>
#include <vector>

#include "harness/time/results.h"
#include "stages/stage.h"

namespace ladder {

/// Stages, the problems that matter for each, and whether to time the peers with them.
struct Selection {
    std::vector<const Stage*> stages;  ///< a parent before its stage
    std::vector<const Stage*>
        shown;                  ///< whose changes should show: `stages` without those that are only parents
    bool whole = false;         ///< in all regimes
    bool named = false;         ///< stages were named
    bool beside_peers = false;  ///< if they are here

    /// Whether the stage takes part in problems of this shape. Where it was not named, it must have the head
    /// dimension, and if none was named, one past the algorithm's is for many query rows or for one.
    bool takes_part(const Stage& stage, const Shape& shape) const;
    /// Whether a change of the stages shown should show in the regime.
    bool matters(const std::string& regime) const;
    /// Takes the other rows away. `regime` keeps that one only, unless it is empty.
    void filter(Results& results, const std::string& regime) const;
};

/// The stages that were named, or all of them if `whole`; else those of the algorithm and, with `last_ones`,
/// the last of each part. One stage comes with its parent and the peers, and so, without the parents, do
/// those that were not named; but not in a sweep, which takes long. The regimes are those where their changes
/// should show, or all if `whole`; `regime` is the one that was named, or empty.
Selection select_timed(const std::vector<const Stage*>& named, bool whole, const std::string& regime,
                       bool last_ones);

}  // namespace ladder
