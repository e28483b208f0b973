/// @file
/// primitives.h of 8-bit elements: their products by a warpgroup and by a warp, and the conversion to them.

#include "tests/primitives.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

using Words = std::vector<std::uint32_t>;

/// Bits that look random and are the same everywhere.
__host__ __device__ std::uint32_t random_bits(std::uint32_t i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return (i ^ i >> 13) >> 8;
}

/// Rows of 128 bytes, with 128-byte swizzle.
template <int N>
struct ByteOperands {
    alignas(1024) std::uint16_t A[64][64];
    alignas(1024) std::uint16_t B[N][64];
};

enum class A_in { memory, registers };

/// What a product of 8-bit elements is tried on. wgmma keeps 13 bits of fraction, and each of these shows
/// which; mma keeps more.
enum class E4m3Case {
    random,      ///< normal and subnormal numbers of all exponents, added to 0 and to `before`
    zero,        ///< 0 + (1 + 2^-14): what becomes of an accumulator to which nothing is added
    cancelling,  ///< large products that cancel, next to small ones
    growing      ///< 2^13 + products of 1 and less: each of them is lost, or all are
};

/// Element i of operand A (0), B (1).
__host__ __device__ std::uint32_t operand_e4m3(E4m3Case what, int which, int row, int column) {
    const std::uint32_t random = random_bits(static_cast<std::uint32_t>(100000 * which + 512 * row + column));
    const std::uint32_t sign = random >> 8 & 0x80, any = (random ^ random >> 5) & 0x7f;
    if (what == E4m3Case::zero) return 0;
    if (what == E4m3Case::growing) return 0x30 + any % 9;  // 0.5 to 1
    const std::uint32_t bits = any == 0x7f ? 0x7e : any;
    if (what == E4m3Case::random) return sign | bits;
    // Of each four products two cancel: 416 * 416, with the sign of the operand's column.
    const int place = column % 4;
    if (place < 2) return 0x7d | (which == 0 && place == 1 ? 0x80 : 0);
    return sign | bits % 0x40;
}
__host__ __device__ float before_e4m3(E4m3Case what, int row, int column) {
    if (what == E4m3Case::zero) return row % 2 == 0 ? 1.0f + 0x1p-14f : -(1.0f + 0x1p-13f + 0x1p-23f);
    if (what == E4m3Case::growing) return 0x1p13f + static_cast<float>(column);
    return 0.25f * static_cast<float>(row) - static_cast<float>(column % 7);
}

/// A (64 x 32) is bytes 32 to 63 of its tile's rows, B bytes 32 to 63 of N rows. In memory: twice, the first
/// time without what D was.
template <int N, A_in A_place, E4m3Case what>
__global__ void wgmma_e4m3_kernel(float* out) {
    auto& shared = aligned_shared_memory<ByteOperands<N>>();
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const auto fill = [&](auto& tile, int which, int rows) {
        for (int i = thread; i < rows * 64; i += 128) {
            const int row = i / 64, column = i % 64;
            const std::uint32_t bits = operand_e4m3(what, which, row, 2 * column) |
                                       operand_e4m3(what, which, row, 2 * column + 1) << 8;
            store(&tile[row][column ^ row % 8 * 8], static_cast<std::uint16_t>(bits));
        }
    };
    fill(shared.A, 0, 64);
    fill(shared.B, 1, N);
    fence_proxy_async();
    __syncthreads();
    const int first_row = 16 * warp + lane / 4;
    float D[N / 2];
    for (int i = 0; i < N / 2; ++i)
        D[i] = before_e4m3(what, first_row + 8 * row_of(i), 2 * (lane % 4) + column_of(i));
    std::uint32_t a[4] = {};
    for (int r = 0; r < 4; ++r) {
        for (int e = 0; e < 4; ++e)
            a[r] |= operand_e4m3(what, 0, first_row + 8 * (r % 2), 32 + 4 * (lane % 4) + e + 16 * (r / 2))
                    << 8 * e;
    }
    const Descriptor A = matrix_descriptor(shared.A).template column<64>(16),
                     B = matrix_descriptor(shared.B).template column<64>(16);
    wgmma_fence();
    if constexpr (A_place == A_in::memory) {
        wgmma_e4m3<N>(D, A, B, false);
        wgmma_e4m3<N>(D, A, B, true);
    } else {
        wgmma_e4m3<N>(D, a, B, true);
    }
    wgmma_commit();
    wgmma_wait<0>(D);
    fence_operand(a);
    for (int i = 0; i < N / 2; ++i) store(&out[thread * (N / 2) + i], D[i]);
}

