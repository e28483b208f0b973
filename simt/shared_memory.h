/// @file
/// The dynamic shared memory of a block, and where its bytes come from. Internal to simt/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "simt/simt.h"

namespace simt {

/// Bytes that lie together in a swizzled tile.
constexpr std::size_t piece_bytes = 16;

/// 128-byte swizzle: the place of a byte of shared memory, from its place in rows of 128 bytes.
constexpr std::size_t swizzled(std::size_t place) {
    return place ^ (place >> 7 & 7) << 4;
}

/// As much memory as a block can have. Places are bytes from its start.
class SharedMemory {
  public:
    void begin_launch(std::size_t bytes) { bytes_ = bytes; }
    void begin_block() { std::memset(data(), 0xff, bytes_); }  // NaN in every floating-point type

    std::byte* data() const { return memory_; }
    std::size_t bytes() const { return bytes_; }
    std::size_t place_of(const void* address) const {
        return static_cast<std::size_t>(static_cast<const std::byte*>(address) - data());
    }
    bool contains(const void* address) const { return place_of(address) < bytes_; }

  private:
    alignas(1024) mutable std::byte memory_[hopper_shared_bytes];
    std::size_t bytes_ = 0;  ///< that the launch asked for
};

/// What wrote each piece of shared memory last: a copy, and from where, or a warp. Places are bytes from its
/// start. A copy counts from when it starts: to read before it has landed is a race anyway.
class Origins {
  public:
    static constexpr std::size_t copied = 16, stored = 4;  ///< bytes of a piece
    static constexpr int nobody = -1;

    void begin_block() {
        sources_.assign(hopper_shared_bytes / copied, nullptr);
        warps_.assign(hopper_shared_bytes / stored, nobody);
    }

    /// A copy of 16 bytes; `source` is null where it writes zeros.
    void copy(std::size_t place, const void* source) {
        sources_[place / copied] = source;
        std::fill_n(warps_.begin() + static_cast<std::ptrdiff_t>(place / stored), copied / stored, nobody);
    }
    void store(std::size_t place, std::size_t bytes, int warp) {
        for (std::size_t at = place; at < place + bytes; at += stored) {
            sources_[at / copied] = nullptr;
            warps_[at / stored] = static_cast<std::int16_t>(warp);
        }
    }

    /// The global memory that the 16 bytes there were copied from, or null.
    const void* source(std::size_t place) const { return sources_[place / copied]; }
    /// The warp that stored the byte there, or none.
    int warp(std::size_t place) const { return warps_[place / stored]; }

  private:
    std::vector<const void*> sources_;
    std::vector<std::int16_t> warps_;
};

}  // namespace simt
