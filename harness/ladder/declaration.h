/// @file
/// What a kernel's source says of its stage. No kernel is compiled to read it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "stages/stage.h"

namespace ladder {

/// A kernel.cu as the one text that it is: a kernel that several stages have stands in a file of one stage's
/// folder, and that file, its first comment aside, is here in the place of the line that includes it.
std::string kernel_text(const std::filesystem::path& kernel);

/// What LADDER_STAGE declares at the end of a kernel.cu: numbers, texts and tiles, not the functions. Throws
/// CheckFailed, naming `path`, if one of them is missing or is no literal.
Stage read_declaration(const std::filesystem::path& path);

/// A feature in words.
struct FeatureWords {
    Feature feature;
    const char* word;  ///< "pages": as LADDER_STAGE has it, after Feature::, and JSON
    const char* name;  ///< "K and V in pages"
};
/// All of them, in the order of Feature.
const std::vector<FeatureWords>& feature_words();
const char* word(Feature feature);

/// Stage::compute_capability of a kernel's source: 90 if it includes stages/hopper.cuh.
int needed_capability(std::string_view source);

}  // namespace ladder