/// The warp's A (16 x 32) and B (32 x 8) are the first rows and columns of the warpgroup's.
template <E4m3Case what>
__global__ void mma_e4m3_kernel(float* out) {
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    const auto four_of = [&](int which, int row, int k) {
        std::uint32_t word = 0;
        for (int e = 0; e < 4; ++e) word |= operand_e4m3(what, which, row, k + e) << 8 * e;
        return word;
    };
    std::uint32_t a[4];
    for (int r = 0; r < 4; ++r) a[r] = four_of(0, g + 8 * (r % 2), 4 * t + 16 * (r / 2));
    float D[4];
    for (int i = 0; i < 4; ++i) D[i] = before_e4m3(what, g + 8 * row_of(i), 2 * t + column_of(i));
    mma_e4m3(D, a, four_of(1, g, 4 * t), four_of(1, g, 4 * t + 16));
    for (int i = 0; i < 4; ++i) store(&out[4 * lane + i], D[i]);
}

/// Numbers of all exponents that e4m3 has and beyond, halfway between two of it and next to that; infinities,
/// NaN.
__host__ __device__ float hard_for_e4m3(int i) {
    const float special[] = {0.0f,   -0.0f,  inf,   -inf,     inf - inf, 448.0f,
                             464.0f, 465.0f, -1e9f, 0x1p-10f, 0x1.8p-9f};
    if (i < 11) return special[i];
    const float power =
        i % 24 < 12 ? static_cast<float>(1 << i % 12) : 1.0f / static_cast<float>(1 << i % 12);
    const float x =
        (1.0f + static_cast<float>(i * 5 % 16) / 16 + static_cast<float>(i % 3 - 1) * 0x1p-20f) * power;
    return i % 2 == 0 ? x : -x;
}

__global__ void pack_e4m3_kernel(std::uint32_t* out) {
    for (int k = 0; k < 4; ++k) {
        const int i = 16 * static_cast<int>(threadIdx.x) + 4 * k;
        store(&out[4 * threadIdx.x + k],
              pack_e4m3(hard_for_e4m3(i), hard_for_e4m3(i + 1), hard_for_e4m3(i + 2), hard_for_e4m3(i + 3)));
    }
}

/// Calls f<what>(name) for each case.
template <class F>
void each_case(F f) {
    f.template operator()<E4m3Case::random>("random");
    f.template operator()<E4m3Case::zero>("zero");
    f.template operator()<E4m3Case::cancelling>("cancelling");
    f.template operator()<E4m3Case::growing>("growing");
}

/// Calls f<N, A_place, what>(name) for each product of 8-bit elements by a warpgroup.
template <class F>
void each_wgmma_e4m3(F f) {
    each_case([&]<E4m3Case what>(const std::string& name) {
        const auto of_width = [&]<int N>() {
            const std::string end = "_e4m3_" + name + "_" + std::to_string(N);
            f.template operator()<N, A_in::memory, what>("wgmma_ss" + end);
            f.template operator()<N, A_in::registers, what>("wgmma_rs" + end);
        };
        of_width.template operator()<80>();
        if constexpr (what == E4m3Case::random) {
            of_width.template operator()<64>();
            of_width.template operator()<128>();
            of_width.template operator()<256>();
        }
    });
}

/// Runs f(address) with memory for so many words, and returns these.
template <class F>
Words words_of(Device& device, std::size_t count, F f) {
    Words result(count);
    const Buffer out(device, 4 * count, "the result", true);
    f(out.data());
    device.download(result.data(), out.data(), 4 * count);
    return result;
}

}  // namespace

