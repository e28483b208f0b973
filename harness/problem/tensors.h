/// @file
/// 16-bit tensors on the host, as Eigen sees them, and the scale with which they are rounded to e4m3.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>

#include "stages/stage.h"

namespace ladder {

/// Calls f with a value of the C++ type of `dtype`: Eigen::half or Eigen::bfloat16.
template <class F>
auto with_type(DType dtype, F&& f) {
    return dtype == DType::fp16 ? f(Eigen::half{}) : f(Eigen::bfloat16{});
}

/// One head of a (B, heads, N, d) tensor of T: (N, d), rows view.row elements apart.
template <class T>
auto head_of(const View& view, int b, int h, int N, int d) {
    using Rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    return Eigen::Map<Rows, Eigen::Unaligned, Eigen::OuterStride<>>(
        static_cast<T*>(view.data) + b * view.batch + h * view.head, N, d, Eigen::OuterStride<>(view.row));
}

/// Of elements that are rounded to e4m3, `largest` being the largest magnitude: that becomes 448, the largest
/// of its numbers. x is rounded from x inverse, and stands for its number times scale.
struct E4m3Scale {
    explicit E4m3Scale(float largest)
        : scale(std::max(largest, 0x1p-100f) / 448), inverse(448 / std::max(largest, 0x1p-100f)) {}

    float scale, inverse;  // both finite in fp32, also for zeros
};

}  // namespace ladder
