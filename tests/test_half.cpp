/// @file
/// fp16 and bf16 on the host are Eigen's, and the CPU back-end's own. They must be CUDA's, bit for bit.

#include <Eigen/Core>
#include <cmath>
#include <cstring>

#include "tests/catch.h"
#include "tests/half_conversions.h"

#ifdef LADDER_HAS_CPU
#    include "simt/half.h"
#endif

namespace {

template <class T>
std::uint16_t bits_of(float x) {
    return Eigen::numext::bit_cast<std::uint16_t>(T(x));
}

template <class T>
float value_of(std::uint16_t bits) {
    return static_cast<float>(Eigen::numext::bit_cast<T>(bits));
}

/// Calls check(x) for floats of every exponent and sign, at and around the points where rounding decides.
template <class Check>
void for_each_float(Check check) {
    for (std::uint32_t top = 0; top < 0x10000; ++top) {
        for (const std::uint32_t low :
             {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
            const std::uint32_t bits = top << 16 | low;
            float x;
            std::memcpy(&x, &bits, sizeof x);
            check(x);
        }
    }
}

}  // namespace

#ifdef LADDER_HAS_CPU

TEST_CASE("half: the CPU back-end rounds to fp16 and bf16 as Eigen does, and reads them as Eigen does") {
    std::uint64_t different = 0;
    for_each_float([&](float x) {
        different += simt::round_to<simt::fp16>(x).bits != bits_of<Eigen::half>(x);
        different += simt::round_to<simt::bf16>(x).bits != bits_of<Eigen::bfloat16>(x);
    });
    CHECK(different == 0);
    const auto differ = [](float a, float b) { return std::memcmp(&a, &b, sizeof a) != 0; };
    for (std::uint32_t i = 0; i < 0x10000; ++i) {
        const auto bits = static_cast<std::uint16_t>(i);
        different += differ(value_of(simt::fp16{bits}), value_of<Eigen::half>(bits));
        different += differ(value_of(simt::bf16{bits}), value_of<Eigen::bfloat16>(bits));
    }
    CHECK(different == 0);
}

#endif

#ifdef LADDER_HAS_GPU

namespace {

template <class T>
std::uint64_t different_roundings(std::uint16_t (*cuda)(float)) {
    std::uint64_t different = 0;
    for_each_float([&](float x) {
        if (std::isnan(x)) return;  // which NaN is nobody's business
        different += bits_of<T>(x) != cuda(x);
    });
    return different;
}

template <class T>
std::uint64_t different_values(float (*cuda)(std::uint16_t)) {
    std::uint64_t different = 0;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const float ours = value_of<T>(static_cast<std::uint16_t>(bits)),
                    theirs = cuda(static_cast<std::uint16_t>(bits));
        different += std::isnan(theirs) ? !std::isnan(ours) : std::memcmp(&ours, &theirs, sizeof ours) != 0;
    }
    return different;
}

}  // namespace

TEST_CASE("half: the host rounds to fp16 and bf16 as CUDA does, and reads them as CUDA does") {
    CHECK(different_roundings<Eigen::half>(half_conversions::to_fp16) == 0);
    CHECK(different_roundings<Eigen::bfloat16>(half_conversions::to_bf16) == 0);
    CHECK(different_values<Eigen::half>(half_conversions::from_fp16) == 0);
    CHECK(different_values<Eigen::bfloat16>(half_conversions::from_bf16) == 0);
}

#endif
