#include <nlohmann/json.hpp>

#include "harness/features/feature.h"
#include "stages/errors.h"

namespace ladder {

/// How a cache in e4m3 is rounded, and so of stages that take one: DeviceProblem makes the scales with its
/// numbers. In Python k_scale and v_scale have them, by their axes.
FeatureInfo token_scales_feature() {
    FeatureInfo info{.feature = Feature::token_scales,
                     .option = "--scales",
                     .type = "OF",
                     .help = "K and V of a cache in e4m3 have a scale for each token, and not for each head"};
    info.clear = [](Features& f) { f.token_scales = false; };
    info.text = [](const Features& f) { return std::string(f.token_scales ? "token" : ""); };
    info.read = [](Features& f, const std::string& text) {
        if (text != "token") throw BadUsage(fmt::format("scales '{}': expected token", text));
        f.token_scales = true;
    };
    info.choices = {"token"};
    info.in_short = [](const Features&) { return std::string("by token "); };
    info.tell_peers = [](const Case&, nlohmann::json& features) { features["scales"] = "token"; };
    info.draw = [](std::mt19937_64& random, const Stage&, Case& c) {
        c.features.token_scales = random() % 2 == 0;
    };
    info.vary = [](std::mt19937_64&, const Stage&, std::size_t k, Case& c) {
        c.features.token_scales = k % 2 == 1;
    };
    info.put_ordinary = [](Case& c) { c.features.token_scales = true; };
    return info;
}

}  // namespace ladder
