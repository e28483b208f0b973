#include "harness/problem/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>

#include "harness/ladder/ladder.h"
#include "stages/errors.h"

namespace ladder {
namespace {

struct Size {
    const char* name;
    int Shape::*value;
    int limit;
};

// B and H are grid dimensions y and z, which CUDA bounds. Rows leave room to round up to whole tiles in an
// int.
constexpr int grid_limit = 65535;
constexpr int row_limit = 1 << 30;
constexpr std::array<Size, 6> shape_sizes{{
    {"B", &Shape::B, grid_limit},
    {"H", &Shape::H, grid_limit},
    {"Hkv", &Shape::Hkv, grid_limit},
    {"Nq", &Shape::Nq, row_limit},
    {"Nk", &Shape::Nk, row_limit},
    {"d", &Shape::d, row_limit},
}};

}  // namespace

const std::set<int>& known_head_dims() {
    static const std::set<int> known = [] {
        std::set<int> dims;
        for (const Stage& stage : stages()) dims.insert(stage.head_dims.begin(), stage.head_dims.end());
        return dims;
    }();
    return known;
}

Shape parse_shape(std::string_view text) {
    Shape shape;
    std::string_view rest = text;
    for (std::size_t i = 0; i < shape_sizes.size(); ++i) {
        const std::string_view word = rest.substr(0, rest.find(','));
        const bool last = i + 1 == shape_sizes.size();
        if (last != (word.size() == rest.size())) {
            throw BadUsage(fmt::format("shape '{}': expected six sizes B,H,Hkv,Nq,Nk,D", text));
        }
        const auto [end, error] =
            std::from_chars(word.data(), word.data() + word.size(), shape.*shape_sizes[i].value);
        if (error == std::errc::result_out_of_range) {
            throw BadUsage(fmt::format("shape '{}': {} = {} is too large", text, shape_sizes[i].name, word));
        }
        if (error != std::errc() || end != word.data() + word.size()) {
            throw BadUsage(
                fmt::format("shape '{}': {} = '{}' is not a whole number", text, shape_sizes[i].name, word));
        }
        rest.remove_prefix(last ? rest.size() : word.size() + 1);
    }
    validate(shape);
    return shape;
}

void validate(const Shape& shape) {
    for (const auto& [name, member, limit] : shape_sizes) {
        const int value = shape.*member;
        if (value < 1) throw BadUsage(fmt::format("{} = {}: every size must be at least 1", name, value));
        if (value > limit) throw BadUsage(fmt::format("{} = {}: at most {}", name, value, limit));
    }
    if (shape.H % shape.Hkv != 0) {
        throw BadUsage(
            fmt::format("H = {} is not a multiple of Hkv = {}: each key/value head serves the same number of "
                        "query heads",
                        shape.H, shape.Hkv));
    }
    if (const auto& dims = known_head_dims(); !dims.contains(shape.d))
        throw BadUsage(
            fmt::format("no stage has head dimension {}; there are {}", shape.d, fmt::join(dims, ", ")));
    if (problem_bytes(shape) > 0x1p60) {
        throw BadUsage(
            fmt::format("{}: the tensors would take {:.1e} bytes", to_string(shape), problem_bytes(shape)));
    }
}

std::string axes_text(const std::vector<std::int64_t>& axes) {
    return fmt::format("({})", fmt::join(axes, ", "));
}

Shape shape_of(const std::vector<std::int64_t>& Q, const std::vector<std::int64_t>& K,
               const std::vector<std::int64_t>& V, Layout layout, std::optional<int> d) {
    const std::size_t head = layout == Layout::bnhd ? 2 : 1, row = 3 - head;
    if (K != V)
        throw BadUsage(fmt::format("K is {} and V is {}: they must agree", axes_text(K), axes_text(V)));
    if (Q[0] != K[0] || Q[3] != K[3]) {
        throw BadUsage(fmt::format("Q is {} and K is {}: B and d must agree", axes_text(Q), axes_text(K)));
    }
    // Sizes beyond an int are beyond every limit too; validate() names them.
    const auto size = [](std::int64_t n) { return static_cast<int>(std::min<std::int64_t>(n, INT_MAX)); };
    const Shape shape{.B = size(Q[0]),
                      .H = size(Q[head]),
                      .Hkv = size(K[head]),
                      .Nq = size(Q[row]),
                      .Nk = size(K[row]),
                      .d = d.value_or(size(Q[3]))};
    validate(shape);
    return shape;
}

void require_head_dim(const Stage& stage, int d) {
    if (stage.has_head_dim(d)) return;
    throw BadUsage(fmt::format("{} has no head dimension {}; it has {}", stage.folder(), d,
                               fmt::join(stage.head_dims, ", ")));
}

double problem_bytes(const Shape& s, Pass pass) {
    const double query_rows = double(s.B) * s.H * s.Nq, key_rows = double(s.B) * s.Hkv * s.Nk;
    return (pass == Pass::forward ? 2 : 4) * (query_rows + key_rows) * s.d * sizeof(std::uint16_t) +
           query_rows * sizeof(float);
}

std::string to_string(const Shape& s) {
    return fmt::format("B={} H={} Hkv={} Nq={} Nk={} d={}", s.B, s.H, s.Hkv, s.Nq, s.Nk, s.d);
}

}  // namespace ladder
