/// @file
/// What a problem may have beyond sizes and a causal mask. harness/features/ says what each is.
#pragma once

#include <string>

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
    float softcap = 0;         ///< 0: none
    std::string alibi = {};    ///< one of alibi_kinds(), which slopes the heads have; empty for none
    std::string sinks = {};    ///< one of sink_kinds(), drawn by the seed; empty for none
    Dropout dropout = {};
    std::string tree = {};      ///< one of tree_patterns(), drawn by the seed; empty for none
    bool promotion = false;     ///< Problem::promotion
    bool token_scales = false;  ///< of K and V in e4m3: Problem::K_token_scales
    int prefix = 0;             ///< first keys that all requests have in common, in the same pages
    int ranks = 1;              ///< that divide the sequence, each with its chunks: Stage::chunks

    bool operator==(const Features&) const = default;
    /// Whether requests have lengths of their own, or K and V are in pages.
    bool has_cache() const { return !lengths.empty() || page_size != 0; }
};

}  // namespace ladder
