/// @file
/// Lines over the sequence length N, in panels that share their scales.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/picture.h"
#include "harness/time/results.h"

namespace ladder {

/// Panels of the same lines at the same N.
struct Chart {
    struct Line {
        std::string name;
        bool is_stage = false;  ///< a stage's measurement, and not what it is compared with
    };
    struct Panel {
        std::string title;                                       ///< "d = 64, no mask"
        std::vector<std::vector<std::optional<double>>> values;  ///< of each line, at each N
    };

    std::string name;         ///< of its files
    std::string title;        ///< what is shown, on which machine
    std::string problem;      ///< what the panels have in common
    bool are_ratios = false;  ///< on a logarithmic scale around 1
    std::vector<int> N;
    std::vector<Line> lines;
    std::vector<Panel> panels;
};

/// The rates of a sweep, a panel for each head dimension and mask, as the papers draw them. Problems with
/// groups of heads are left out. Wrong answers have no rate.
Chart benchmark_chart(const Results& results);

Picture picture_of(const Chart& chart);

}  // namespace ladder
