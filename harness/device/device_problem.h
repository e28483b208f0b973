/// @file
/// A stage's problem with all its memory on a device.
#pragma once

#include <map>
#include <vector>

#include "harness/cases/inputs.h"
#include "harness/device/device.h"
#include "harness/device/stopwatch.h"
#include "harness/device/workspace.h"
#include "harness/features/features.h"
#include "harness/problem/case.h"

namespace ladder {

/// Copies the (B, heads, N, d) tensor at `dense`, of the host, to where a placement at `data` has it.
/// Elements have 8 or 16 bits.
template <class Element>
void upload(Device& device, void* data, const Placement& placement, const Element* dense);

/// The inputs of one case on the device, which stages can share. Between rows there is NaN, unless they are
/// too far apart, and so there is where no request has a key. Throws CannotRun.
struct DeviceInputs {
    DeviceInputs(Device& device, const Case& c, const Inputs& inputs);
    /// The same kind of inputs, without that NaN; N(0, 1) numbers are made there, since they are quicker than
    /// make_inputs(). For the same reason O and L of the backward pass are what last_forward() computes of
    /// them there: CannotRun if no stage does.
    DeviceInputs(Device& device, Stopwatch& stopwatch, const Case& c);

    /// Where they are; the outputs are nowhere.
    Addresses addresses() const;

    Buffer Q, K, V;
    Buffer dO, O, L;                    ///< of the backward pass alone; else empty
    std::map<Feature, Buffer> numbers;  ///< FeatureInfo::numbers of those that the case has
};

/// Which of Q, K and V a stage takes in e4m3.
std::vector<Tensor> tensors_in_e4m3(const Stage& stage);

/// Those in e4m3, otherwise empty: rounded on the host from the 16 bits that the device has, at the same
/// places, or where strides are no multiples of 16 bytes, with twice these. An element becomes the nearest
/// number to it in units of its head's scale, or its token's, in which the largest is 448. Scales of tokens
/// are laid out by head or by token; where no request has a key they are NaN. Throws CannotRun.
struct RoundedInputs {
    RoundedInputs(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs);
    void put_into(Problem& problem) const;

    struct Rounded {
        Buffer numbers, scales;
        View view, token_scales;  ///< the last without data where heads have scales
    };
    std::map<Tensor, Rounded> rounded;
};

/// The last rung that computes attention of the problem in 16 bits on the device, or null: of those with the
/// fewest features that have all of the problem's.
const Stage* last_forward(const Device& device, const Case& c);

/// One stage's outputs and workspace, and the problem that points to them and to the inputs: to be timed or
/// profiled. Of several ranks, the case is the part of one. Throws CannotRun.
struct DeviceProblem {
    DeviceProblem(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs,
                  int ranks = 1);

    Buffer O, L;        ///< of the forward pass, else empty
    Buffer dQ, dK, dV;  ///< of the backward pass, else empty
    Buffer dsinks;      ///< of that with sinks, else empty
    RoundedInputs rounded;
    Workspace workspace;
    Problem problem;
};

}  // namespace ladder