namespace primitives {

template <>
Results run_e4m3<Backend::LADDER_BACKEND>(Device& device) {
    Results results;
    each_wgmma_e4m3([&]<int N, A_in A_place, E4m3Case what>(const std::string& name) {
        results[name] = words_of(device, 64 * N, [](void* out) {
            launch(wgmma_e4m3_kernel<N, A_place, what>, dim3(1), 128, sizeof(ByteOperands<N>),
                   static_cast<float*>(out));
        });
    });
    each_case([&]<E4m3Case what>(const std::string& name) {
        results["mma_e4m3_" + name] = words_of(device, 4 * 32, [](void* out) {
            launch(mma_e4m3_kernel<what>, dim3(1), 32, 0, static_cast<float*>(out));
        });
    });
    results["pack_e4m3"] = words_of(device, 4 * 32, [](void* out) {
        launch(pack_e4m3_kernel, dim3(1), 32, 0, static_cast<std::uint32_t*>(out));
    });
    return results;
}

#ifndef __CUDACC__
namespace {

/// The numbers of e4m3 that are not negative, in the order of their bits, which is theirs.
double e4m3_number(int bits) {
    return bits < 8 ? bits * 0x1p-9 : std::ldexp(8 + bits % 8, bits / 8 - 10);
}
double e4m3_value(std::uint32_t byte) {
    return (byte & 0x80 ? -1 : 1) * e4m3_number(static_cast<int>(byte & 0x7f));
}
/// The nearest of them, by trying them all; of two the one whose last bit is 0.
std::uint32_t nearest_e4m3(float x) {
    if (std::isnan(x)) return 0x7f;
    const double size = std::min(std::abs(double{x}), 448.0);
    int best = 0;
    for (int bits = 1; bits < 0x7f; ++bits) {
        const double distance = std::abs(e4m3_number(bits) - size),
                     least = std::abs(e4m3_number(best) - size);
        if (distance < least || (distance == least && bits % 2 == 0)) best = bits;
    }
    return static_cast<std::uint32_t>(best) | (std::signbit(x) ? 0x80 : 0);
}

/// x without its bits below 2^n.
double cut(double x, int n) {
    return std::trunc(std::ldexp(x, -n)) * std::ldexp(1.0, n);
}
/// Floor of log2 |x|; for 0 less than of any other.
int exponent_of(double x) {
    return x == 0 ? -10000 : std::ilogb(x);
}
/// C + A B of 32 elements: terms cut at 13 bits below the largest exponent, where a product has the sum of
/// its factors' and a factor at least -6; then the sum cut at 13 bits of its own.
double add_e4m3(const std::array<std::uint32_t, 32>& A, const std::array<std::uint32_t, 32>& B, double C) {
    int largest = exponent_of(C);
    for (int k = 0; k < 32; ++k) {
        const double a = e4m3_value(A[k]), b = e4m3_value(B[k]);
        if (a * b != 0)
            largest = std::max(largest, std::max(exponent_of(a), -6) + std::max(exponent_of(b), -6));
    }
    double sum = cut(C, largest - 13);
    for (int k = 0; k < 32; ++k) sum += cut(e4m3_value(A[k]) * e4m3_value(B[k]), largest - 13);
    return cut(sum, exponent_of(sum) - 13);
}

/// C + A B by mma.sync: two sums of 16 products as of fp16, each cut at 25 bits below its largest exponent
/// and then at 23 of its own, the first of elements 0, 1, 4, 5, 8 ..., the second of that and the others;
/// and an addition in fp32.
float add_e4m3_by_mma(const std::array<std::uint32_t, 32>& A, const std::array<std::uint32_t, 32>& B,
                      float C) {
    double sum = 0;
    for (int half = 0; half < 2; ++half) {
        std::array<double, 17> terms{sum};
        for (int k = 0; k < 32; ++k) {
            if (k / 2 % 2 == half) terms[1 + k / 4 * 2 + k % 2] = e4m3_value(A[k]) * e4m3_value(B[k]);
        }
        int largest = exponent_of(sum);
        for (int k = 0; k < 32; ++k) {
            const double a = e4m3_value(A[k]), b = e4m3_value(B[k]);
            if (k / 2 % 2 == half && a * b != 0) largest = std::max(largest, exponent_of(a) + exponent_of(b));
        }
        sum = 0;
        for (const double term : terms) sum += cut(term, largest - 25);
        sum = cut(sum, exponent_of(sum) - 23);
    }
    return C + static_cast<float>(sum);
}

}  // namespace

Results e4m3_by_formula() {
    Results results;
    each_wgmma_e4m3([&]<int N, A_in A_place, E4m3Case what>(const std::string& name) {
        Words& words = results[name];
        for (int thread = 0; thread < 128; ++thread) {
            for (int i = 0; i < N / 2; ++i) {
                const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2);
                const int column = 2 * (thread % 4) + i % 2 + 8 * (i / 4);
                std::array<std::uint32_t, 32> A, B;
                for (int k = 0; k < 32; ++k) {
                    A[k] = operand_e4m3(what, 0, row, 32 + k);
                    B[k] = operand_e4m3(what, 1, column, 32 + k);
                }
                double D = add_e4m3(A, B, A_place == A_in::memory ? 0.0 : before_e4m3(what, row, column));
                if (A_place == A_in::memory) D = add_e4m3(A, B, D);
                const auto value = static_cast<float>(D);
                std::memcpy(&words.emplace_back(), &value, 4);
            }
        }
    });
    each_case([&]<E4m3Case what>(const std::string& name) {
        Words& words = results["mma_e4m3_" + name];
        for (int i = 0; i < 4 * 32; ++i) {
            const int lane = i / 4, row = lane / 4 + i % 4 / 2 * 8, column = lane % 4 * 2 + i % 2;
            std::array<std::uint32_t, 32> A, B;
            for (int k = 0; k < 32; ++k) {
                A[k] = operand_e4m3(what, 0, row, k);
                B[k] = operand_e4m3(what, 1, column, k);
            }
            const float value = add_e4m3_by_mma(A, B, before_e4m3(what, row, column));
            std::memcpy(&words.emplace_back(), &value, 4);
        }
    });
    Words& packed = results["pack_e4m3"];
    for (int i = 0; i < 4 * 32; ++i) {
        std::uint32_t& word = packed.emplace_back();
        for (int e = 0; e < 4; ++e) word |= nearest_e4m3(hard_for_e4m3(4 * i + e)) << 8 * e;
    }
    return results;
}
#endif

}  // namespace primitives
