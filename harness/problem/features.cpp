#include "harness/problem/features.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/problem/columns.h"
#include "harness/problem/shape.h"
#include "harness/problem/tiles.h"

namespace ladder {
namespace {

template <std::string Features::*member>
FeatureForm text_form(Feature feature, const char* option, const char* word, const char* type,
                      const char* help) {
    return {feature,
            option,
            word,
            [](const Features& f) { return f.*member; },
            [](Features& f, const std::string& text) { f.*member = text; },
            type,
            help};
}

template <int Features::*member>
FeatureForm number_form(Feature feature, const char* option, const char* word, const char* help) {
    return {
        feature,
        option,
        word,
        [](const Features& f) { return f.*member == Features().*member ? "" : std::to_string(f.*member); },
        [](Features& f, const std::string& text) { f.*member = number_in<int>(text); },
        "N",
        help};
}

}  // namespace

int heads_with_masks(MaskOf mask_of, const Shape& shape) {
    switch (mask_of) {
        case MaskOf::key_heads:
            return shape.Hkv;
        case MaskOf::query_heads:
            return shape.H;
        default:
            return 1;
    }
}

const std::vector<FeatureForm>& feature_forms() {
    static const std::vector<FeatureForm> forms{
        {Feature::window, "--window", "window",
         [](const Features& f) {
             return f.window == Window() ? "" : fmt::format("{},{}", f.window.left, f.window.right);
         },
         [](Features& f, const std::string& text) { f.window = parse_window(text); }, "LEFT,RIGHT",
         "Sliding window, aligned bottom-right: a row sees the key at its position, LEFT keys before it "
         "and RIGHT keys after it; -1: no limit"},
        {Feature::columns, "--columns", "columns", [](const Features& f) { return f.columns; },
         [](Features& f, const std::string& text) { f.columns = column_pattern(text).name; }, "PATTERN",
         "Column bounds, drawn from the seed: for each key, query rows that do not see it (FlashMask)"},
        text_form<&Features::documents>(
            Feature::documents, "--documents", "documents", "A,B,...",
            "Documents packed in one sequence: their lengths in tokens, or ROWSxKEYS where these differ"),
        text_form<&Features::lengths>(
            Feature::lengths, "--lengths", "lengths", "A,B,...",
            "Number of keys of each request, up to Nk; the list is repeated for further requests"),
        number_form<&Features::page_size>(
            Feature::pages, "--page-size", "pages",
            "Store K and V in pages of N keys, a power of two, shuffled by the seed"),
        {Feature::tiles, "--tiles", "tiles", [](const Features& f) { return f.tiles; },
         [](Features& f, const std::string& text) { f.tiles = tile_pattern(text).name; }, "PATTERN",
         "Lists of full and partial key tiles for each query tile, drawn by the seed: the whole mask"},
        {Feature::dropout, "--dropout", "dropout",
         [](const Features& f) { return f.dropout == Dropout() ? "" : to_string(f.dropout); },
         [](Features& f, const std::string& text) { f.dropout = parse_dropout(text); }, "P,SEED",
         "Dropout of the probabilities: the share that it takes, in 256ths, and a seed"},
        number_form<&Features::prefix>(Feature::prefix, "--prefix", "prefix",
                                       "The first N keys of all requests are the same, in the same pages"),
        number_form<&Features::ranks>(
            Feature::ranks, "--ranks", "ranks",
            "GPUs (without one, threads) that share the sequence, for stages that support several")};
    return forms;
}

std::vector<Feature> features_of(const Features& features) {
    std::vector<Feature> found;
    for (const FeatureForm& form : feature_forms()) {
        if (!form.text(features).empty()) found.push_back(form.feature);
    }
    return found;
}

std::vector<std::string> options_of(const Features& features) {
    std::vector<std::string> words;
    for (const FeatureForm& form : feature_forms()) {
        if (const std::string text = form.text(features); !text.empty())
            words.insert(words.end(), {form.option, text});
    }
    return words;
}

std::string in_words(const Features& features) {
    std::string words;
    for (const FeatureForm& form : feature_forms()) {
        if (const std::string text = form.text(features); !text.empty())
            words += fmt::format(" {}={}", form.word, text);
    }
    return words;
}

// The form of a window in records is [left, right], and of a number that number.
void add_json(nlohmann::json& object, const Features& features) {
    if (features.window != Window()) object["window"] = {features.window.left, features.window.right};
    if (!features.columns.empty()) object["columns"] = features.columns;
    if (!features.documents.empty()) object["documents"] = features.documents;
    if (!features.lengths.empty()) object["lengths"] = features.lengths;
    if (features.page_size != 0) object["pages"] = features.page_size;
    if (!features.tiles.empty()) object["tiles"] = features.tiles;
    if (features.dropout != Dropout()) object["dropout"] = to_string(features.dropout);
    if (features.prefix != 0) object["prefix"] = features.prefix;
    if (features.ranks != 1) object["ranks"] = features.ranks;
}

Features features_in(const nlohmann::json& object) {
    Features features{.columns = object.value("columns", ""),
                      .documents = object.value("documents", ""),
                      .lengths = object.value("lengths", ""),
                      .page_size = object.value("pages", 0),
                      .tiles = object.value("tiles", ""),
                      .prefix = object.value("prefix", 0),
                      .ranks = object.value("ranks", 1)};
    if (object.contains("dropout")) features.dropout = parse_dropout(object["dropout"].get<std::string>());
    if (object.contains("window"))
        features.window = {object["window"].at(0).get<int>(), object["window"].at(1).get<int>()};
    return features;
}

}  // namespace ladder
