/// @file
/// The ladder at a glance: how fast its stages are on one problem, one after the other, as a picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/picture.h"
#include "harness/time/results.h"

namespace ladder {

/// The stages on the way to the last one of a branch, timed on one problem. All rates are in `unit`.
struct Climb {
    /// One stage.
    struct Step {
        std::string folder;
        std::optional<double> rate;         ///< empty if it was not timed, or was wrong
        std::optional<double> over_parent;  ///< its speedup over the step before; empty for the first
        bool shows_here = false;            ///< its change should show on this problem
        bool shared = false;  ///< on the way to the last stages of all branches of the forward pass
    };
    /// Something to compare with: a library, or what the machine's memory gives.
    struct Yardstick {
        std::string name;
        double rate = 0;
    };

    std::string name;     ///< of its files: the regime
    std::string title;    ///< "train 2k"
    std::string problem;  ///< "8 x 16 heads of 128, N = 2k, bf16"
    std::string machine;  ///< "NVIDIA H200"
    std::string unit;     ///< "TFLOP/s" or "GB/s"
    std::vector<Step> steps;
    std::vector<Yardstick> yardsticks;  ///< the slowest first
};

/// One for each kind of problem that a branch is about: many heads, few masked ones, one query row, and
/// gradients. A stage is in it if it lies on the way to the last stage whose change shows in a problem of
/// that unit and pass.
std::vector<Climb> climbs(const Results& results);

/// All of it as one line of JSON: what draw.py reads.
std::string to_line(const Climb& climb);

/// The same in words, in one line, for those who do not see it.
std::string to_words(const Climb& climb);

Picture picture_of(const Climb& climb);

}  // namespace ladder
