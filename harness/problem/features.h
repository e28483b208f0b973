/// @file
/// What a problem may have beyond sizes and a causal mask, and how each of it is written. Another one is a
/// member of Features, a Feature of stages/stage.h, and a row of feature_forms().
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "stages/stage.h"

namespace ladder {

/// A stage takes those that it declares (Stage::takes).
struct Features {
    Window window = {};
    std::string columns = {};  ///< one of column_patterns(), drawn by the seed; empty for none
    /// Packed in one sequence, by their lengths: "512,0,1x512" (ROWSxKEYS); empty for none
    std::string documents = {};
    std::string lengths = {};  ///< keys of the requests, "100,0,513", in turn if B is more; empty: all Nk
    int page_size = 0;         ///< keys of a page, in a pool whose table the seed shuffles; 0: no pages
    std::string tiles = {};    ///< one of tile_patterns(), drawn by the seed; empty for none
    Dropout dropout = {};
    int prefix = 0;  ///< first keys that all requests have in common, in the same pages
    int ranks = 1;   ///< that divide the sequence, each with its chunks: Stage::chunks

    bool operator==(const Features&) const = default;
    /// Whether requests have lengths of their own, or K and V are in pages.
    bool has_cache() const { return !lengths.empty() || page_size != 0; }
};

/// Whose masks are drawn apart: those of the key/value heads or of the query heads of each batch entry.
enum class MaskOf : std::uint8_t { all_heads, key_heads, query_heads };

/// How many heads of a batch entry have a mask of their own.
int heads_with_masks(MaskOf mask_of, const Shape& shape);

/// One of them as an option of a command, in the name of a problem, and in a record.
struct FeatureForm {
    Feature feature;
    const char* option;                           ///< "--page-size"
    const char* word;                             ///< "pages"
    std::string (*text)(const Features&);         ///< "16"; empty for none
    void (*read)(Features&, const std::string&);  ///< of such a text. Throws BadUsage.
    const char* type;                             ///< of the text, in the option's help
    const char* help;
};
const std::vector<FeatureForm>& feature_forms();

/// Those that a problem has.
std::vector<Feature> features_of(const Features& features);

/// {"--window", "1023,0", "--page-size", "16"}
std::vector<std::string> options_of(const Features& features);

/// " window=1023,0 columns=documents documents=512,300 lengths=512,300 pages=16 tiles=causal
/// dropout=0.1015625,5 ranks=2"; empty for none
std::string in_words(const Features& features);

/// Adds those that a problem has to an object, each under its word.
void add_json(nlohmann::json& object, const Features& features);
Features features_in(const nlohmann::json& object);

}  // namespace ladder
