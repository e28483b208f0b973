#include <iterator>
#include <nlohmann/json.hpp>

#include "harness/features/checks.h"
#include "harness/features/feature.h"
#include "harness/features/patterns.h"
#include "stages/errors.h"

namespace ladder {
namespace {

/// Sinks that problems call by a name.
struct SinkKind {
    const char* name;
    float (*sink)(std::uint64_t seed, int h);
};

/// From -4 to 12 in steps of 1/64: less and more than the row sums of some hundred keys.
float drawn_sink(std::uint64_t seed, int h) {
    std::mt19937_64 random(seed + 1000003 * (std::uint64_t(h) + 1));
    return static_cast<float>(random() % 1024) / 64 - 4;
}

const std::vector<SinkKind>& sink_kinds() {
    static const std::vector<SinkKind> kinds{
        {"drawn", drawn_sink},
        // A sink that takes all, one that takes nothing, and an ordinary one, in turn
        {"extreme",
         [](std::uint64_t seed, int h) {
             return h % 3 == 0 ? 1e4f : h % 3 == 1 ? -1e4f : drawn_sink(seed, h);
         }},
    };
    return kinds;
}

float sink_of(const Case& c, int b, int h) {
    return pattern_named(sink_kinds(), c.features.sinks, "sinks").sink(c.seed, c.in_whole(b, h).second);
}

std::vector<float> sinks_of(const Case& c) {
    std::vector<float> sinks;
    for (int h = 0; h < c.shape.H; ++h) sinks.push_back(sink_of(c, 0, h));
    return sinks;
}

void put_sinks(std::size_t k, Case& c) {
    constexpr const char* kinds[] = {"drawn", "extreme", "",      "drawn", "drawn",  "extreme",
                                     "",      "drawn",   "drawn", "drawn", "extreme"};
    c.features.sinks = kinds[k % std::size(kinds)];
}

void require_sinks(const Case& c) {
    if (c.features.ranks > 1) throw BadUsage("--sinks does not go with several ranks");
}

/// Rows that see no key, beginnings of keys that take several tiles, groups of heads, batches.
std::vector<Case> sink_corners(const Stage& stage, int d, const Tiling& t) {
    std::vector<Case> cases;
    for (const char* sinks : {"drawn", "extreme"}) {
        for (const auto& [Nq, Nk] : {std::pair{t.Br + 7, 5}, {1, 1}, {3, 3 * t.Bc + 1}})
            cases.push_back({.shape = {2, 6, 2, Nq, Nk, d},
                             .pass = stage.pass,
                             .dtype = Nq == 3 ? DType::bf16 : DType::fp16,
                             .causal = true,
                             .features = {.sinks = sinks},
                             .layout = usual_layouts[cases.size() % std::size(usual_layouts)],
                             .seed = cases.size() + 1});
    }
    return cases;
}

}  // namespace

FeatureInfo sinks_feature() {
    auto info = feature_of<&Features::sinks>(
        Feature::sinks, "--sinks", "SINKS",
        "A score of each head, drawn from the seed, that its row sums have in addition, without a value");
    info.read = [](Features& f, const std::string& text) {
        f.sinks = pattern_named(sink_kinds(), text, "sinks").name;
    };
    info.choices = names_of(sink_kinds());
    info.require = require_sinks;
    info.array = "sinks";
    info.numbers = sinks_of;
    info.is_kept_alone = true;
    info.fill = [](const Case&, const void* numbers, Problem& p) {
        p.sinks = static_cast<const float*>(numbers);
    };
    info.mask = [](const Case& c, int b, int h, reference::Mask& mask) {
        mask.sink = static_cast<double>(sink_of(c, b, h));
    };
    info.tell_peers = [](const Case& c, nlohmann::json& features) { features["sinks"] = sinks_of(c); };
    info.arguments = {{"sinks", CallArgument::Kind::float32, "sinks", "H"}};
    info.take = [](const Given& given, Problem& p, Features& f) {
        const Array& sinks = *given.array("sinks");
        require_axes("sinks", sinks, {given.Q[1]});
        require_reals("sinks", given);
        p.sinks = sinks.reals();
        f.sinks = given_numbers;
    };
    info.draw = [](std::mt19937_64& random, const Stage&, Case& c) { put_sinks(random(), c); };
    info.vary = [](std::mt19937_64&, const Stage&, std::size_t k, Case& c) { put_sinks(k, c); };
    info.put_ordinary = [](Case& c) { c.features.sinks = "drawn"; };
    info.corners = sink_corners;
    info.put_small = info.put_ordinary;
    info.simpler = [](const Case& c) {
        Case other = c;
        other.features.sinks = "drawn";
        return std::vector{other};
    };
    return info;
}

}  // namespace ladder
