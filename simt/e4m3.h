/// @file
/// The 8-bit type e4m3 and the sums of its products. A product of a warpgroup (wgmma) keeps fewer bits of
/// them than fp32 has; one of a warp (mma.sync) keeps more.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

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

/// The power of two by which the products of an element are aligned; subnormal numbers are not normalized. A
/// product has the product of two powers: with 0 it is below, and with NaN above, each of two numbers.
inline float alignment_of(float number) {
    if (number == 0.0f) return 0x1p-60f;
    if (number != number) return 0x1p100f;
    return std::max(0x1p-6f, std::bit_cast<float>(std::bit_cast<std::uint32_t>(number) & 0x7f80'0000));
}

/// Elements of the operands of one instruction: of a row of A, and of some columns of B.
struct AlignedRow {
    static constexpr int depth = 32;
    float value[depth], power[depth];

    void set(int k, float number) {
        value[k] = number == number ? number : 0.0f;
        power[k] = alignment_of(number);
    }
};
struct AlignedColumns {
    static constexpr int columns = 4;
    /// As many as every machine multiplies at a time.
    using Numbers [[gnu::vector_size(4 * columns)]] = float;
    using Integers [[gnu::vector_size(4 * columns)]] = std::int32_t;
    Numbers value[AlignedRow::depth], power[AlignedRow::depth];

    void set(int k, int column, float number) {
        value[k][column] = number == number ? number : 0.0f;
        power[k][column] = alignment_of(number);
    }
};

/// The bits of each x that the mask has.
inline AlignedColumns::Numbers masked(AlignedColumns::Numbers x, std::int32_t mask) {
    return std::bit_cast<AlignedColumns::Numbers>(std::bit_cast<AlignedColumns::Integers>(x) & mask);
}
constexpr std::int32_t exponent_mask = 0x7f80'0000;

/// C += A B, or C = A B if not `add`, as wgmma computes it. All terms are aligned to the largest exponent
/// among them, and what is then below 13 bits of fraction is cut off. The sum of these is exact, and is cut
/// off in turn at 13 bits of its own fraction. So an addend below 2^-13 of the largest one is lost, and a sum
/// that grows by such addends is too small, never too large.
inline void add_products(const AlignedRow& A, const AlignedColumns& B, float* C, bool add) {
    using Numbers = AlignedColumns::Numbers;
    using Integers = AlignedColumns::Integers;
    constexpr float least = 0x1p-12f, most = 0x1p16f;  // powers of products of two numbers
    Numbers before = {}, largest = {};
    if (add) std::memcpy(&before, C, sizeof before);
    for (int k = 0; k < AlignedRow::depth; ++k) {
        const Numbers power = A.power[k] * B.power[k];
        largest = power > largest ? power : largest;
    }
    const Numbers own = masked(before, exponent_mask);
    const Numbers scale = 0x1p13f / (own > largest ? own : largest);
    Integers sum = __builtin_convertvector(before * scale, Integers);
    for (int k = 0; k < AlignedRow::depth; ++k)
        sum += __builtin_convertvector(A.value[k] * B.value[k] * scale, Integers);
    Numbers after =
        masked(__builtin_convertvector(sum, Numbers), ~0x3ff) / scale;  // exact, by a power of two
    after = largest < least ? masked(before, ~0x3ff) + 0.0f : after;    // no product but 0
    after = own == std::numeric_limits<float>::infinity() ? before : after;
    after = largest > most || before != before ? std::bit_cast<Numbers>(Integers{} + 0x7fff'ffff) : after;
    std::memcpy(C, &after, sizeof after);
}

/// C += A B as Hopper computes mma.sync of e4m3, for which it has no unit: the elements become fp16, which
/// holds them exactly, and are multiplied by two products of 16. The first one takes two of every four
/// elements, the second one adds the others. Either aligns its terms as above, but cuts them off at 25 bits,
/// and its sum at 23, the fraction of fp32. An addition in fp32 then adds the sum of all 32 to C, and rounds.
inline void add_products_in_halves(const AlignedRow& A, const AlignedColumns& B, float* C) {
    using Numbers = AlignedColumns::Numbers;
    using Integers = AlignedColumns::Integers;
    constexpr float finest = 0x1p-18f, most = 0x1p16f;  // every product is a multiple of `finest`
    Numbers sum = {}, highest = {};
    for (int half = 0; half < 2; ++half) {
        const auto for_each = [half](auto f) {
            for (int four = 2 * half; four < AlignedRow::depth; four += 4) f(four), f(four + 1);
        };
        Numbers largest = Numbers{} + finest;
        for_each([&](int k) {
            const Numbers power = A.power[k] * B.power[k];
            largest = power > largest ? power : largest;
        });
        highest = largest > highest ? largest : highest;
        const Numbers own = masked(sum, exponent_mask);
        largest = own > largest ? own : largest;
        // 16 products below 3.52 and a sum below 2, in units of 2^25: less than 2^31
        const Numbers scale = 0x1p25f / largest;
        Integers fixed = __builtin_convertvector(sum * scale, Integers);
        for_each([&](int k) { fixed += __builtin_convertvector(A.value[k] * B.value[k] * scale, Integers); });
        for (int c = 0; c < AlignedColumns::columns; ++c) {
            const auto exact = std::bit_cast<std::uint64_t>(static_cast<double>(fixed[c]));
            sum[c] = static_cast<float>(std::bit_cast<double>(exact & ~0x1fff'ffffull));  // towards 0
        }
        sum /= scale;
    }
    Numbers after;
    std::memcpy(&after, C, sizeof after);
    after += sum;
    after = highest > most || after != after ? std::bit_cast<Numbers>(Integers{} + 0x7fff'ffff) : after;
    std::memcpy(C, &after, sizeof after);
}

}  // namespace simt
