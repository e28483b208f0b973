/// @file
/// A measurement for tests of what times stages, and of what reads the files of that.
#pragma once

#include <string>

#include "harness/ladder/ladder.h"
#include "harness/time/timing.h"

namespace ladder::test {

inline Row timed_row(int stage, int parent, double median_ms) {
    Row row;
    row.regime = "train";
    row.shape = {.B = 2, .H = 4, .Hkv = 2, .Nq = 100, .Nk = 200, .d = 64};
    row.stage = stage;
    row.parent = parent;
    row.folder = find_stage(stage)->folder();
    row.verified = true;
    row.max_error = 1e-3;
    row.timing = Timing{median_ms, median_ms * 0.9, median_ms * 1.1, 0.03, 12};
    return row;
}

/// A measurement that covers the default run.
inline Results sample_results(const std::string& date) {
    Results results;
    results.date = date;
    results.commit = "abc-dirty";
    results.hardware = {"NVIDIA H200", 132, 90, 90, 90, "580.159.04", "13.0"};
    results.ceilings = {750.0, std::nullopt, 4300.0};
    results.kernels = {{find_stage(0)->folder(), "0123456789abcdef"}};
    for (const Regime& regime : regimes()) {
        if (regime.sweep) continue;
        Row row = timed_row(0, -1, 2);
        row.regime = regime.name;
        row.shows_here = regime.name == find_stage(0)->shows_in;
        results.rows.push_back(row);
    }
    Row missing = timed_row(1, 0, 1);
    missing.timing.reset();
    missing.max_error.reset();
    missing.verified = false;
    missing.why_not = "workspace needs 24.0 GiB; the GPU has 10.0 GiB free";
    results.rows.push_back(missing);
    derive(results);
    return results;
}

}  // namespace ladder::test
