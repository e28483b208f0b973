/// @file
/// Column bounds: masks that say for each key which query rows do not see it (ladder::Columns).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/features/patterns.h"
#include "harness/problem/case.h"
#include "reference/mask.h"

namespace ladder {

/// A kind of mask, which `--columns` and Case::columns call by its name. Under a causal mask it is what both
/// leave.
struct ColumnPattern {
    const char* name;         ///< "documents"
    const char* description;  ///< one line
    int count;                ///< of the bounds of a key: 2 or 4
    int causal_count;         ///< the same under a causal mask: 1, 2 or 4
    MaskOf mask_of;           ///< the heads with bounds of their own

    /// The heads that have bounds.
    int heads(const Shape& shape) const { return heads_with_masks(mask_of, shape); }
    /// The bounds that a key has.
    int bounds(const Case& c) const { return c.causal ? causal_count : count; }
};
const std::vector<ColumnPattern>& column_patterns();

/// Throws BadUsage, with those that are known.
const ColumnPattern& column_pattern(std::string_view name);

/// The bounds (B, heads, Nk, bounds) of a case that has a pattern. The same on every machine.
std::vector<int> make_columns(const Case& c);

/// What they hide from a query head, key by key; nothing of a case without them.
std::vector<reference::HiddenRows> hidden_rows(const Case& c, int b, int h);

/// Scores of all heads that the mask leaves, causal, of a window and of column bounds.
double scores_of_columns(const Case& c);

}  // namespace ladder
