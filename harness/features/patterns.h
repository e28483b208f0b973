/// @file
/// Masks that problems call by a name and that the seed draws.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "harness/features/feature.h"
#include "stages/errors.h"
#include "stages/stage.h"

namespace ladder {

/// Whose masks are drawn apart: those of the key/value heads or of the query heads of each batch entry.
enum class MaskOf : std::uint8_t { all_heads, key_heads, query_heads };

/// How many heads of a batch entry have a mask of their own.
inline int heads_with_masks(MaskOf mask_of, const Shape& shape) {
    return mask_of == MaskOf::key_heads ? shape.Hkv : mask_of == MaskOf::query_heads ? shape.H : 1;
}

template <class Pattern>
std::vector<std::string> names_of(const std::vector<Pattern>& patterns) {
    std::vector<std::string> names;
    for (const Pattern& pattern : patterns) names.emplace_back(pattern.name);
    return names;
}

/// `what`: "column bounds". Throws BadUsage, with those that are known.
template <class Pattern>
const Pattern& pattern_named(const std::vector<Pattern>& patterns, std::string_view name, const char* what) {
    for (const Pattern& pattern : patterns) {
        if (name == pattern.name) return pattern;
    }
    throw BadUsage(
        fmt::format("unknown {} '{}' (known: {})", what, name, fmt::join(names_of(patterns), ", ")));
}

/// The feature that such masks are. `named`: a pattern by its name; `put`: gives a case the pattern of this
/// name, or none.
template <auto member, auto patterns, auto named, auto put>
FeatureInfo pattern_feature(Feature feature, const char* option, const char* help) {
    FeatureInfo info = feature_of<member>(feature, option, "PATTERN", help);
    info.read = [](Features& f, const std::string& text) { f.*member = named(text).name; };
    info.choices = names_of(patterns());
    info.depends_on_row = true;
    // Half of the time one of the last two, any mask
    info.draw = [](std::mt19937_64& random, const Stage&, Case& c) {
        const std::size_t n = patterns().size(), k = random() % (2 * n);
        put(c, k == 0 ? "" : patterns()[k < n ? k - 1 : n - 1 - k % 2].name);
    };
    // One in eight has none, most have the last, any mask.
    info.vary = [](std::mt19937_64&, const Stage&, std::size_t k, Case& c) {
        put(c, k % 8 == 0 ? "" : patterns()[std::min(k % 8, patterns().size()) - 1].name);
    };
    info.put_ordinary = [](Case& c) { put(c, "query_heads"); };
    info.simpler = [](const Case& c) {
        Case other = c;
        other.features.*member = patterns().front().name;
        return std::vector{other};
    };
    return info;
}

/// What is timed is compared head by head; empty if the pattern's masks are those of all heads.
template <class Pattern>
std::string why_pattern_not_timed(const char* option, const Pattern& pattern, const char* what) {
    if (pattern.mask_of == MaskOf::all_heads) return "";
    return fmt::format(
        "{} {} has {} for each head, and what is timed is compared head by head, so it takes "
        "one whose heads are alike",
        option, pattern.name, what);
}

}  // namespace ladder
