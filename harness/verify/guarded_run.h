/// @file
/// One run of a stage on a device, between canaries.
#pragma once

#include <list>

#include "harness/cases/inputs.h"
#include "harness/device/device.h"
#include "harness/device/device_problem.h"
#include "harness/problem/case.h"
#include "harness/verify/outputs.h"
#include "stages/stage.h"

namespace ladder {

/// Throws CannotRun, saying how many bytes it would need, if the device has not the memory for the case's
/// inputs and outputs and the stage's workspace.
void require_room(Device& device, const Stage& stage, const Case& c);

/// Runs a stage once, on as many multiprocessors as the case says. Outputs start as NaN between canaries,
/// which also lie between rows that have gaps; the workspace starts as NaN before its counters. Throws
/// CheckFailed if a canary was touched or a counter not left at 0, and what Device::run throws. Whether every
/// element was written is for report_impossible() to say. Throws CannotRun if the case wants multiprocessors
/// that a GPU has not. The inputs are inputs_of_ranks().
Outputs run_guarded(Device& device, const Stage& stage, const Case& c,
                    const std::list<DeviceInputs>& inputs_of_ranks);

/// Runs a stage once on inputs of the host. Throws as run_guarded() does, CheckFailed also if an element was
/// not written, and CannotRun before any launch if the device has not enough memory.
Outputs run_stage(Device& device, const Stage& stage, const Case& c, const Inputs& inputs);

}  // namespace ladder
