/// @file
/// The 8-bit type e4m3 and the sums of its products. A matrix product of Hopper keeps fewer bits of them than
/// fp32 has.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>

#include "simt/half.h"

namespace simt {

/// 1 sign bit, 4 of the exponent (bias 7), 3 of the fraction. No infinities: the largest number is 448, and
/// 0x7f is NaN.
struct e4m3 {
    std::uint8_t bits;
};

/// To the nearest, ties to even. Too large becomes 448 of its sign, NaN 0x7f (cvt.rn.satfinite).
template <>
inline e4m3 round_to<e4m3>(float x) {
    const auto f = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = f >> 24 & 0x80, magnitude = f & 0x7fff'ffff;
    if (magnitude > 0x7f80'0000) return {0x7f};
    std::uint32_t bits;
    if (magnitude >= 0x43e0'0000) {  // 448
        bits = 0x7e;
    } else if (magnitude < 0x3c80'0000) {  // 2^-6: multiples of 2^-9, as floats from 2^14 on are
        bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - 0x4680'0000;
    } else {  // the exponent's bias becomes 7; a carry out of the fraction goes where it belongs
        bits = (magnitude - (120u << 23) + 0x7'ffff + (magnitude >> 20 & 1)) >> 20;
    }
    return {static_cast<std::uint8_t>(sign | bits)};
}

inline float value_of(e4m3 x) {
    const std::uint32_t sign = (x.bits & 0x80u) << 24, magnitude = x.bits & 0x7fu;
    if (magnitude == 0x7f) return std::bit_cast<float>(0x7fc0'0000u);
    return std::bit_cast<float>(
        sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 20) * 0x1p120f));
}

/// An element of a product's operand: x = value, and the exponent by which its product is aligned.
struct AlignedElement {
    static constexpr int of_zero = -500, of_nan = 1000;  ///< below, and above, each sum of two others

    AlignedElement() = default;
    explicit AlignedElement(e4m3 x) : value(value_of(x)), exponent((x.bits >> 3 & 15) - 7) {
        const int magnitude = x.bits & 0x7f;
        if (magnitude < 8) exponent = magnitude == 0 ? of_zero : -6;  // subnormal numbers are not normalized
        if (magnitude == 0x7f) value = 0.0f, exponent = of_nan;
    }
    float value;
    int exponent;
};

/// C + a sum of `depth` products of e4m3, or that sum if not `add`, as wgmma computes it. All terms are
/// aligned to the largest exponent among them, and what is then below 13 bits of fraction is cut off. The sum
/// of these is exact, and is cut off in turn at 13 bits of its own fraction. So an addend below 2^-13 of the
/// largest one is lost, and a sum that grows by such addends is too small, never too large. `A` and `B` are
/// rows of A and of the transposed B.
template <int depth>
float add_products(const AlignedElement* A, const AlignedElement* B, float C, bool add) {
    constexpr int fraction = 13, least_of_product = -12;
    if (!add) C = 0.0f;
    const auto bits = std::bit_cast<std::uint32_t>(C);
    const int field = static_cast<int>(bits >> 23 & 0xff);
    int exponent = C == 0.0f ? 2 * AlignedElement::of_zero : std::max(field, 1) - 127;
    const bool is_finite = field != 0xff;
    for (int k = 0; k < depth; ++k) exponent = std::max(exponent, A[k].exponent + B[k].exponent);
    constexpr std::uint32_t nan = 0x7fff'ffff;
    if (exponent > 128 || C != C) return std::bit_cast<float>(nan);
    if (!is_finite) return C;
    if (exponent < least_of_product)  // no product but 0
        return std::bit_cast<float>(bits & ~0x3ffu) + 0.0f;
    const auto power = [](int n) { return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23); };
    const float scale = power(fraction - exponent);
    auto sum = static_cast<std::int32_t>(C * scale);
    for (int k = 0; k < depth; ++k) sum += static_cast<std::int32_t>(A[k].value * B[k].value * scale);
    const auto magnitude = static_cast<std::uint32_t>(std::abs(sum));
    const int excess = std::max(static_cast<int>(std::bit_width(magnitude)) - (fraction + 1), 0);
    const auto kept = static_cast<float>(magnitude >> excess << excess) * power(exponent - fraction);
    return sum < 0 ? -kept : kept;
}

}  // namespace simt
