#include "tests/half_conversions.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace half_conversions {

// CUDA's headers convert on the host too, so this needs the toolkit but no GPU.

std::uint16_t to_fp16(float x) {
    return __half_as_ushort(__float2half_rn(x));
}
std::uint16_t to_bf16(float x) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
float from_fp16(std::uint16_t bits) {
    return __half2float(__ushort_as_half(bits));
}
float from_bf16(std::uint16_t bits) {
    return __bfloat162float(__ushort_as_bfloat16(bits));
}

}  // namespace half_conversions
