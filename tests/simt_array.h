/// @file
/// Global memory for small kernels.
#pragma once

#include <cstddef>
#include <vector>

#include "simt/simt.h"

namespace simt_cases {

/// Global memory that the checker knows, for one launch.
template <class V>
class Array {
  public:
    explicit Array(std::size_t size, bool writable = true) : values_((size * sizeof(V) + 127) / 128) {
        simt::register_allocation(data(), size * sizeof(V), "the array", writable);
    }
    ~Array() { simt::forget_allocation(data()); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    V* data() { return reinterpret_cast<V*>(values_.data()); }
    std::vector<V> first(std::size_t count) { return {data(), data() + count}; }

  private:
    struct alignas(128) Line {  // a line of the L2 cache
        unsigned char bytes[128] = {};
    };
    std::vector<Line> values_;
};

}  // namespace simt_cases
