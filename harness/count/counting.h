/// @file
/// Stages counted on the CPU, and the tables of their work.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/base/progress.h"
#include "harness/base/table.h"
#include "harness/cases/inputs.h"
#include "harness/count/work.h"
#include "harness/device/device.h"

namespace ladder {

/// Until the options of the CPU back-end are put back: blocks of the stage that take their work from a
/// counter do so in turns, so that each gets the same in every run. Only if there are no more of them than
/// multiprocessors, and 32: each needs a thread and its stacks.
void take_turns(Device& device, const Stage& stage, const Case& c);

/// Takes down what the last run of the device, of this stage on this case, has done.
void note_work(Work& work, Device& device, const Stage& stage, const Case& c);

/// Runs a stage once on a case of its pass, whose blocks take their work in turns.
Work count_work(Device& device, const Stage& stage, const Case& c, const Inputs& inputs);

/// What a stage's work on a problem is compared with: that of parent_at(), if it is of the same pass and
/// takes the problem, or takes it without pages, with the keys of each request one after the other. What
/// computes gradients does other work than what computes attention.
struct CountedParent {
    const Stage* stage = nullptr;  ///< null if there is none
    Case problem;
};
CountedParent counted_parent(const Stage& stage, const Case& c);

/// A stage's work on a problem and that of its counted_parent().
struct Change {
    const Stage* stage = nullptr;
    /// Null for the first stage of a pass, whose `before` is all zeros.
    const Stage* parent = nullptr;
    Case problem;
    Work before, after;
};

/// One change for each stage, each on the problem that `problem_of` gives, in the stage's pass.
std::vector<Change> count_changes(Device& device, const std::vector<const Stage*>& stages,
                                  const std::function<Case(const Stage&)>& problem_of, const OnStep& on_step);

/// A small problem on which a stage's change shows: of the same kind as the regime that the stage names.
Case telling_case(const Stage& stage);

/// Counters down, stages across, without those that are 0 for all of them.
Table work_table(const std::vector<Change>& changes);

/// One row for each counter that a stage moves against its parent.
Table change_table(const std::vector<Change>& changes);
/// The same for one stage that has a parent.
Table change_table(const Change& change);

/// The counters that a change leaves as they were, and are not 0: "mma, tiles"
std::string unchanged_counters(const Change& change);

}  // namespace ladder
