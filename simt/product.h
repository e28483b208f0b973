/// @file
/// What matrix products compute, and where their operands lie. Internal to simt/.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "simt/hopper.h"
#include "simt/shared_memory.h"

namespace simt {

/// A matrix descriptor. Offsets in bytes.
struct Descriptor {
    explicit Descriptor(std::uint64_t bits)
        : start((bits & 0x3fff) << 4),
          leading((bits >> 16 & 0x3fff) << 4),
          stride((bits >> 32 & 0x3fff) << 4),
          swizzle(static_cast<int>(bits >> 62)) {}
    std::size_t start, leading, stride;
    int swizzle;

    /// Calls f(place, row, k) for each 16 bytes, at that place in shared memory, of `rows` x 16 elements.
    /// Those of a row lie together (K-major), and these are (row, k .. k + 7); or, transposed, those of a
    /// column (MN-major), and these are (row .. row + 7, k).
    template <class F>
    void for_each_piece(bool transposed, int first_row, int rows, F f) const {
        for (int k = 0; transposed && k < 16; ++k) {
            for (int row = first_row; row < first_row + rows; row += 8)
                f(swizzled(start + row / 64 * leading + row % 64 * 2 + k / 8 * stride + k % 8 * 128), row, k);
        }
        for (int row = first_row; !transposed && row < first_row + rows; ++row) {
            const std::size_t place = start + row / 8 * stride + row % 8 * 128;
            for (int k = 0; k < 16; k += 8) f(swizzled(place + 2 * k), row, k);
        }
    }
};

/// Row and column of accumulator i of a lane, in its warp's 16 rows.
constexpr int row_of(int lane, int i) {
    return lane / 4 + i / 2 % 2 * 8;
}
constexpr int column_of(int lane, int i) {
    return lane % 4 * 2 + i % 2 + i / 4 * 8;
}

/// D += A B, or D = A B if not `add`, for 4 rows and 8 columns: sums of `depth` products each, in their
/// order. So many at once keep the processor's adders busy. The strides are those of rows.
template <int depth>
inline void multiply_rows(const float* A, int A_stride, const float* B, int B_stride, float* D, int D_stride,
                          bool add) {
    float sum[4][8];  // no other's, so that the compiler may use vector registers
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 8; ++j) sum[i][j] = add ? D[i * D_stride + j] : 0.0f;
    }
    for (int k = 0; k < depth; ++k) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const float a = A[i * A_stride + k];
            for (int j = 0; j < 8; ++j) sum[i][j] += a * B[k * B_stride + j];
        }
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 8; ++j) D[i * D_stride + j] = sum[i][j];
    }
}

/// The accumulators of products in flight: what they will be. Until then registers hold a NaN of no result.
struct Accumulators {
    static constexpr std::uint32_t poison = 0xffff'dead;

    /// The lanes' accumulators are in flight from now on.
    explicit Accumulators(const Wgmma* const (&lanes)[32]) : columns(lanes[0]->columns), value(16 * columns) {
        for (int lane = 0; lane < 32; ++lane) {
            D[lane] = lanes[lane]->D;
            for (int i = 0; i < columns / 2; ++i)
                value[row_of(lane, i) * columns + column_of(lane, i)] =
                    std::exchange(D[lane][i], std::bit_cast<float>(poison));
        }
    }
    /// They are the threads' again. Returns a lane that has written to its own meanwhile, or -1.
    int give_back() const {
        for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < columns / 2; ++i) {
                if (std::bit_cast<std::uint32_t>(D[lane][i]) != poison) return lane;
                D[lane][i] = value[row_of(lane, i) * columns + column_of(lane, i)];
            }
        }
        return -1;
    }

    std::array<float*, 32> D;  ///< of each lane
    int columns;
    std::vector<float> value;  ///< 16 rows
    int in_flight = 0;         ///< products
    Site product{};            ///< the last of them
};

/// The part of a product that one warp computes: 16 of its 64 rows. It reads A and B, and writes D.
struct Product {
    Accumulators* accumulators;
    std::array<const std::uint32_t*, 32> A;  ///< of each lane, if it is in registers
    Wgmma operands;
    bool landed = false;
};

