/// @file
/// Where the elements of a wgmma lie, in shared memory and in registers. Internal to simt/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simt {

/// Bytes that lie together in a swizzled tile.
constexpr std::size_t piece_bytes = 16;

/// 128-byte swizzle: the place of a byte of shared memory, from its place in rows of 128 bytes.
constexpr std::size_t swizzled(std::size_t place) {
    return place ^ (place >> 7 & 7) << 4;
}

/// A matrix descriptor. Offsets in bytes.
struct Descriptor {
    explicit Descriptor(std::uint64_t bits)
        : start((bits & 0x3fff) << 4),
          leading((bits >> 16 & 0x3fff) << 4),
          stride((bits >> 32 & 0x3fff) << 4),
          swizzle(static_cast<int>(bits >> 62)) {}
    std::size_t start, leading, stride;
    int swizzle;

    /// Calls f(place, row, k) for each 16 bytes of `rows` x 16 elements whose 16 elements of a row lie
    /// together (K-major): those of (row, k .. k + 7), at that place in shared memory.
    template <class F>
    void by_rows(int first_row, int rows, F f) const {
        for (int row = first_row; row < first_row + rows; ++row) {
            const std::size_t place = start + row / 8 * stride + row % 8 * 128;
            for (int k = 0; k < 16; k += 8) f(swizzled(place + 2 * k), row, k);
        }
    }
    /// The same where a column's elements lie together (MN-major): those of (row .. row + 7, k).
    template <class F>
    void by_columns(int rows, F f) const {
        for (int k = 0; k < 16; ++k) {
            for (int row = 0; row < rows; row += 8)
                f(swizzled(start + row / 64 * leading + row % 64 * 2 + k / 8 * stride + k % 8 * 128), row, k);
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

}  // namespace simt
