#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "harness/features/checks.h"
#include "harness/features/feature.h"
#include "harness/features/patterns.h"
#include "harness/problem/shape.h"

namespace ladder {
namespace {

/// Slopes that problems call by a name.
struct AlibiKind {
    const char* name;
    bool of_batch_entries;  ///< each has its own: (B, H), otherwise (H)
    float (*slope)(std::uint64_t seed, int b, int h);
};

/// From 2^-9 to 1, and of one head in four 0.
float drawn_slope(std::uint64_t seed, int b, int h) {
    std::mt19937_64 random(seed + 1000003 * (std::uint64_t(b) << 16 | std::uint64_t(h)));
    if (random() % 4 == 0) return 0;
    return std::ldexp(static_cast<float>(1 + random() % 512), -9);
}

const std::vector<AlibiKind>& alibi_kinds() {
    static const std::vector<AlibiKind> kinds{
        // The slopes of the paper (arXiv 2108.12409) for 8 heads, in turn if there are more
        {"geometric", false, [](std::uint64_t, int, int h) { return std::ldexp(1.0f, -1 - h % 8); }},
        {"zero", false, [](std::uint64_t, int, int) { return 0.0f; }},
        {"drawn", true, drawn_slope},
    };
    return kinds;
}

const AlibiKind& kind_of(const Case& c) {
    return pattern_named(alibi_kinds(), c.features.alibi, "ALiBi slopes");
}

float slope_of(const Case& c, int b, int h) {
    const auto [whole_b, whole_h] = c.in_whole(b, h);
    return kind_of(c).slope(c.seed, whole_b, whole_h);
}

std::vector<float> slopes_of(const Case& c) {
    std::vector<float> slopes;
    for (int b = 0; b < (kind_of(c).of_batch_entries ? c.shape.B : 1); ++b) {
        for (int h = 0; h < c.shape.H; ++h) slopes.push_back(slope_of(c, b, h));
    }
    return slopes;
}

/// None, those of all batch entries and of each, and 0. Nine, and other features have lists of other lengths,
/// so that each of one meets each of the others.
void put_alibi(std::size_t k, Case& c) {
    constexpr const char* kinds[] = {"drawn", "geometric", "drawn",     "",     "zero",
                                     "drawn", "",          "geometric", "drawn"};
    c.features.alibi = kinds[k % std::size(kinds)];
}

/// Rows whose position is before the first key, and which see none or see all of them; groups of heads.
std::vector<Case> alibi_corners(const Stage& stage, int d, const Tiling& t) {
    std::vector<Case> cases;
    for (const auto& [Nq, Nk] : {std::pair{t.Br + 7, 5}, {3, 3 * t.Bc + 1}, {2 * t.Br + 1, t.Bc - 1}}) {
        for (const bool causal : {false, true})
            cases.push_back({.shape = {2, 6, 2, Nq, Nk, d},
                             .pass = stage.pass,
                             .dtype = causal ? DType::bf16 : DType::fp16,
                             .causal = causal,
                             .features = {.alibi = "drawn"},
                             .layout = usual_layouts[cases.size() % std::size(usual_layouts)],
                             .seed = cases.size() + 1});
    }
    return cases;
}

}  // namespace

FeatureInfo alibi_feature() {
    auto info = feature_of<&Features::alibi>(
        Feature::alibi, "--alibi", "SLOPES",
        "ALiBi: scores are less by the slope of their head for each token between row and key");
    info.read = [](Features& f, const std::string& text) {
        f.alibi = pattern_named(alibi_kinds(), text, "ALiBi slopes").name;
    };
    info.choices = names_of(alibi_kinds());
    info.array = "ALiBi slopes";
    info.numbers = slopes_of;
    info.is_kept_alone = true;
    info.fill = [](const Case& c, const void* numbers, Problem& p) {
        p.alibi_slopes = static_cast<const float*>(numbers);
        p.alibi_batch_stride = kind_of(c).of_batch_entries ? c.shape.H : 0;
    };
    info.mask = [](const Case& c, int b, int h, reference::Mask& mask) {
        mask.scores.slope = static_cast<double>(slope_of(c, b, h));
    };
    info.tell_peers = [](const Case& c, nlohmann::json& features) { features["alibi"] = slopes_of(c); };
    info.arguments = {{"alibi_slopes", CallArgument::Kind::float32, "ALiBi slopes", "H"}};
    info.take = [](const Given& given, Problem& p, Features& f) {  // (H) or (B, H)
        const Array& slopes = *given.array("alibi_slopes");
        const bool of_batch_entries = slopes.axes.size() == 2;
        if (of_batch_entries) require_axes("alibi_slopes", slopes, {given.Q[0], given.Q[1]});
        if (!of_batch_entries) require_axes("alibi_slopes", slopes, {given.Q[1]});
        require_reals("alibi_slopes", given);
        p.alibi_slopes = slopes.reals();
        p.alibi_batch_stride = of_batch_entries ? static_cast<int>(given.Q[1]) : 0;
        f.alibi = given_numbers;
    };
    info.depends_on_row = true;
    info.draw = [](std::mt19937_64& random, const Stage&, Case& c) { put_alibi(random(), c); };
    info.vary = [](std::mt19937_64&, const Stage&, std::size_t k, Case& c) { put_alibi(k, c); };
    info.put_ordinary = [](Case& c) { c.features.alibi = "geometric"; };
    info.put_on_diagonal = [](int, std::size_t, Case& c) { c.features.alibi = "drawn"; };
    info.corners = alibi_corners;
    info.put_small = info.put_ordinary;
    info.simpler = [](const Case& c) {
        Case other = c;
        other.features.alibi = "geometric";
        return std::vector{other};
    };
    return info;
}

}  // namespace ladder
