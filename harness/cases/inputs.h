/// @file
/// The inputs of a case: ordinary and adversarial, the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/problem/case.h"

namespace ladder {

/// 16-bit tensors (B, heads, N, d), whatever the layout of their case, and L (B, H, Nq).
struct Inputs {
    std::vector<std::uint16_t> Q, K, V;
    std::vector<std::uint16_t> dO = {}, O = {};  ///< of the backward pass alone
    std::vector<float> L = {};                   ///< of the backward pass alone
};

/// Deterministic in the case: the same on every machine. dO is N(0, 1) whatever the kind; O and L are as
/// add_forward() has them.
Inputs make_inputs(const Case& c);

/// Fills in O and L: attention of Q, K and V in double precision, rounded.
void add_forward(const Case& c, Inputs& inputs);

}  // namespace ladder
