/// @file
/// The 16-bit types. Kernels move them and do no arithmetic on them; instructions do.
#pragma once

#include <bit>
#include <cstdint>

namespace simt {

/// IEEE 754 binary16: 1 sign bit, 5 of the exponent, 10 of the fraction.
struct fp16 {
    std::uint16_t bits;
};

/// The upper half of a float.
struct bf16 {
    std::uint16_t bits;
};

/// To the nearest, ties to even. Too large becomes infinite, NaN a quiet NaN of its sign.
template <class T>
T round_to(float x);

template <>
inline fp16 round_to<fp16>(float x) {
    const auto f = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = f >> 16 & 0x8000, magnitude = f & 0x7fff'ffff;
    std::uint32_t bits;
    if (magnitude > 0x7f80'0000) {
        bits = 0x7e00;
    } else if (magnitude >= 0x4780'0000) {  // 2^16
        bits = 0x7c00;
    } else if (magnitude < 0x3880'0000) {  // 2^-14: multiples of 2^-24, as floats from 0.5 to 1 are
        bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f00'0000;
    } else {  // the exponent's bias becomes 15; a carry out of the fraction goes where it belongs
        bits = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    }
    return {static_cast<std::uint16_t>(sign | bits)};
}

template <>
inline bf16 round_to<bf16>(float x) {
    const auto f = std::bit_cast<std::uint32_t>(x);
    if ((f & 0x7fff'ffff) > 0x7f80'0000) return {static_cast<std::uint16_t>((f >> 16 & 0x8000) | 0x7fc0)};
    return {static_cast<std::uint16_t>((f + 0x7fff + (f >> 16 & 1)) >> 16)};
}

inline float value_of(fp16 x) {
    const std::uint32_t sign = (x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7fffu;
    // The fields of a float, whose exponent has a bias of 127 instead of 15: exact, also for subnormal
    // numbers. Without a branch, since the CPU back-end spends a tenth of its time in here.
    const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    const std::uint32_t infinite_or_nan = magnitude >= 0x7c00 ? 0x7f80'0000 : 0;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value) | infinite_or_nan);
}

inline float value_of(bf16 x) {
    return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}

/// The two values that pack() made one register of.
template <class T>
void unpack(std::uint32_t bits, float* low, float* high) {
    *low = value_of(T{static_cast<std::uint16_t>(bits)});
    *high = value_of(T{static_cast<std::uint16_t>(bits >> 16)});
}

}  // namespace simt
