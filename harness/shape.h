/// @file
/// Sizes as a user types them: parsed and validated here, for every command.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "harness/device.h"
#include "harness/stage.h"

namespace ladder {

/// Parses "B,H,Hkv,Nq,Nk,D" and validates it. Throws BadUsage.
Shape parse_shape(std::string_view text);

/// Throws BadUsage unless every size is at least 1 and within what kernels can index, the key/value heads
/// divide the query heads, some stage has the head dimension, and the tensors' bytes can be counted.
void validate(const Shape& shape);

/// Throws BadUsage if the tensors alone exceed the device's free memory, whatever the stage.
void require_memory(const Shape& shape, const Device& device);

/// "B=1 H=8 Hkv=2 Nq=512 Nk=512 d=64"
std::string to_string(const Shape& shape);

/// "1.5 GiB"
std::string human_bytes(double bytes);

}  // namespace ladder
