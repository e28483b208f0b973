#include <nlohmann/json.hpp>

#include "harness/features/feature.h"
#include "stages/errors.h"

namespace ladder {

/// What a stage does, and not what it computes: the reference is then that of sums that are promoted.
FeatureInfo promotion_feature() {
    FeatureInfo info{.feature = Feature::promotion,
                     .option = "--promotion",
                     .type = "HOW",
                     .help = "Sums of P V over at most 128 keys are added in fp32"};
    info.clear = [](Features& f) { f.promotion = false; };
    info.text = [](const Features& f) { return std::string(f.promotion ? "fp32" : ""); };
    info.read = [](Features& f, const std::string& text) {
        if (text != "fp32") throw BadUsage(fmt::format("promotion '{}': expected fp32", text));
        f.promotion = true;
    };
    info.choices = {"fp32"};
    info.fill = [](const Case& c, const void*, Problem& p) { p.promotion = c.features.promotion; };
    info.tell_peers = [](const Case&, nlohmann::json& features) { features["promotion"] = "fp32"; };
    info.arguments = {{"promotion", CallArgument::Kind::integer}};
    info.take = [](const Given& given, Problem& p, Features& f) {
        p.promotion = f.promotion = given.integer("promotion") != 0;
    };
    info.draw = [](std::mt19937_64& random, const Stage&, Case& c) {
        c.features.promotion = random() % 2 == 0;
    };
    info.vary = [](std::mt19937_64&, const Stage&, std::size_t k, Case& c) {
        c.features.promotion = k % 2 == 1;
    };
    info.put_ordinary = [](Case& c) { c.features.promotion = true; };
    return info;
}

}  // namespace ladder