/// Computes products from shared memory and registers.
class Multiplier {
  public:
    /// B, which all four warps of a warpgroup have in common.
    void read_B(const std::byte* shared, const Wgmma& o) {
        if (o.type == ElementType::e4m3) return read_B8(shared, o);
        const int N = o.columns;
        float values[8];
        const int step = o.B_transposed ? 1 : N;
        const Descriptor B(o.B_descriptor);
        B.for_each_piece(o.B_transposed, 0, N, [&](std::size_t place, int column, int k) {
            values_of(shared + place, values, o.type == ElementType::fp16);
            for (int i = 0; i < 8; ++i) B_[k * N + column + i * step] = values[i];
        });
    }
    /// D = A B (+ D) for the 16 rows of A from `first_row` on, with the B that was read last.
    void land(const std::byte* shared, Product& product, int first_row) {
        product.landed = true;
        if (product.operands.type == ElementType::e4m3) {
            read_A8(shared, product, first_row);
            return land8(product);
        }
        read_A(shared, product, first_row);
        const int N = product.operands.columns;
        float* D = product.accumulators->value.data();
        for (int row = 0; row < 16; row += 4) {
            for (int column = 0; column < N; column += 8)
                multiply_rows<16>(&A_[row * 16], 16, &B_[column], N, D + row * N + column, N,
                                  product.operands.add);
        }
    }

  private:
    static void values_of(const void* from, float (&values)[8], bool is_fp16) {
        std::uint16_t bits[8];
        std::memcpy(bits, from, sizeof bits);
        for (int i = 0; i < 8; ++i) values[i] = is_fp16 ? value_of(fp16{bits[i]}) : value_of(bf16{bits[i]});
    }
    void read_A(const std::byte* shared, const Product& product, int first_row) {
        const Wgmma& o = product.operands;
        if (o.A == nullptr) {
            float values[8];
            const Descriptor A(o.A_descriptor);
            A.for_each_piece(false, first_row, 16, [&](std::size_t place, int row, int k) {
                values_of(shared + place, values, o.type == ElementType::fp16);
                std::copy_n(values, 8, &A_[(row - first_row) * 16 + k]);
            });
            return;
        }
        for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < 8; ++i) {
                const auto bits = static_cast<std::uint16_t>(product.A[lane][i / 2] >> 16 * (i % 2));
                A_[row_of(lane, i) * 16 + column_of(lane, i)] =
                    o.type == ElementType::fp16 ? value_of(fp16{bits}) : value_of(bf16{bits});
            }
        }
    }

    static constexpr int columns8 = AlignedColumns::columns;

    // The same of 8-bit elements: 32 bytes of a row as well, with the elements of a sum together.
    void read_B8(const std::byte* shared, const Wgmma& o) {
        Descriptor(o.B_descriptor)
            .for_each_piece(false, 0, o.columns, [&](std::size_t place, int column, int k) {
                for (int i = 0; i < 16; ++i)
                    B8_[column / columns8].set(2 * k + i, column % columns8, element(shared + place + i));
            });
    }
    void read_A8(const std::byte* shared, const Product& product, int first_row) {
        const Wgmma& o = product.operands;
        if (o.A == nullptr) {
            Descriptor(o.A_descriptor)
                .for_each_piece(false, first_row, 16, [&](std::size_t place, int row, int k) {
                    for (int i = 0; i < 16; ++i)
                        A8_[row - first_row].set(2 * k + i, element(shared + place + i));
                });
            return;
        }
        for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < 16; ++i) {
                const int r = i / 4;
                const auto bits = static_cast<std::uint8_t>(product.A[lane][r] >> i % 4 * 8);
                A8_[lane / 4 + r % 2 * 8].set(lane % 4 * 4 + i % 4 + r / 2 * 16, value_of(e4m3{bits}));
            }
        }
    }
    void land8(Product& product) {
        const int N = product.operands.columns;
        float* D = product.accumulators->value.data();
        for (int row = 0; row < 16; ++row) {
            for (int column = 0; column < N; column += columns8)
                add_products(A8_[row], B8_[column / columns8], &D[row * N + column], product.operands.add);
        }
    }
    static float element(const std::byte* from) {
        return value_of(e4m3{std::to_integer<std::uint8_t>(*from)});
    }

    std::array<float, 16 * 16> A_;
    std::array<float, 16 * 256> B_;
    std::array<AlignedRow, 16> A8_;
    std::array<AlignedColumns, 256 / columns8> B8_;
};

}  // namespace simt
