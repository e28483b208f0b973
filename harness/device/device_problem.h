/// @file
/// A stage's problem with all its memory on a device, to be timed or profiled.
#pragma once

#include "harness/device/device.h"
#include "harness/device/stopwatch.h"
#include "harness/device/workspace.h"
#include "harness/problem/case.h"

namespace ladder {

/// Q, K and V of one case on the device: N(0, 1) numbers, which stages can share. Throws CannotRun.
struct DeviceInputs {
    DeviceInputs(Device& device, Stopwatch& stopwatch, const Case& c);

    Buffer Q, K, V;
};

/// One stage's outputs and workspace, and the problem that points to them and to the inputs. Throws
/// CannotRun.
struct DeviceProblem {
    DeviceProblem(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs);

    Buffer O, L;
    Workspace workspace;
    Problem problem;
};

}  // namespace ladder
