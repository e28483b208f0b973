#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "harness/base/numbers.h"
#include "harness/features/feature.h"
#include "stages/errors.h"

namespace ladder {
namespace {

double share_of(const Dropout& dropout) {
    return (256 - dropout.kept) / 256.0;
}

/// "P,SEED": the share that dropout takes, in 256ths, and a seed
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

/// Random bytes lie on the grid of a document's rows, and query tiles of gradients on that of the sequence.
std::string why_not_dropped(const Stage& stage, const Case& c) {
    const bool taken = stage.pass == Pass::forward || c.features.documents.empty();
    return taken ? "" : stage.folder() + " does not take dropout in packed documents";
}

void draw_dropout(std::mt19937_64& random, const Stage&, Case& c) {
    const int kept = 1 + static_cast<int>(random() % 256);
    if (kept < 256) c.features.dropout = {kept, random()};
}

void vary_dropout(std::mt19937_64&, const Stage&, std::size_t k, Case& c) {
    constexpr int kept[] = {230, 128, 1, 255, 256};
    if (const int of_256 = kept[k % std::size(kept)]; of_256 < 256)
        c.features.dropout = {of_256, k * 0x123456789 + 1};
}

}  // namespace

FeatureInfo dropout_feature() {
    auto info = feature_of<&Features::dropout>(
        Feature::dropout, "--dropout", "P,SEED",
        "Dropout of the probabilities: the share that it takes, in 256ths, and a seed");
    info.text = [](const Features& f) {
        return f.dropout == Dropout() ? "" : fmt::format("{},{}", share_of(f.dropout), f.dropout.seed);
    };
    info.read = [](Features& f, const std::string& text) { f.dropout = parse_dropout(text); };
    info.fill = [](const Case& c, const void*, Problem& p) { p.dropout = c.features.dropout; };
    info.mask = [](const Case& c, int b, int h, reference::Mask& mask) {
        const auto [whole_b, whole_h] = c.in_whole(b, h);
        mask.dropout = {c.features.dropout.kept, c.features.dropout.seed, whole_b, whole_h};
    };
    info.tell_peers = [](const Case& c, nlohmann::json& features) {
        features["dropout"] = share_of(c.features.dropout);
    };
    info.arguments = {{"dropout_p", CallArgument::Kind::real}, {"seed", CallArgument::Kind::integer}};
    info.take = [](const Given& given, Problem& p, Features& f) {
        const double share = given.real("dropout_p");
        if (share == 0) return;
        if (!(share >= 1.0 / 256 && share <= 255.0 / 256))
            throw BadUsage(fmt::format("dropout_p is {}; expected 0, or 1/256 to 255/256", share));
        p.dropout = f.dropout = {256 - static_cast<int>(std::lround(share * 256)),
                                 static_cast<std::uint64_t>(given.integer("seed"))};
    };
    info.excludes_in_gradients = {Feature::documents};
    info.why_not = why_not_dropped;
    info.depends_on_row = true;
    info.draw = draw_dropout;
    info.vary = vary_dropout;
    info.put_ordinary = [](Case& c) { c.features.dropout = {200, 0xfedcba9876543210}; };
    info.put_small = [](Case& c) { c.features.dropout = {230, 1}; };
    return info;
}

}  // namespace ladder
