#include "harness/problem/case.h"

#include <fmt/format.h>

#include <cmath>

namespace ladder {

const char* name(Layout layout) {
    return layout == Layout::bhnd ? "bhnd" : "bnhd";
}

View make_view(void* data, Layout layout, int heads, int N, int d) {
    const std::int64_t batch = std::int64_t{heads} * N * d;
    if (layout == Layout::bhnd) return {data, batch, std::int64_t{N} * d, d};
    return {data, batch, d, std::int64_t{heads} * d};
}

float Case::softmax_scale() const {
    return scale.value_or(1.0f / std::sqrt(static_cast<float>(shape.d)));
}

std::string Case::description() const {
    const Shape& s = shape;
    std::string text = fmt::format("B={} H={} Hkv={} Nq={} Nk={} d={} {}{} {} {}", s.B, s.H, s.Hkv, s.Nq,
                                   s.Nk, s.d, name(dtype), causal ? " causal" : "", name(layout), input);
    if (scale) text += fmt::format(" scale={}", *scale);
    if (seed != 1) text += fmt::format(" seed={}", seed);
    return text;
}

}  // namespace ladder
