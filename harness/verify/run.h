/// @file
/// One run of a stage on a device, between canaries.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/device/device.h"
#include "harness/device/device_problem.h"
#include "harness/problem/case.h"
#include "harness/problem/inputs.h"
#include "stages/stage.h"

namespace ladder {

/// What a stage wrote: 16-bit tensors (B, heads, N, d), whatever the layout of the case, and L (B, H, Nq).
struct Outputs {
    std::vector<std::uint16_t> O = {};
    std::vector<float> L = {};
    std::vector<std::uint16_t> dQ = {}, dK = {},
                               dV = {};  ///< of the backward pass, which leaves O and L empty
};

/// One of the 16-bit tensors that a pass computes: (B, heads, N, d).
struct OutputTensor {
    const char* name;  ///< "O", or "dQ", "dK" and "dV"
    std::vector<std::uint16_t> Outputs::*elements;
    void* Addresses::*address;
    Tensor tensor;
    bool of_keys;  ///< it has the heads and rows of K, and not those of Q

    int heads(const Shape& s) const { return of_keys ? s.Hkv : s.H; }
    int rows(const Shape& s) const { return of_keys ? s.Nk : s.Nq; }
};
const std::vector<OutputTensor>& output_tensors(Pass pass);

/// Whether an element is still what it was before the stage ran.
bool is_unwritten(std::uint16_t stored);
bool is_unwritten(float stored);

/// Throws CannotRun, saying how many bytes it would need, if the device has not the memory for the case's
/// inputs and outputs and the stage's workspace.
void require_room(const Device& device, const Stage& stage, const Case& c);

/// Runs a stage once, on as many multiprocessors as the case says. Outputs start as NaN between canaries,
/// which also lie between rows that have gaps; the workspace starts as NaN before its counters. Throws
/// CheckFailed if a canary was touched or a counter not left at 0, and what Device::run throws. Whether every
/// element was written is for report_impossible() to say. Throws CannotRun if the case wants multiprocessors
/// that a GPU has not.
Outputs run_guarded(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs);

}  // namespace ladder
