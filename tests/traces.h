/// @file
/// Traces of small problems, for tests.
#pragma once

#include "harness/device/device.h"
#include "harness/features/features.h"
#include "harness/problem/case.h"
#include "harness/trace/trace.h"

namespace ladder::test {

inline constexpr int multiprocessors = 2;

inline Case make_case(const Shape& shape, bool causal) {
    Case c;
    c.shape = shape;
    c.causal = causal;
    return c;
}

inline Trace trace_of(const Stage& stage, const Case& c) {
    return record_trace(*open_device(Backend::cpu), stage, c, multiprocessors);
}

/// Whether it takes the feature, by instructions that Hopper alone has.
inline bool takes_on_hopper(const Stage& stage, Feature feature) {
    return takes(stage, feature) && stage.compute_capability != 0;
}

}  // namespace ladder::test
