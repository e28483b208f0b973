#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "harness/features/feature.h"
#include "stages/errors.h"

namespace ladder {
namespace {

/// What Gemma 2 has, and caps of nearly all scores and of hardly one.
constexpr float usual_softcap = 50, mostly_capped = 1, hardly_capped = 1e4;

void read_softcap(Features& f, const std::string& text) {
    f.softcap = number_in<float>(text);
    if (!(f.softcap > 0 && std::isfinite(f.softcap)))
        throw BadUsage(fmt::format("softcap {}: expected a number above 0", text));
}

void draw_softcap(std::mt19937_64& random, const Stage&, Case& c) {
    constexpr float drawn[] = {0, mostly_capped, 5, 15, 30, usual_softcap, usual_softcap, 100};
    c.features.softcap = drawn[random() % std::size(drawn)];
}

void vary_softcap(std::mt19937_64&, const Stage&, std::size_t k, Case& c) {
    constexpr float varied[] = {usual_softcap, mostly_capped, 30, 0, 15, usual_softcap, 100};
    c.features.softcap = varied[k % std::size(varied)];
}

/// Scores that are nearly all capped, and that hardly are; of a group of heads, and with rows that see no
/// key.
std::vector<Case> softcap_corners(const Stage& stage, int d, const Tiling& t) {
    std::vector<Case> cases;
    for (const float softcap : {mostly_capped, hardly_capped}) {
        for (const DType dtype : {DType::fp16, DType::bf16})
            cases.push_back({.shape = {1, 6, 2, t.Br + 7, t.Bc + 1, d},
                             .pass = stage.pass,
                             .dtype = dtype,
                             .causal = dtype == DType::bf16,
                             .features = {.softcap = softcap}});
    }
    return cases;
}

}  // namespace

FeatureInfo softcap_feature() {
    auto info = feature_of<&Features::softcap>(
        Feature::softcap, "--softcap", "C", "Scores become C tanh(score / C) before the mask, as in Gemma 2");
    info.read = read_softcap;
    info.is_kept_alone = true;
    info.fill = [](const Case& c, const void*, Problem& p) { p.softcap = c.features.softcap; };
    info.mask = [](const Case& c, int, int, reference::Mask& mask) {
        mask.scores.softcap = static_cast<double>(c.features.softcap);
    };
    info.tell_peers = [](const Case& c, nlohmann::json& features) {
        features["softcap"] = c.features.softcap;
    };
    info.arguments = {{"softcap", CallArgument::Kind::real}};
    info.take = [](const Given& given, Problem& p, Features& f) {
        const double softcap = given.real("softcap");
        if (!(softcap > 0 && std::isfinite(static_cast<float>(softcap))))
            throw BadUsage(fmt::format("softcap is {}; expected a number above 0, or 0 for none", softcap));
        p.softcap = f.softcap = static_cast<float>(softcap);
    };
    info.draw = draw_softcap;
    info.vary = vary_softcap;
    info.put_ordinary = [](Case& c) { c.features.softcap = usual_softcap; };
    info.corners = softcap_corners;
    info.put_small = info.put_ordinary;
    info.simpler = [](const Case& c) {
        Case other = c;
        other.features.softcap = usual_softcap;
        return std::vector{other};
    };
    return info;
}

}  // namespace ladder
