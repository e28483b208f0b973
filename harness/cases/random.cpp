#include "harness/cases/random.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "harness/cases/inputs.h"
#include "harness/features/features.h"

namespace ladder {
namespace {

/// (16 rows, 16 keys) pieces of all heads: what a CPU computes.
double pieces(const Shape& s) {
    return double(s.B) * s.H * ((s.Nq + 15) / 16) * ((s.Nk + 15) / 16) * s.d / 64;
}
constexpr double most_pieces = 500;

/// What may be simpler in a case, each by itself: halves of sizes before single steps, and all that is not
/// the default.
std::vector<Case> simpler(const Case& c) {
    std::vector<Case> list;
    const auto add = [&](auto&& change) {
        Case other = c;
        change(other);
        for (const FeatureInfo& info : all_features()) {
            if (info.fit != nullptr) info.fit(other);
        }
        if (!(other == c)) list.push_back(other);
    };
    const auto in_use = in_use_of(c.features);
    const bool has_sizes = std::ranges::none_of(in_use, &FeatureInfo::sets_sizes);
    for (int Shape::*size : {&Shape::B, &Shape::Nk, &Shape::Nq}) {
        if (!has_sizes) break;
        for (const int smaller : {1, (c.shape.*size + 1) / 2, c.shape.*size - 1})
            add([&](Case& other) { other.shape.*size = std::max(1, smaller); });
    }
    const int group = c.shape.H / c.shape.Hkv;
    for (const auto& [Hkv, heads] : {std::pair{1, 1},
                                     {c.shape.Hkv, 1},
                                     {1, group},
                                     {c.shape.Hkv - 1, group},
                                     {c.shape.Hkv, group - 1}}) {
        add([&, Hkv = std::max(1, Hkv), heads = std::max(1, heads)](Case& other) {
            other.shape.Hkv = Hkv;
            other.shape.H = Hkv * heads;
        });
    }
    add([](Case& other) { other.causal = false; });
    for (const FeatureInfo& info : all_features()) add([&](Case& other) { info.clear(other.features); });
    for (const FeatureInfo* info : in_use) {
        if (info->simpler == nullptr) continue;
        for (const Case& simple : info->simpler(c)) add([&](Case& other) { other = simple; });
    }
    for (const Layout plainer : {Layout::bhnd, Layout::bnhd, Layout::mixed}) {
        if (plainer < c.layout) add([=](Case& other) { other.layout = plainer; });
    }
    add([](Case& other) { other.input = "normal"; });
    add([](Case& other) { other.scale.reset(); });
    add([](Case& other) { other.multiprocessors = 0; });
    add([](Case& other) { other.dtype = DType::fp16; });
    add([](Case& other) { other.seed = 1; });
    return list;
}

}  // namespace

Case random_case(std::mt19937_64& random, const std::vector<int>& head_dims, int k) {
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
    const auto one_of = [&](const auto& list) {
        return list[static_cast<std::size_t>(below(std::size(list)))];
    };
    // As many small sizes as large ones, and every other near a multiple of what tiles are made of.
    const auto size = [&](int most) {
        const int n = 1 + below(2 << below(most));
        return below(2) == 0 ? n : std::max(1, (n + 15) / 16 * 16 + below(3) - 1);
    };
    Case c;
    c.shape.d = head_dims[static_cast<std::size_t>(k) % head_dims.size()];
    const auto draw = [&](auto&& change) {  // what is not too large
        Case drawn = c;
        do {
            drawn = c;
            change(drawn.shape);
        } while (pieces(drawn.shape) > most_pieces);
        c = drawn;
    };
    draw([&](Shape& s) {
        s.Nq = size(9);
        s.Nk = size(12);
    });
    draw([&](Shape& s) {
        s.B = 1 + below(4);
        s.Hkv = 1 + below(below(4) + 1);
        s.H = s.Hkv * (1 + below(1 << below(4)));
    });
    c.dtype = k / static_cast<int>(head_dims.size()) % 2 == 0 ? DType::fp16 : DType::bf16;
    c.causal = below(2) == 1;
    constexpr Layout drawn_layouts[] = {Layout::bhnd,  Layout::bhnd,  Layout::bnhd,  Layout::bnhd,
                                        Layout::mixed, Layout::mixed, Layout::mixed, Layout::far};
    c.layout = one_of(drawn_layouts);
    c.input = below(2) == 0 ? "normal" : one_of(input_kinds()).name;
    c.seed = random() % 1000;
    constexpr std::optional<float> drawn_scales[] = {std::nullopt, std::nullopt, std::nullopt, 1.0f,
                                                     0.1f,         -0.25f,       -0.1f,        0.0f};
    c.scale = one_of(drawn_scales);
    constexpr int drawn_machines[] = {0, 1, 2, 3, 8, 40, 108, 132};
    c.multiprocessors = one_of(drawn_machines);
    return c;
}

void draw_features(std::uint64_t seed, const Stage& stage, Case& c) {
    for (const bool sizes : {true, false}) {  // these first: the others depend on them
        for (const FeatureInfo* info : features_for(stage, seed)) {
            if (info->sets_sizes != sizes) continue;
            // Each from a generator of its own: what else a stage takes does not change it.
            std::mt19937_64 random(seed +
                                   0x9e3779b97f4a7c15 * (1 + static_cast<std::uint64_t>(info->feature)));
            info->draw(random, stage, c);
        }
    }
}

Case shrink(Case c, const std::function<bool(const Case&)>& fails) {
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (const Case& other : simpler(c)) {
            if (!fails(other)) continue;
            c = other;
            smaller = true;
            break;
        }
    }
    return c;
}

}  // namespace ladder
