/// @file
/// A stage's problem with all its memory on a device.
#pragma once

#include "harness/device/device.h"
#include "harness/device/stopwatch.h"
#include "harness/device/workspace.h"
#include "harness/problem/case.h"
#include "harness/problem/inputs.h"

namespace ladder {

/// Q, K and V of one case on the device, which stages can share. Throws CannotRun.
struct DeviceInputs {
    DeviceInputs(Device& device, const Inputs& inputs);
    /// The same kind of inputs; N(0, 1) numbers are made there, since they are quicker than make_inputs().
    DeviceInputs(Device& device, Stopwatch& stopwatch, const Case& c);

    Buffer Q, K, V;
};

/// One stage's outputs and workspace, and the problem that points to them and to the inputs: to be timed or
/// profiled. Throws CannotRun.
struct DeviceProblem {
    DeviceProblem(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs);

    Buffer O, L;
    Workspace workspace;
    Problem problem;
};

}  // namespace ladder
