/// @file
/// Lists of tiles: any mask, of which each query tile has its full and its partial key tiles
/// (ladder::TileLists).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/features/patterns.h"
#include "harness/problem/case.h"
#include "reference/mask.h"

namespace ladder {

/// A kind of mask, which `--tiles` calls by its name.
struct TilePattern {
    const char* name;         ///< "quarter"
    const char* description;  ///< one line
    MaskOf mask_of;           ///< the heads with lists of their own
};
const std::vector<TilePattern>& tile_patterns();

/// Throws BadUsage, with those that are known.
const TilePattern& tile_pattern(std::string_view name);

/// What a query head of a case sees, tile by tile, drawn by the seed; nothing of a case without lists. The
/// same on every machine.
reference::Tiles tiles_of(const Case& c, int b, int h);

/// The lists of a case, as a problem has them: bits, and then the four arrays of two lists.
std::vector<int> make_tile_lists(const Case& c);

/// Where they are in memory that has them; heads is 0 of a case without lists.
TileLists tile_lists(const Case& c, const void* at);

}  // namespace ladder
