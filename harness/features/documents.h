/// @file
/// Documents that are packed in one sequence, as a user types them and as a problem has them.
#pragma once

#include <vector>

#include "harness/problem/case.h"
#include "reference/mask.h"

namespace ladder {

/// Those of a case; none if it has none. Their text is a list of lengths, of rows and keys, "512", or of
/// each: "1x512".
std::vector<reference::Document> documents_of(const Case& c);

/// Where the documents of a case begin: count + 1 rows, then count + 1 keys.
std::vector<int> document_bounds(const Case& c);

}  // namespace ladder
