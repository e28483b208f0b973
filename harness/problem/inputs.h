/// @file
/// The inputs of a case: ordinary and adversarial, the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/problem/case.h"

namespace ladder {

/// A kind of input. Ordinary and adversarial; `lab verify --input` takes the names.
struct InputKind {
    const char* name;         ///< "normal", "huge", "rising", "falling", "constant", "one_hot"
    const char* description;  ///< one line
};
const std::vector<InputKind>& input_kinds();

/// 16-bit Q, K and V in the layout of their case.
struct Inputs {
    std::vector<std::uint16_t> Q, K, V;
};

/// Deterministic in the case: the same on every machine.
Inputs make_inputs(const Case& c);

}  // namespace ladder
