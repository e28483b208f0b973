/// @file
/// CUDA's own conversions to and from 16 bits, to hold the host's to. Only where the CUDA toolkit is.
#pragma once

#include <cstdint>

namespace half_conversions {

std::uint16_t to_fp16(float x);
std::uint16_t to_bf16(float x);
float from_fp16(std::uint16_t bits);
float from_bf16(std::uint16_t bits);

}  // namespace half_conversions
