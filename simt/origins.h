/// @file
/// Where the bytes of a block's shared memory come from, noted while a trace is recorded. Internal to simt/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "simt/simt.h"

namespace simt {

/// What wrote each piece of shared memory last: a copy, and from where, or a warp. Places are bytes from its
/// start. A copy counts from when it starts: whoever reads before it has landed is a race anyway.
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
    /// The warp that stored the byte there, or nobody.
    int warp(std::size_t place) const { return warps_[place / stored]; }

  private:
    std::vector<const void*> sources_;
    std::vector<std::int16_t> warps_;
};

}  // namespace simt
