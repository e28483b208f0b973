#include "harness/problem/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <climits>

#include "harness/ladder/ladder.h"
#include "harness/problem/cache.h"
#include "harness/problem/columns.h"
#include "harness/problem/documents.h"
#include "harness/problem/json.h"
#include "harness/problem/tiles.h"
#include "reference/attention.h"
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
constexpr std::array<Size, 6> sizes{{
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
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::string_view word = rest.substr(0, rest.find(','));
        const bool last = i + 1 == sizes.size();
        if (last != (word.size() == rest.size())) {
            throw BadUsage(fmt::format("shape '{}': expected six sizes B,H,Hkv,Nq,Nk,D", text));
        }
        const auto [end, error] =
            std::from_chars(word.data(), word.data() + word.size(), shape.*sizes[i].value);
        if (error == std::errc::result_out_of_range) {
            throw BadUsage(fmt::format("shape '{}': {} = {} is too large", text, sizes[i].name, word));
        }
        if (error != std::errc() || end != word.data() + word.size()) {
            throw BadUsage(
                fmt::format("shape '{}': {} = '{}' is not a whole number", text, sizes[i].name, word));
        }
        rest.remove_prefix(last ? rest.size() : word.size() + 1);
    }
    validate(shape);
    return shape;
}

Window parse_window(std::string_view text) {
    Window window;
    const std::size_t comma = text.find(',');
    const auto read = [&](std::string_view word, int& keys) {
        return read_number(word, keys) && keys >= -1 && keys < row_limit;
    };
    if (comma == text.npos || !read(text.substr(0, comma), window.left) ||
        !read(text.substr(comma + 1), window.right)) {
        throw BadUsage(fmt::format(
            "window '{}': expected LEFT,RIGHT, each a number of keys below 2^30, or -1 for all", text));
    }
    return window;
}

Dropout parse_dropout(std::string_view text) {
    double share = 0;
    std::uint64_t seed = 0;
    const std::size_t comma = text.find(',');
    if (comma == text.npos || !read_number(text.substr(0, comma), share) ||
        !read_number(text.substr(comma + 1), seed) || !(share >= 1.0 / 256 && share <= 255.0 / 256)) {
        throw BadUsage(fmt::format(
            "dropout '{}': expected P,SEED, P from 1/256 to 255/256 and SEED a whole number", text));
    }
    return {256 - static_cast<int>(std::lround(share * 256)), seed};
}

std::string to_string(const Dropout& dropout) {
    return fmt::format("{},{}", (256 - dropout.kept) / 256.0, dropout.seed);
}

void validate(const Shape& shape) {
    for (const auto& [name, member, limit] : sizes) {
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
    return unavoidable_bytes(s, pass) + double(s.B) * s.H * s.Nq * sizeof(float);
}

double flops(const Shape& shape, bool causal, Pass pass, const Features& features) {
    const double square = std::min(shape.Nq, shape.Nk);  // of scores that the mask halves, bottom-right
    double scores = causal ? square * shape.Nk - square * square / 2 : double(shape.Nq) * shape.Nk;
    const Case c{.shape = shape, .causal = causal, .features = features};
    const Window& window = features.window;
    if (window != Window() || !features.documents.empty()) {
        const reference::Mask mask{causal, shape.Nq, shape.Nk, window.left, window.right, documents_of(c)};
        scores = 0;
        for (int row = 0; row < shape.Nq; ++row) scores += mask.visible(row);
    }
    double forward = 4.0 * shape.B * shape.H * scores * shape.d;
    if (!features.columns.empty()) forward = 4.0 * visible_scores(c) * shape.d;
    if (!features.tiles.empty()) forward = 4.0 * visible_scores_of_tiles(c) * shape.d;
    if (!features.lengths.empty()) {
        forward = 0;
        for (const int length : lengths_of(c)) {
            const Shape own{.H = shape.H, .Hkv = shape.Hkv, .Nq = shape.Nq, .Nk = length, .d = shape.d};
            forward += flops(own, causal, Pass::forward, {.window = window});
        }
    }
    return pass == Pass::forward ? forward : 2.5 * forward;
}

double unavoidable_bytes(const Shape& shape, Pass pass, const Features& features, Products products) {
    const double query_rows = double(shape.B) * shape.H * shape.Nq;
    const std::vector<int> lengths = lengths_of({.shape = shape, .features = features});
    const double keys =
        lengths.empty() ? double(shape.B) * shape.Nk : std::accumulate(lengths.begin(), lengths.end(), 0.0);
    const double key_rows = shape.Hkv * (keys - (shape.B - 1.0) * features.prefix);
    const double words = query_rows + (products == Products::of_8_bit_cache ? key_rows / 2 : key_rows);
    return (pass == Pass::forward ? 2 : 4) * words * shape.d * sizeof(std::uint16_t);
}

bool counts_bytes(const Shape& shape) {
    const std::int64_t Nq = shape.Nq;
    return Nq == 1 || (Nq * shape.H <= std::int64_t{64} * shape.Hkv && 16 * Nq <= shape.Nk);
}

void to_json(nlohmann::json& json, const DType& dtype) {
    json = name(dtype);
}

void from_json(const nlohmann::json& json, DType& dtype) {
    const auto text = json.get<std::string>();
    if (text != "fp16" && text != "bf16") throw BadUsage("unknown element type '" + text + "'");
    dtype = text == "fp16" ? DType::fp16 : DType::bf16;
}

std::string to_string(const Shape& s) {
    return fmt::format("B={} H={} Hkv={} Nq={} Nk={} d={}", s.B, s.H, s.Hkv, s.Nq, s.Nk, s.d);
}

std::string human_bytes(double bytes) {
    constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    std::size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < units.size(); ++unit) bytes /= 1024;
    return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.4g} {}", bytes, units[unit]);
}

}  // namespace ladder
