#include "harness/features/features.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/base/numbers.h"
#include "harness/problem/shape.h"
#include "stages/errors.h"

namespace ladder {

std::vector<std::string> options_of(const Features& features) {
    std::vector<std::string> words;
    for (const FeatureInfo* info : in_use_of(features))
        words.insert(words.end(), {info->option, info->text(features)});
    return words;
}

std::string in_words(const Features& features) {
    std::string words;
    for (const FeatureInfo* info : in_use_of(features))
        words += fmt::format(" {}={}", info->word(), info->text(features));
    return words;
}

// In JSON a text is a text, "16" the number, "1023,0" a list of two.
void add_json(nlohmann::json& object, const Features& features) {
    for (const FeatureInfo* info : in_use_of(features)) {
        const std::string text = info->text(features);
        auto& value = object[info->word()];
        if (info->is_text) {
            value = text;
        } else {
            value = nlohmann::json::parse("[" + text + "]");
            if (value.size() == 1) value = nlohmann::json(value[0]);
        }
    }
}

Features features_in(const nlohmann::json& object) {
    Features features;
    for (const FeatureInfo& info : all_features()) {
        const auto found = object.find(info.word());
        if (found == object.end()) continue;
        std::string text = found->is_string() ? found->get<std::string>() : found->dump();
        if (found->is_array()) text = text.substr(1, text.size() - 2);
        info.read(features, text);
    }
    return features;
}

std::string description_of(const Case& c) {
    const Shape& s = c.shape;
    std::string text = fmt::format("{} {}{}{} {} {}", to_string(s), name(c.dtype),
                                   c.pass == Pass::backward ? " backward" : "", c.causal ? " causal" : "",
                                   name(c.layout), c.input);
    text += in_words(c.features);
    if (c.scale) text += fmt::format(" scale={}", *c.scale);
    if (c.seed != 1) text += fmt::format(" seed={}", c.seed);
    if (c.multiprocessors != 0) text += fmt::format(" sms={}", c.multiprocessors);
    return text;
}

std::string options_of(const Case& c) {
    const Shape& s = c.shape;
    std::string text = fmt::format("--shape {},{},{},{},{},{}", s.B, s.H, s.Hkv, s.Nq, s.Nk, s.d);
    const Case plain;
    if (c.causal) text += " --causal";
    for (const std::string& word : options_of(c.features)) text += " " + word;
    if (c.dtype != plain.dtype) text += fmt::format(" --dtype {}", name(c.dtype));
    if (c.layout != plain.layout) text += fmt::format(" --layout {}", name(c.layout));
    if (c.input != plain.input) text += " --input " + c.input;
    if (c.seed != plain.seed) text += fmt::format(" --seed {}", c.seed);
    if (c.scale) text += fmt::format(" --scale {}", *c.scale);
    if (c.multiprocessors != 0) text += fmt::format(" --sms {}", c.multiprocessors);
    return text;
}

Case parse_case(const std::string& options) {
    Case c;
    bool has_shape = false;
    const std::map<std::string, DType> dtypes{{"fp16", DType::fp16}, {"bf16", DType::bf16}};
    std::map<std::string, std::string> inputs;
    for (const InputKind& kind : input_kinds()) inputs[kind.name] = kind.name;
    std::istringstream words(options);
    for (std::string option, value; words >> option;) {
        if (option == "--causal") {
            c.causal = true;
            continue;
        }
        if (!(words >> value)) throw BadUsage(fmt::format("{} has no value", option));
        const auto one_of = [&](const auto& choices) {
            const auto found = choices.find(value);
            if (found == choices.end()) throw BadUsage(fmt::format("there is no {} {}", option, value));
            return found->second;
        };
        const auto info = std::find_if(all_features().begin(), all_features().end(),
                                       [&](const FeatureInfo& known) { return known.option == option; });
        if (info != all_features().end()) {
            info->read(c.features, value);
        } else if (option == "--shape") {
            c.shape = parse_shape(value);
            has_shape = true;
        } else if (option == "--dtype") {
            c.dtype = one_of(dtypes);
        } else if (option == "--layout") {
            c.layout = one_of(layouts());
        } else if (option == "--input") {
            c.input = one_of(inputs);
        } else if (option == "--seed") {
            c.seed = number_in<std::uint64_t>(value);
        } else if (option == "--scale") {
            c.scale = number_in<float>(value);
        } else if (option == "--sms") {
            c.multiprocessors = number_in<int>(value);
            if (c.multiprocessors < 1 || c.multiprocessors > most_multiprocessors)
                throw BadUsage(fmt::format("--sms is from 1 to {}", most_multiprocessors));
        } else {
            throw BadUsage(fmt::format("a case has no {}", option));
        }
    }
    if (!has_shape) throw BadUsage("the case has no --shape");
    require_possible(c);
    return c;
}

}  // namespace ladder
