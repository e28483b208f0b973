/// @file
/// The roofline: how many operations a stage does for each byte of HBM, and how fast it does them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/picture.h"
#include "harness/time/profile.h"
#include "harness/time/results.h"

namespace ladder {

/// The seven stages of the algorithm and the last of each part, on one problem of long queries and one of
/// decoding, under the two ceilings of the machine.
struct Roofline {
    /// One stage on one problem.
    struct Point {
        std::string folder;
        std::string problem;   ///< "train 2k"
        double intensity = 0;  ///< operations per byte read from or written to HBM, as a profiler counted it
        double tflops = 0;     ///< operations per second, in 10^12
    };

    std::string machine;  ///< "NVIDIA H200"
    double tflops = 0;    ///< what a GEMM reaches, in 10^12 operations per second
    double gbs = 0;       ///< what a copy reaches, in 10^9 bytes per second
    std::vector<Point> points;
};

/// From a timing and a profile. A stage that either has not on the problem is left out; empty if a ceiling is
/// missing or no stage is left.
std::optional<Roofline> roofline(const Results& results, const Profile& profile);

Picture picture_of(const Roofline& roofline);

}  // namespace ladder
